// Package v20260901preview is the ARM api-version 2026-09-01-preview: 2026-06-30-preview with admin credentials for a key
// that never leaves the client.
package v20260901preview

import (
	"github.com/hcpmesh/hcpmesh/api/v20260630preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the name of the api-version.
const Version = "2026-09-01-preview"

// API is the api-version.
func API() version.Version {
	v := v20260630preview.API()
	v.Name = Version
	v.AcceptsCSR = true
	return v
}

// Package v20260901preview defines the ARM api-version 2026-09-01-preview. It adds admin credentials for a key that never
// leaves the client.
package v20260901preview

import (
	"github.com/hcpmesh/hcpmesh/api/v20260630preview"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the value of the api-version parameter.
const Version = "2026-09-01-preview"

// API returns the api-version.
func API() version.Version {
	v := v20260630preview.API()
	v.Name = Version
	v.AcceptsCSR = true
	return v
}

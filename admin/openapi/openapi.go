// Package openapi embeds the OpenAPI document of admin's API. The test of package server generates it from the route table with
// -update.
package openapi

import (
	_ "embed"
	"slices"
)

//go:embed admin-v1.json
var document []byte

// Document returns the document as JSON.
func Document() []byte { return slices.Clone(document) }

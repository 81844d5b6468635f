// Package openapi holds the OpenAPI document of admin's API, made of its routes and of the types in api/adminv1 by the test
// of package server with -update.
package openapi

import (
	_ "embed"
	"slices"
)

//go:embed admin-v1.json
var document []byte

// Document is the document, JSON.
func Document() []byte { return slices.Clone(document) }

// Admin serves the REST API for SREs of a region: it finds, shows and explains clusters across all layers, and accepts actions.
package main

import "github.com/hcpmesh/hcpmesh/admin/pkg/app"

func main() { app.Main() }

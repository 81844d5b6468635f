// The frontend is hcpmesh's ARM resource provider for the namespace Microsoft.RedHatOpenShift.
package main

import "github.com/hcpmesh/hcpmesh/frontend/pkg/app"

func main() { app.Main() }

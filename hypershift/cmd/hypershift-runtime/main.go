// Command hypershift-runtime implements HyperShift on the management clusters of a local region. See the README of its
// module.
package main

import "github.com/hcpmesh/hcpmesh/hypershift/pkg/app"

func main() { app.Main() }

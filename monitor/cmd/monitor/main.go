// Command monitor observes the API servers of all hosted clusters of a region.
package main

import "github.com/hcpmesh/hcpmesh/monitor/pkg/app"

func main() { app.Main() }

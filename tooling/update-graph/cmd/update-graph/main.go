// Command update-graph serves a release catalogue with the protocol of OpenShift's update service.
package main

import "github.com/hcpmesh/hcpmesh/tooling/update-graph/pkg/graph"

func main() { graph.Main() }

// Command arm-frontdoor emulates Azure Resource Manager for one region, for local regions and tests.
package main

import "github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/frontdoor"

func main() { frontdoor.Main() }

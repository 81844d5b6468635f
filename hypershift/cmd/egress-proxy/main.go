// Command egress-proxy connects the API servers of hosted control planes to token issuers at public addresses, and to nothing else.
// See package egress.
package main

import "github.com/hcpmesh/hcpmesh/hypershift/pkg/egress"

func main() { egress.Main() }

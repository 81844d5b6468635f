// Command gateway-grants issues the tokens of access sessions with the API server of the service cluster. See package grant.
package main

import "github.com/hcpmesh/hcpmesh/gateway/pkg/grant"

func main() { grant.Main() }

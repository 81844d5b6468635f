// Command gateway-tunnel connects the session gateway to the hosted API servers of a management cluster. See package tunnel.
package main

import "github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"

func main() { agent.Main() }

// Command gateway-egress connects clusters without a way to the internet to permitted hosts, which their private endpoints name in TLS or with CONNECT.
package main

import "github.com/hcpmesh/hcpmesh/gateway/pkg/egress"

func main() { egress.Main() }

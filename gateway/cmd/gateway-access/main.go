// Command gateway-access forwards the requests of engineers to the API servers of hosted clusters, with an audit.
package main

import "github.com/hcpmesh/hcpmesh/gateway/pkg/app"

func main() { app.Main() }

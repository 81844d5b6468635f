// Command maestro-server is the Maestro server. It accepts resource bundles from sources over gRPC, stores them in
// PostgreSQL and delivers them to the agents of the management clusters over MQTT. The command `maestro-server migrate` migrates the
// database as its owner, and `maestro-server provision` creates it as the administrator of the server.
package main

import "github.com/hcpmesh/hcpmesh/maestro/pkg/app"

func main() { app.Main() }

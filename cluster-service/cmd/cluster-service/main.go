// Command cluster-service is the fleet orchestrator: a gRPC API on PostgreSQL that places clusters on management clusters
// and drives them there through Maestro. Flags are described by --help; the README of the folder tells the rest. The command
// `cluster-service migrate` migrates the database as its owner, and `cluster-service provision` creates it as the administrator of the server.
package main

import "github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"

func main() { app.Main() }

// Command cluster-service is the fleet orchestrator: a gRPC API on PostgreSQL that places clusters on management clusters
// and drives them there through Maestro. Flags are described by --help; the README of the folder tells the rest. The command
// `cluster-service migrate` migrates the database as its owner, and `cluster-service provision` creates it as the administrator of the server.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/postgres/migratecommand"
	"github.com/hcpmesh/hcpmesh/internal/postgres/provisioncommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == provisioncommand.Name {
		provisioncommand.Main("cluster-service", os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == migratecommand.Name {
		migratecommand.Main("cluster-service", store.Migrations(), os.Args[2:])
	}
	var options app.Options
	flags := flag.NewFlagSet("cluster-service", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], func() error { return options.Validate(flags) })
	process.Run("cluster-service", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, &options)
	})
}

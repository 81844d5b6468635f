// Command maestro-server is the Maestro server. It accepts resource bundles from sources over gRPC, stores them in
// PostgreSQL and delivers them to the agents of the management clusters over MQTT. The command `maestro-server migrate` migrates the
// database as its owner, and `maestro-server provision` creates it as the administrator of the server.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/postgres/migratecommand"
	"github.com/hcpmesh/hcpmesh/internal/postgres/provisioncommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == provisioncommand.Name {
		provisioncommand.Main("maestro-server", os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == migratecommand.Name {
		migratecommand.Main("maestro-server", store.Migrations(), os.Args[2:])
	}
	var options app.Options
	flags := flag.NewFlagSet("maestro-server", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("maestro-server", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, &options)
	})
}

package app

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Main is the program maestro-server. It reads the arguments of the process.
func Main() {
	postgrescommand.Main("maestro-server", store.Migrations(), os.Args[1:])
	var options Options
	flags := flag.NewFlagSet("maestro-server", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("maestro-server", options.Process, func(ctx context.Context, p *process.Process) error {
		return Run(ctx, p, &options)
	})
}

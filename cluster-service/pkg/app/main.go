package app

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program cluster-service. It reads the arguments of the process.
func Main() {
	postgrescommand.Main("cluster-service", store.Migrations(), os.Args[1:])
	var options Options
	flags := flag.NewFlagSet("cluster-service", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], func() error { return options.Validate(flags) })
	process.Run("cluster-service", options.Process, func(ctx context.Context, p *process.Process) error {
		return Run(ctx, p, &options)
	})
}

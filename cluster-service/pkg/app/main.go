package app

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/postgres/migratecommand"
	"github.com/hcpmesh/hcpmesh/internal/postgres/provisioncommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program cluster-service. It reads the arguments of the process.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == provisioncommand.Name {
		provisioncommand.Main("cluster-service", os.Args[2:])
	}
	if len(os.Args) > 1 && os.Args[1] == migratecommand.Name {
		migratecommand.Main("cluster-service", store.Migrations(), os.Args[2:])
	}
	var options Options
	flags := flag.NewFlagSet("cluster-service", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], func() error { return options.Validate(flags) })
	process.Run("cluster-service", options.Process, func(ctx context.Context, p *process.Process) error {
		return Run(ctx, p, &options)
	})
}

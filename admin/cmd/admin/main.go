// Admin serves the REST API for SREs of a region: it finds, shows and explains clusters across all layers, and accepts actions.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/admin/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("admin", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("admin", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}

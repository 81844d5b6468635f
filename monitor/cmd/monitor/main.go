// Command monitor observes the API servers of all hosted clusters of a region.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/app"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("monitor", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("monitor", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}

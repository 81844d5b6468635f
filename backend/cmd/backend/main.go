// Command backend brings every accepted operation to a terminal state.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/backend/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("backend", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("backend", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}

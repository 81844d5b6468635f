// Command backend drives every accepted operation to its end.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/backend/pkg/backend"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options backend.Options
	flags := flag.NewFlagSet("backend", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("backend", options.Process, func(ctx context.Context, p *process.Process) error {
		return backend.Run(ctx, p, options)
	})
}

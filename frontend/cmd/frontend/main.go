// The frontend is hcpmesh's ARM resource provider for the namespace Microsoft.RedHatOpenShift.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("frontend", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("frontend", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}

// Command gateway-grants issues the tokens of access sessions with the API server of the service cluster. See package grant.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("gateway-grants", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), options.Process, func(ctx context.Context, p *process.Process) error { return app.Run(ctx, p, options) })
}

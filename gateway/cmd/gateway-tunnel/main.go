// Command gateway-tunnel connects the session gateway to the hosted API servers of a management cluster. See package tunnel.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agentapp"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options agentapp.Options
	flags := flag.NewFlagSet("gateway-tunnel", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), options.Process, func(ctx context.Context, p *process.Process) error { return agentapp.Run(ctx, p, options) })
}

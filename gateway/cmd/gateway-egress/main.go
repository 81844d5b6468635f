// Command gateway-egress connects clusters without a way to the internet to permitted hosts, which their private endpoints name in TLS or with CONNECT.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/egress/app"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

func main() {
	var options app.Options
	flags := flag.NewFlagSet("gateway-egress", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("gateway-egress", options.Process, func(ctx context.Context, p *process.Process) error {
		return app.Run(ctx, p, options)
	})
}

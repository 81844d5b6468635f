// Command monitor-inside probes the hosted API servers of one management cluster from inside it, and reports what it sees.
package main

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/insideapp"
)

func main() {
	var options insideapp.Options
	flags := flag.NewFlagSet("monitor-inside", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("monitor-inside", options.Process, func(ctx context.Context, p *process.Process) error {
		return insideapp.Run(ctx, p, options)
	})
}

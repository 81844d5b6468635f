package inside

import (
	"context"
	"flag"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program monitor-inside. It reads the arguments of the process.
func Main() {
	var options Flags
	flags := flag.NewFlagSet("monitor-inside", flag.ExitOnError)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run("monitor-inside", options.Process, func(ctx context.Context, p *process.Process) error {
		return Run(ctx, p, options)
	})
}

package egress

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"sync/atomic"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Main is the program egress-proxy. It reads the arguments of the process.
func Main() {
	flags := flag.NewFlagSet("egress-proxy", flag.ExitOnError)
	var common process.Options
	var options Flags
	common.AddFlags(flags)
	options.AddFlags(flags)
	process.Parse(flags, os.Args[1:], options.Validate)
	process.Run(flags.Name(), common, func(ctx context.Context, p *process.Process) error {
		var serving atomic.Bool
		p.Ready("listeners", func(context.Context) error {
			if !serving.Load() {
				return errors.New("the proxy does not listen yet")
			}
			return nil
		})
		return options.Run(ctx, p.Metrics, p.Log, func([]net.Addr) { serving.Store(true) })
	})
}

// Command hcpctl is the command line of hcpmesh: it runs the local region, and works with clusters and node pools through
// Azure Resource Manager.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	// The first ends what is under way in good order; whoever has no patience for that interrupts again.
	context.AfterFunc(ctx, stop)
	err := command.New(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(display.Safe(os.Stderr), "hcpctl: "+err.Error())
	}
	os.Exit(command.ExitCode(err))
}

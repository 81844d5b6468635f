// Command hcpctl is the command line of hcpmesh: it runs local regions, manages clusters through Azure Resource Manager, and operates
// them through admin.
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
	// The first signal ends the command gracefully; the second one terminates it.
	context.AfterFunc(ctx, stop)
	err := command.New(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(display.Safe(os.Stderr), "hcpctl: "+command.Message(err))
	}
	os.Exit(command.ExitCode(err))
}

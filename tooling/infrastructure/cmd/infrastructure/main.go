// Command infrastructure plans, applies and destroys the infrastructure of a region with OpenTofu.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := command.New()
	root.SetOut(os.Stdout)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "infrastructure: "+err.Error())
		os.Exit(1)
	}
}

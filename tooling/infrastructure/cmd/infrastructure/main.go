// Command infrastructure plans, applies and destroys the infrastructure of a region with OpenTofu. A command works on one scope of one target.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newCommand()
	root.SetOut(os.Stdout)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "infrastructure: "+err.Error())
		os.Exit(1)
	}
}

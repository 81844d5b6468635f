// Command kubernetes-region runs a region on clusters of Kubernetes nodes until it is interrupted. `hcpctl region up --on kubernetes` starts it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var o installation.Options
	flag.StringVar(&o.StateDir, "state-dir", "", "absolute path of the `folder` of the region; required")
	flag.StringVar(&o.SourceDir, "source-dir", "", "absolute path of the `folder` of the checkout; required")
	flag.Parse()
	if o.StateDir == "" || o.SourceDir == "" {
		return errors.New("--state-dir and --source-dir are required")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	region, err := installation.Start(ctx, o, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-region.Down():
	case <-region.Exited():
		err = errors.New("a cluster of the region has ended; its logs were removed with it")
	}
	return errors.Join(err, region.Close())
}

// Package app is the program management-audit: it follows the audit log of a management cluster's API server and records its events.
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

type options struct {
	process      process.Options
	audit        writer.Options
	cluster      string
	logDir       string
	positionFile string
}

// Main is the program management-audit. It reads the arguments of the process.
func Main() {
	var o options
	flags := flag.NewFlagSet("management-audit", flag.ExitOnError)
	o.process.AddFlags(flags)
	o.audit.AddFlags(flags)
	flags.StringVar(&o.cluster, "management-cluster", "", "`name` of the management cluster in audit records")
	flags.StringVar(&o.logDir, "log-dir", "", "`folder` of the API server's audit log, audit.log")
	flags.StringVar(&o.positionFile, "position-file", "", "`file` that has the position in the log, on a disk that survives a restart")
	process.Parse(flags, os.Args[1:], o.validate)
	process.Run("management-audit", o.process, o.run)
}

func (o *options) validate() error {
	for _, required := range []struct{ flag, value string }{
		{"management-cluster", o.cluster}, {"log-dir", o.logDir}, {"position-file", o.positionFile},
	} {
		if required.value == "" {
			return errors.New("--" + required.flag + " is required")
		}
	}
	return o.audit.Validate()
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	recorder, err := o.audit.Recorder(ctx, managementaudit.Service, p.Log, p.Metrics)
	if err != nil {
		return err
	}
	follower, err := managementaudit.New(managementaudit.Options{Cluster: o.cluster, LogDir: o.logDir, PositionFile: o.positionFile,
		QueueDir: o.audit.QueueDir, Recorder: recorder, Metrics: p.Metrics, Log: p.Log})
	if err != nil {
		return fmt.Errorf("--audit-queue-dir: %w", err)
	}
	p.Ready("log", func(context.Context) error {
		if _, err := os.Stat(o.logDir); err != nil {
			return fmt.Errorf("the folder of the audit log: %w", err)
		}
		return nil
	})
	// The writer ends after everything that it records.
	recording, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { recorder.Run(recording) })
	defer group.Wait()
	defer stop()
	return follower.Run(ctx)
}

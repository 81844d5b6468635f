// Package app is the program management-audit: it follows the audit log of a management cluster's API server and records its events.
package app

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"sync"

	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/managementaudit"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

type options struct {
	audit        writer.Options
	cluster      string
	logDir       string
	positionFile string
}

// Main is the program management-audit. It reads the arguments of the process.
func Main() {
	var o options
	process.Main("management-audit", &o, o.run)
}

// AddFlags registers the flags.
func (o *options) AddFlags(flags *flag.FlagSet) {
	o.audit.AddFlags(flags)
	flags.StringVar(&o.cluster, "management-cluster", "", "`name` of the management cluster in audit records")
	flags.StringVar(&o.logDir, "log-dir", "", "`folder` of the API server's audit log, audit.log")
	flags.StringVar(&o.positionFile, "position-file", "", "`file` that has the position in the log, on a disk that survives a restart")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *options) Validate() error {
	return cmp.Or(
		process.Required("management-cluster", o.cluster),
		process.Required("log-dir", o.logDir),
		process.Required("position-file", o.positionFile),
		o.audit.Validate(),
	)
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

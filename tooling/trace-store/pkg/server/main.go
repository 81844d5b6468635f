package server

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

// drainTimeout is the maximum time for running requests after the signal to stop.
const drainTimeout = 5 * time.Second

type options struct {
	listen string
	limits spans.Limits
}

// Main is the program trace-store. It reads the arguments of the process.
func Main() {
	o := options{limits: spans.DefaultLimits()}
	process.Main("trace-store", &o, o.run)
}

// AddFlags registers the flags.
func (o *options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.listen, "listen", "127.0.0.1:4318", "serve OTLP over HTTP and queries on this `address`; clients are not authenticated")
	flags.IntVar(&o.limits.Traces, "max-traces", o.limits.Traces, "`number` of traces to keep; those that changed least recently are forgotten")
	flags.IntVar(&o.limits.Spans, "max-spans", o.limits.Spans, "`number` of spans of all traces to keep")
	flags.IntVar(&o.limits.SpansPerTrace, "max-spans-per-trace", o.limits.SpansPerTrace, "`number` of spans of one trace to keep; later ones are dropped")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *options) Validate() error {
	if o.limits.Traces < 1 || o.limits.SpansPerTrace < 1 || o.limits.Spans < o.limits.SpansPerTrace {
		return errors.New("--max-traces and --max-spans-per-trace must be positive, and --max-spans at least --max-spans-per-trace")
	}
	return nil
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.Ready("listener", func(context.Context) error { return nil })
	p.Log.Info("receiving spans", logkey.Address, listener.Addr().String())
	api := process.NewHTTPServer(process.Calls, New(spans.NewStore(o.limits), p.Metrics), p.Log)
	return process.ServeHTTP(ctx, api, listener, drainTimeout)
}

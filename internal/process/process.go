// Package process contains what all long-running programs of hcpmesh share: start-up, logging, health and readiness, metrics and
// shutdown.
//
// A main function calls Main with the flags and the function of the program. That function receives a Process, for readiness
// checks and metrics, and a context that ends on SIGTERM or SIGINT, after the time in Options.Drain. It must not return before all its goroutines have.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Options are the flags that every process has.
type Options struct {
	// OpsListen is the address of /healthz, /readyz, /version and /metrics, plain HTTP, as host:port. Empty serves none.
	OpsListen string
	// ProfilingSocket is the path of a Unix socket that serves /debug/pprof/. Empty serves none.
	ProfilingSocket string
	// LogLevel is the least severe level that is logged: debug, info, warn or error.
	LogLevel string
	// Drain is the time for which the process serves on, without being ready, after the signal to stop.
	Drain time.Duration
	// DieWithParent makes the kernel kill this process when its parent process terminates for any reason.
	DieWithParent bool
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.OpsListen, "ops-listen", "127.0.0.1:0", "`address` of /healthz, /readyz, /version and /metrics, plain HTTP; empty serves none")
	flags.StringVar(&o.ProfilingSocket, "profiling-socket", "", "`path` of a Unix socket that serves profiles below /debug/pprof/ to the user of the process; empty serves none")
	flags.StringVar(&o.LogLevel, "log-level", "info", "least severe `level` to log: debug, info, warn, error")
	flags.DurationVar(&o.Drain, "drain", 0, "`time` for which the process serves on after SIGTERM, while /readyz fails, so that load balancers stop to use it; a second signal ends it")
	flags.BoolVar(&o.DieWithParent, "die-with-parent", false, "terminate this process when its parent process terminates (Linux only)")
}

// Process gives the parts of a program access to its logger, metrics and readiness checks.
type Process struct {
	// Name is the name of the program, for example "frontend".
	Name string
	// Log writes JSON lines to standard error. Do not log secrets.
	Log *slog.Logger
	// Metrics contains the metrics of /metrics.
	Metrics *prometheus.Registry

	readiness readiness
	drain     *drain
	started   time.Time
}

// New returns a Process that logs to log, for programs that embed a service and for tests. Run creates its own.
func New(name string, log *slog.Logger) *Process {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Process{Name: name, Log: log, Metrics: metrics, started: time.Now().UTC()}
}

// Run runs the program and does not return. The exit code is 0 if run returned nil or the program received a signal, else 1.
func Run(name string, options Options, run func(ctx context.Context, p *Process) error) {
	if err := runUntilSignal(name, options, run); err != nil {
		log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
		log.Error("stopped", logkey.Process, name, logkey.Error, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runUntilSignal(name string, options Options, run func(ctx context.Context, p *Process) error) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(options.LogLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	log = log.With(logkey.Process, name)
	slog.SetDefault(log) // for libraries that use package log
	if options.Drain < 0 {
		return errors.New("--drain: must not be negative")
	}
	if options.DieWithParent {
		if err := dieWithParent(); err != nil {
			return err
		}
	}

	if permitted := ConnectionLimit(maxConnections, 1); permitted < maxConnections {
		log.Warn("the process may open few files; its servers accept fewer connections", logkey.Limit, permitted)
	}
	p := New(name, log)
	p.drain = &drain{period: options.Drain, begun: make(chan struct{})}
	ctx, stop := untilSignal(p.drain, log)
	defer stop()
	if options.OpsListen != "" {
		listener, err := net.Listen("tcp", options.OpsListen)
		if err != nil {
			return fmt.Errorf("--ops-listen: %w", err)
		}
		ops := serveOps(listener, p)
		defer ops.close()
		log.Info("serving health and metrics", logkey.Address, listener.Addr().String())
	}
	if options.ProfilingSocket != "" {
		profiling, err := serveProfiles(options.ProfilingSocket, p.Log)
		if err != nil {
			return fmt.Errorf("--profiling-socket: %w", err)
		}
		defer profiling.close()
		log.Info("serving profiles", logkey.Address, options.ProfilingSocket)
	}
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

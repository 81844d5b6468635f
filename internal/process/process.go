// Package process is what every long-running program of hcpmesh shares: one way to start, to log, to say whether it is
// alive and ready, to expose metrics, and to end.
//
// A main parses its flags, then calls Run with the function that does the work. Run gives that function a Process, to
// which it registers readiness checks and metrics, and a context that ends on SIGTERM or SIGINT. It must not return
// before all its goroutines have.
package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Options are the flags that every process has.
type Options struct {
	// OpsListen is the address of /healthz, /readyz, /metrics and /debug/pprof/, plain HTTP, as host:port. Empty serves none.
	OpsListen string
	// LogLevel is the least severe level that is logged: debug, info, warn or error.
	LogLevel string
	// DieWithParent has the kernel kill this process when the one that started it is gone, however that ended.
	DieWithParent bool
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.OpsListen, "ops-listen", "127.0.0.1:0", "`address` of /healthz, /readyz, /metrics and /debug/pprof/, plain HTTP; empty serves none")
	flags.StringVar(&o.LogLevel, "log-level", "info", "least severe `level` to log: debug, info, warn, error")
	flags.BoolVar(&o.DieWithParent, "die-with-parent", false, "have the kernel kill this process when its parent is gone")
}

// Parse parses args, without the program's name, and refuses what is left over. It ends the program on a bad flag and on
// -h, as flag.ExitOnError does; validate may be nil.
func Parse(flags *flag.FlagSet, args []string, validate func() error) {
	flags.Init(flags.Name(), flag.ExitOnError)
	_ = flags.Parse(args)
	err := error(nil)
	if flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	} else if validate != nil {
		err = validate()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", flags.Name(), err)
		os.Exit(2)
	}
}

// Required returns an error that names the first flag of names whose value is empty.
func Required(flags *flag.FlagSet, names ...string) error {
	for _, name := range names {
		if flags.Lookup(name).Value.String() == "" {
			return fmt.Errorf("--%s is required", name)
		}
	}
	return nil
}

// Process is the running program, as its parts see it.
type Process struct {
	// Name is the program's name, as in `frontend`.
	Name string
	// Log writes JSON lines to standard error. Never give it a secret.
	Log *slog.Logger
	// Metrics holds what /metrics shows.
	Metrics *prometheus.Registry

	readiness readiness
	started   time.Time
}

// New makes a Process that logs to log, for programs that embed a service and for tests. Run makes its own.
func New(name string, log *slog.Logger) *Process {
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Process{Name: name, Log: log, Metrics: metrics, started: time.Now().UTC()}
}

// Run runs the program and does not return: it exits with 0 when run returned nil or the program was asked to stop, and
// with 1 otherwise.
func Run(name string, options Options, run func(ctx context.Context, p *Process) error) {
	if err := runUntilSignal(name, options, run); err != nil {
		slog.Error("stopped", "process", name, "error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runUntilSignal(name string, options Options, run func(ctx context.Context, p *Process) error) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(options.LogLevel)); err != nil {
		return fmt.Errorf("--log-level: %w", err)
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("process", name)
	slog.SetDefault(log)
	if options.DieWithParent {
		if err := dieWithParent(); err != nil {
			return err
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	p := New(name, log)
	if options.OpsListen != "" {
		listener, err := net.Listen("tcp", options.OpsListen)
		if err != nil {
			return fmt.Errorf("--ops-listen: %w", err)
		}
		ops := serveOps(listener, p)
		defer ops.close()
		log.Info("serving health and metrics", "address", listener.Addr().String())
	}
	err := run(ctx, p)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

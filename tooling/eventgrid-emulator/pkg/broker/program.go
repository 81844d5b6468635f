package broker

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// program has the flags of the program.
type program struct {
	Listen       string
	IdentityDir  string
	SourceID     string
	MaxSessions  int
	EnableFaults bool
	FaultsListen string
	Audit        writer.Options
}

// AddFlags registers the options with flags.
func (o *program) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8883", "`address` of MQTT over TLS")
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt; ca.crt also verifies the clients")
	flags.StringVar(&o.SourceID, "source-id", "maestro", "the Maestro server's `name` in topics")
	flags.IntVar(&o.MaxSessions, "max-sessions", 1000, "maximum `number` of sessions")
	flags.BoolVar(&o.EnableFaults, "enable-faults", false, "serve fault injection on --faults-listen, for tests")
	o.Audit.AddFlags(flags)
	flags.StringVar(&o.FaultsListen, "faults-listen", "127.0.0.1:0", "`address` of fault injection, plain HTTP")
}

// Validate returns an error that names the first missing or invalid flag. The flags of the audit are optional, but they need each other:
// Azure has its own audit of Event Grid.
func (o *program) Validate() error {
	if err := process.Required("identity-dir", o.IdentityDir); err != nil || !o.Audit.Enabled() {
		return err
	}
	return o.Audit.Validate()
}

// Main is the program eventgrid-emulator. It reads the arguments of the process.
func Main() {
	var options program
	process.Main("eventgrid-emulator", &options, options.Run)
}

// Run serves until ctx ends.
func (o *program) Run(ctx context.Context, p *process.Process) error {
	identity, err := LoadIdentity(o.IdentityDir)
	if err != nil {
		return fmt.Errorf("--identity-dir: %w", err)
	}
	p.Metrics.MustRegister(identity.Collector())
	var refused func(context.Context, mesh.Refusal)
	if o.Audit.Enabled() {
		records, stop, err := refusals.Start(ctx, &o.Audit, string(mesh.EventGridEmulator), p.Log, p.Metrics)
		if err != nil {
			return err
		}
		// The audit ends after the last client.
		defer stop()
		refused = records.Call
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	b, err := Start(listener, Options{
		TLS: identity.TLS(), Source: o.SourceID, MaxSessions: o.MaxSessions, Refused: refused, Log: p.Log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	p.Log.Info("serving MQTT", logkey.Address, b.Addr())
	// The broker has no dependencies: when the listener is open, it is ready.
	p.Ready("listener", func(context.Context) error { return nil })
	registerMetrics(p.Metrics, b)
	if o.EnableFaults {
		stop, err := serveFaults(o.FaultsListen, b, p)
		if err != nil {
			return errors.Join(err, b.Close())
		}
		defer stop()
	}
	return b.Run(ctx)
}

// registerMetrics registers the broker's counters as gauges.
func registerMetrics(metrics *prometheus.Registry, b *Broker) {
	gauge := func(options prometheus.GaugeOpts, value func(Stats) int64) {
		metrics.MustRegister(prometheus.NewGaugeFunc(options, func() float64 { return float64(value(b.Stats())) }))
	}
	gauge(prometheus.GaugeOpts{Name: "mqtt_sessions", Help: "Number of sessions, connected or not."}, func(s Stats) int64 { return s.Sessions })
	gauge(prometheus.GaugeOpts{Name: "mqtt_messages_received", Help: "Number of messages received since the start."}, func(s Stats) int64 { return s.Received })
	gauge(prometheus.GaugeOpts{Name: "mqtt_messages_sent", Help: "Number of messages sent since the start."}, func(s Stats) int64 { return s.Sent })
	gauge(prometheus.GaugeOpts{Name: "mqtt_refused", Help: "Number of rejected connections, topics and retained messages since the start."}, func(s Stats) int64 { return s.Rejected })
	gauge(prometheus.GaugeOpts{Name: "mqtt_overflowed", Help: "Number of sessions closed since the start because their queue was full."}, func(s Stats) int64 { return s.Overflowed })
}

// serveFaults serves fault injection. POST /faults/drop?client=NAME drops the connections of a client, or of all clients
// without a name. POST /faults/poison?text=TEXT drops the connection of each client that publishes a message with the text;
// an empty text disables that.
func serveFaults(address string, b *Broker, p *process.Process) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--faults-listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults/drop", func(w http.ResponseWriter, r *http.Request) {
		client := r.URL.Query().Get("client")
		dropped := b.DropConnections(client)
		p.Log.Warn("connections dropped by fault injection", logkey.Client, client, logkey.Count, dropped)
		fmt.Fprintf(w, "%d\n", dropped)
	})
	mux.HandleFunc("POST /faults/poison", func(w http.ResponseWriter, r *http.Request) {
		b.RejectPayload(r.URL.Query().Get("text"))
		w.WriteHeader(http.StatusNoContent)
	})
	server := process.NewHTTPServer(process.Calls, mux, p.Log)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	p.Log.Warn("serving fault injection", logkey.Address, listener.Addr().String())
	return func() { _ = server.Close(); <-done }, nil
}

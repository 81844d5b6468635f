// Command eventgrid-emulator is an MQTT 5 broker with the rules of Azure Event Grid's, for a region on one machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/broker"
)

type options struct {
	process          process.Options
	listen, identity string
	source, server   string
	maxSessions      int
	faults           bool
	faultsListen     string
}

func main() {
	var o options
	flags := flag.NewFlagSet("eventgrid-emulator", flag.ExitOnError)
	o.process.AddFlags(flags)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8883", "`address` of MQTT over TLS")
	flags.StringVar(&o.identity, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt; ca.crt also verifies the clients")
	flags.StringVar(&o.source, "source-id", "maestro", "the Maestro server's `name` in topics")
	flags.StringVar(&o.server, "server-name", maestroapi.ServerName, "DNS `name` in the Maestro server's client certificate")
	flags.IntVar(&o.maxSessions, "max-sessions", 1000, "at most so many sessions")
	flags.BoolVar(&o.faults, "enable-faults", false, "serve fault injection on --faults-listen; for tests")
	flags.StringVar(&o.faultsListen, "faults-listen", "127.0.0.1:0", "`address` of fault injection, plain HTTP")
	process.Parse(flags, os.Args[1:], func() error { return process.Required(flags, "identity-dir") })
	process.Run("eventgrid-emulator", o.process, o.run)
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	config, err := broker.ServerTLS(o.identity)
	if err != nil {
		return fmt.Errorf("--identity-dir: %w", err)
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	b, err := broker.Start(listener, broker.Options{
		TLS: config, Permit: broker.MaestroTopics(o.source, o.server), MaxSessions: o.maxSessions, Log: p.Log,
	})
	if err != nil {
		listener.Close()
		return err
	}
	p.Log.Info("serving MQTT", "address", b.Addr())
	// Whoever can read this can connect: the listener is open, and there is nothing else to wait for.
	p.Ready("listener", func(context.Context) error { return nil })
	register(p.Metrics, b)
	if o.faults {
		stop, err := serveFaults(o.faultsListen, b, p)
		if err != nil {
			return err
		}
		defer stop()
	}
	return b.Run(ctx)
}

func register(metrics *prometheus.Registry, b *broker.Broker) {
	gauge := func(name, help string, value func(broker.Stats) int64) {
		metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "mqtt", Name: name, Help: help},
			func() float64 { return float64(value(b.Stats())) }))
	}
	gauge("sessions", "Sessions, connected or not.", func(s broker.Stats) int64 { return s.Sessions })
	gauge("messages_received", "Messages received since the start.", func(s broker.Stats) int64 { return s.Received })
	gauge("messages_sent", "Messages sent since the start.", func(s broker.Stats) int64 { return s.Sent })
	gauge("refused", "Connections and topics refused since the start.", func(s broker.Stats) int64 { return s.Refused })
	gauge("overflowed", "Sessions ended because their queue was full.", func(s broker.Stats) int64 { return s.Overflowed })
}

// serveFaults serves POST /faults/drop?client=NAME, which cuts a client's connections, or everybody's without a name; and
// POST /faults/poison?text=TEXT, which cuts whoever publishes a message that contains the text, until it is empty.
func serveFaults(address string, b *broker.Broker, p *process.Process) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--faults-listen: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /faults/drop", func(w http.ResponseWriter, r *http.Request) {
		n := b.Drop(r.URL.Query().Get("client"))
		p.Log.Warn("connections dropped by fault injection", "client", r.URL.Query().Get("client"), "count", n)
		fmt.Fprintf(w, "%d\n", n)
	})
	mux.HandleFunc("POST /faults/poison", func(w http.ResponseWriter, r *http.Request) {
		b.Poison(r.URL.Query().Get("text"))
		w.WriteHeader(http.StatusNoContent)
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	p.Log.Warn("serving fault injection", "address", listener.Addr().String())
	return func() { _ = server.Close(); <-done }, nil
}

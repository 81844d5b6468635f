// Package service is the emulator as a program: it reads the key, listens, serves until it is told to stop, and
// reports health and metrics. Everything the protocol is about lives in package emulator.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// Options are the program's flags.
type Options struct {
	Listen       string
	AddressFile  string
	DataDir      string
	KeyFile      string
	WellKnownKey bool
	TLSCert      string
	TLSKey       string
	Endpoint     string
	Region       string
	Gateway      string

	ServeCrossPartition bool
	EnableFaults        bool
	FaultSeed           uint64
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8081", "`address` to serve on; port 0 takes a free one")
	flags.StringVar(&o.AddressFile, "address-file", "", "`file` to write the address to once it is served")
	flags.StringVar(&o.DataDir, "data-dir", "", "`folder` for the data")
	flags.StringVar(&o.KeyFile, "key-file", "", "`file` with the master key in base64")
	flags.BoolVar(&o.WellKnownKey, "well-known-key", false, "use the key that every Cosmos DB emulator has instead of a file; it protects nothing")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "`file` with the certificate chain in PEM; plain HTTP without one")
	flags.StringVar(&o.TLSKey, "tls-key", "", "`file` with the certificate's key in PEM")
	flags.StringVar(&o.Endpoint, "endpoint", "", "account `URL` as clients see it; that under which a request came when empty")
	flags.StringVar(&o.Region, "region", "", "`name` of the account's region (default South Central US)")
	flags.StringVar(&o.Gateway, "gateway", string(emulator.ComputeGateway), "which gateway's reading of URLs to imitate: `compute` takes every id, routing has the old gateway's quirks")
	flags.BoolVar(&o.ServeCrossPartition, "serve-cross-partition", false, "run ORDER BY, aggregates and the like over all partitions instead of refusing them as the service's gateway does")
	flags.BoolVar(&o.EnableFaults, "enable-faults", false, "open /_emulator/faults and /_emulator/split, without authentication, for tests")
	flags.Uint64Var(&o.FaultSeed, "fault-seed", 1, "`seed` of the faults' probabilities")
}

// Validate names the first flag that is missing or contradicts another.
func (o *Options) Validate() error {
	switch {
	case o.DataDir == "":
		return errors.New("--data-dir is required")
	case o.KeyFile == "" && !o.WellKnownKey:
		return errors.New("--key-file is required, or --well-known-key to go without a secret")
	case o.KeyFile != "" && o.WellKnownKey:
		return errors.New("--key-file and --well-known-key exclude each other")
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key go together")
	case o.Gateway != string(emulator.ComputeGateway) && o.Gateway != string(emulator.RoutingGateway):
		return fmt.Errorf("--gateway %s: it must be %s or %s", o.Gateway, emulator.ComputeGateway, emulator.RoutingGateway)
	}
	return nil
}

const (
	// headerTimeout bounds how long a client may take to send a request's headers.
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// drainTimeout bounds how long requests may still run once the program is told to stop.
	drainTimeout = 5 * time.Second
	// The collector's pace: what lives is a few megabytes, for the documents are in the file.
	gcPercent   = 800
	memoryLimit = 512 << 20
)

// Run serves until ctx ends.
func (o *Options) Run(ctx context.Context, p *process.Process) error {
	process.PaceCollector(gcPercent, memoryLimit)
	key := emulator.WellKnownKey
	if o.KeyFile != "" {
		b, err := os.ReadFile(o.KeyFile)
		if err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		key = strings.TrimSpace(string(b))
	}
	server, err := emulator.Open(emulator.Options{
		DataDir: o.DataDir, Key: key, Endpoint: o.Endpoint, Region: o.Region, Gateway: emulator.Gateway(o.Gateway),
		ServeCrossPartition: o.ServeCrossPartition, EnableFaults: o.EnableFaults, FaultSeed: o.FaultSeed, Logger: p.Log,
	})
	if err != nil {
		return err
	}
	server.Observe = observe(p.Metrics, server)
	p.Ready("store", func(context.Context) error { return server.Healthy() })
	return errors.Join(o.serve(ctx, p, server), server.Close())
}

func (o *Options) serve(ctx context.Context, p *process.Process, server *emulator.Server) error {
	scheme := "http"
	h := &http.Server{Handler: server, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug)}
	if o.TLSCert != "" {
		scheme = "https"
		cert, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		h.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if o.AddressFile != "" {
		if err := process.WriteAddress(o.AddressFile, listener); err != nil {
			return errors.Join(fmt.Errorf("--address-file: %w", err), listener.Close())
		}
	}
	p.Log.Info("serving Cosmos DB", "address", listener.Addr().String(), "scheme", scheme, "faults", o.EnableFaults)
	return process.ServeHTTP(ctx, h, listener, drainTimeout)
}

// observe registers the metrics and returns what feeds them. Labels take their values from small fixed sets.
func observe(metrics *prometheus.Registry, server *emulator.Server) func(resourceType, operation string, status int, took time.Duration) {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cosmos_emulator_request_seconds", Help: "Time to answer a request.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
	}, []string{"resource", "operation", "code"})
	groups := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cosmos_emulator_commits_total", Help: "Transactions committed with an fsync.",
	}, func() float64 { return float64(server.Stats().Groups) })
	ops := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cosmos_emulator_committed_writes_total", Help: "Write requests that these transactions carried.",
	}, func() float64 { return float64(server.Stats().Ops) })
	metrics.MustRegister(requests, groups, ops)
	resources := map[string]bool{"": true, "dbs": true, "colls": true, "docs": true, "pkranges": true, "offers": true}
	return func(resource, operation string, status int, took time.Duration) {
		if !resources[resource] {
			resource = "other"
		}
		requests.WithLabelValues(resource, operation, strconv.Itoa(status)).Observe(took.Seconds())
	}
}

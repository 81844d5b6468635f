// Package service is the emulator as a program: it reads its files, listens over TLS, serves until it is told to stop, and
// reports health and metrics. What Azure is like lives in package emulator and below.
package service

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/token"
)

// Options are the program's flags.
type Options struct {
	Listen          string
	AddressFile     string
	DataDir         string
	TLSCert         string
	TLSKey          string
	Authority       string
	AuthorityCA     string
	Tenant          string
	SeedFile        string
	Location        string
	OperationDelay  time.Duration
	CertificateLife time.Duration
	AssumeCustomers bool
	EnableFaults    bool
	FaultSeed       uint64
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:10443", "`address` to serve on; port 0 takes a free one")
	flags.StringVar(&o.AddressFile, "address-file", "", "`file` to write the address to once it is served")
	flags.StringVar(&o.DataDir, "data-dir", "", "`folder` for the data")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "`file` with the certificate chain in PEM")
	flags.StringVar(&o.TLSKey, "tls-key", "", "`file` with the certificate's key in PEM")
	flags.StringVar(&o.Authority, "authority", "", "`URL` of the authority that issues the callers' tokens, below which its tenants are")
	flags.StringVar(&o.AuthorityCA, "authority-ca-file", "", "`file` with the certificates that the authority's is verified with; the system's when empty")
	flags.StringVar(&o.Tenant, "tenant", "", "`id` of the tenant that the vault is in, which callers without a token are sent to")
	flags.StringVar(&o.SeedFile, "seed-file", "", "JSON `file` of what is there from the start")
	flags.StringVar(&o.Location, "location", "westus3", "Azure `location` of what is assumed")
	flags.DurationVar(&o.OperationDelay, "operation-delay", 0, "how long operations take that are long in Azure; 0 has them done at once")
	flags.DurationVar(&o.CertificateLife, "certificate-life", 0, "how long the vault's certificates live; 0 is what their policy says")
	flags.BoolVar(&o.AssumeCustomers, "assume-customers", false, "have networks and identities, with the roles they need, be there when they are first asked for, as if a customer had made them")
	flags.BoolVar(&o.EnableFaults, "enable-faults", false, "open /_emulator/faults and /_emulator/leftovers, without authentication, for tests")
	flags.Uint64Var(&o.FaultSeed, "fault-seed", 1, "`seed` of the faults' probabilities")
}

// Validate names the first flag that is missing or wrong.
func (o *Options) Validate() error {
	for _, required := range [][2]string{{"data-dir", o.DataDir}, {"tls-cert", o.TLSCert}, {"tls-key", o.TLSKey}, {"authority", o.Authority}} {
		if required[1] == "" {
			return fmt.Errorf("--%s is required", required[0])
		}
	}
	if u, err := url.Parse(o.Authority); err != nil || u.Host == "" {
		return fmt.Errorf("--authority: %q is not a URL", o.Authority)
	}
	if o.OperationDelay < 0 {
		return errors.New("--operation-delay must not be negative")
	}
	if o.CertificateLife < 0 {
		return errors.New("--certificate-life must not be negative")
	}
	return nil
}

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// drainTimeout bounds how long requests may still run once the program is told to stop.
	drainTimeout = 5 * time.Second
)

// Run serves until ctx ends.
func (o *Options) Run(ctx context.Context, p *process.Process) error {
	var seed emulator.Seed
	var err error
	if o.SeedFile != "" {
		if seed, err = emulator.ReadSeed(o.SeedFile); err != nil {
			return fmt.Errorf("--seed-file: %w", err)
		}
	}
	client, err := o.authorityClient()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	opened, err := emulator.Open(emulator.Options{
		DataDir: o.DataDir, Tokens: &token.Verifier{Authority: o.Authority, Client: client}, Tenant: o.Tenant, OperationDelay: o.OperationDelay,
		CertificateLife: o.CertificateLife, AssumeCustomers: o.AssumeCustomers, Location: o.Location, Seed: seed, EnableFaults: o.EnableFaults, FaultSeed: o.FaultSeed,
	})
	if err != nil {
		return err
	}
	opened.Observe = observe(p.Metrics)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { opened.Run(ctx) })
	err = o.serve(ctx, p, opened)
	cancel()
	group.Wait()
	return errors.Join(err, opened.Close())
}

func (o *Options) authorityClient() (*http.Client, error) {
	if o.AuthorityCA == "" {
		return http.DefaultClient, nil
	}
	text, err := os.ReadFile(o.AuthorityCA)
	if err != nil {
		return nil, fmt.Errorf("--authority-ca-file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--authority-ca-file: %s holds no certificate", o.AuthorityCA)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport}, nil
}

func (o *Options) serve(ctx context.Context, p *process.Process, handler http.Handler) error {
	pair, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return fmt.Errorf("--tls-cert and --tls-key: %w", err)
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
	p.Log.Info("serving Azure", "address", listener.Addr().String(), "faults", o.EnableFaults, "assume_customers", o.AssumeCustomers)
	server := &http.Server{Handler: handler, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug)}
	return process.ServeHTTP(ctx, server, listener, drainTimeout)
}

// observe registers the metrics and returns what feeds them.
func observe(metrics *prometheus.Registry) func(service, method string, status int, took time.Duration) {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "azure_emulator_request_seconds", Help: "Time to answer a request.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
	}, []string{"service", "method", "code"})
	metrics.MustRegister(requests)
	methods := map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodPut: true, http.MethodPost: true, http.MethodPatch: true, http.MethodDelete: true}
	return func(service, method string, status int, took time.Duration) {
		if !methods[method] {
			method = "other"
		}
		requests.WithLabelValues(service, method, strconv.Itoa(status)).Observe(took.Seconds())
	}
}

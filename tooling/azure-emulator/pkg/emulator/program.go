package emulator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// program has the flags of the program.
type program struct {
	Listen              string
	AddressFile         string
	DataDir             string
	TLSCert             string
	TLSKey              string
	Authority           string
	AuthorityCA         string
	Tenant              string
	SeedFile            string
	Location            string
	OperationDelay      time.Duration
	CertificateLifetime time.Duration
	AssumeCustomers     bool
	EnableFaults        bool
	FaultSeed           uint64
}

// AddFlags registers the options with flags.
func (o *program) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:10443", "`address` to listen on; port 0 selects a free one")
	flags.StringVar(&o.AddressFile, "address-file", "", "`file` to which the address is written when the server listens")
	flags.StringVar(&o.DataDir, "data-dir", "", "`folder` for the data")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "`file` with the certificate chain in PEM")
	flags.StringVar(&o.TLSKey, "tls-key", "", "`file` with the certificate's key in PEM")
	flags.StringVar(&o.Authority, "authority", "", "base `URL` of the tenants of the authority that issues the callers' tokens")
	flags.StringVar(&o.AuthorityCA, "authority-ca-file", "", "`file` with the certificate authorities for the authority's certificate (default: those of the system)")
	flags.StringVar(&o.Tenant, "tenant", "", "`ID` of the tenant in challenges to callers without a token")
	flags.StringVar(&o.SeedFile, "seed-file", "", "JSON `file` with the resources that exist from the start")
	flags.StringVar(&o.Location, "location", "westus3", "Azure `location` of assumed resources")
	flags.DurationVar(&o.OperationDelay, "operation-delay", 0, "duration of operations that take long in Azure; 0 completes them at once")
	flags.DurationVar(&o.CertificateLifetime, "certificate-lifetime", 0, "validity period of the vault's certificates; 0 uses that of their policy")
	flags.BoolVar(&o.AssumeCustomers, "assume-customers", false, "create networks, network security groups and identities, with the roles that they need, when they are first requested")
	flags.BoolVar(&o.EnableFaults, "enable-faults", false, "enable /_emulator/faults and /_emulator/leftovers, without authentication, for tests")
	flags.Uint64Var(&o.FaultSeed, "fault-seed", 1, "`seed` of the probabilities of faults")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *program) Validate() error {
	u, err := url.Parse(o.Authority)
	return cmp.Or(
		process.Required("data-dir", o.DataDir),
		process.Required("tls-cert", o.TLSCert),
		process.Required("tls-key", o.TLSKey),
		process.Required("authority", o.Authority),
		process.ErrorIf(err != nil || u.Host == "", "--authority: %q is not a URL", o.Authority),
		process.AtLeast("operation-delay", o.OperationDelay, 0),
		process.AtLeast("certificate-lifetime", o.CertificateLifetime, 0),
	)
}

// Main is the program azure-emulator. It reads the arguments of the process.
func Main() {
	var options program
	process.Main("azure-emulator", &options, options.Run)
}

// drainTimeout bounds the requests that are in progress when the program stops.
const drainTimeout = 5 * time.Second

// Run serves until ctx ends.
func (o *program) Run(ctx context.Context, p *process.Process) error {
	var seed Seed
	var err error
	if o.SeedFile != "" {
		if seed, err = ReadSeed(o.SeedFile); err != nil {
			return fmt.Errorf("--seed-file: %w", err)
		}
	}
	client, err := certfile.NewClient(o.AuthorityCA, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return fmt.Errorf("--authority-ca-file: %w", err)
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	azure, err := Open(Options{
		DataDir: o.DataDir, Tokens: &entra.Verifier{Authority: o.Authority, Client: client}, Tenant: o.Tenant, OperationDelay: o.OperationDelay,
		CertificateLifetime: o.CertificateLifetime, AssumeCustomers: o.AssumeCustomers, Location: o.Location, Seed: seed, EnableFaults: o.EnableFaults, FaultSeed: o.FaultSeed, Log: p.Log,
	})
	if err != nil {
		return err
	}
	azure.Observe = registerMetrics(p.Metrics)
	p.Ready("store", azure.Healthy)
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { azure.Run(ctx) })
	err = o.serve(ctx, p, azure)
	cancel()
	group.Wait()
	return errors.Join(err, azure.Close())
}

// serve serves handler over TLS until ctx ends.
func (o *program) serve(ctx context.Context, p *process.Process, handler http.Handler) error {
	config, err := certfile.ListenerConfig(o.TLSCert, o.TLSKey, p.Metrics)
	if err != nil {
		return err
	}
	listener, err := process.Listen(o.Listen, o.AddressFile)
	if err != nil {
		return err
	}
	p.Log.Info("serving Azure", logkey.Address, listener.Addr().String())
	if o.EnableFaults {
		p.Log.Warn("fault injection is enabled; its endpoints have no authentication", logkey.Path, "/_emulator/")
	}
	server := process.NewHTTPServer(process.Files, handler, p.Log)
	server.TLSConfig = config
	return process.ServeHTTP(ctx, server, listener, drainTimeout)
}

// registerMetrics registers the metrics and returns the function that records a request.
func registerMetrics(metrics *prometheus.Registry) func(service, method string, status int, took time.Duration) {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "azure_emulator_request_seconds", Help: "Latency of requests in seconds.",
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

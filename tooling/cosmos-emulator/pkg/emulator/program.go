package emulator

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
)

// program has the flags of the program.
type program struct {
	Listen       string
	AddressFile  string
	DataDir      string
	KeyFile      string
	WellKnownKey bool
	AccountFile  string
	Authority    string
	AuthorityCA  string
	TLSCert      string
	TLSKey       string
	Region       string
	EnableFaults bool
	FaultSeed    uint64
}

// AddFlags registers the options with flags.
func (o *program) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8081", "`address` to listen on; port 0 selects a free one")
	flags.StringVar(&o.AddressFile, "address-file", "", "`file` to which the address is written when the server listens")
	flags.StringVar(&o.DataDir, "data-dir", "", "`folder` for the data")
	flags.StringVar(&o.KeyFile, "key-file", "", "`file` with the master key in base64")
	flags.BoolVar(&o.WellKnownKey, "well-known-key", false, "use the public key of all Cosmos DB emulators, which protects nothing, instead of a file")
	flags.StringVar(&o.AccountFile, "account-file", "", "JSON `file` with the databases, containers, role definitions and role assignments of the account")
	flags.StringVar(&o.Authority, "authority", "", "base `URL` of the tenants of the token authority; without it only the master key is accepted")
	flags.StringVar(&o.AuthorityCA, "authority-ca-file", "", "`file` with the PEM certificates to trust for --authority (default: those of the system)")
	flags.StringVar(&o.TLSCert, "tls-cert", "", "`file` with the certificate chain in PEM; without it the server uses plain HTTP")
	flags.StringVar(&o.TLSKey, "tls-key", "", "`file` with the certificate's key in PEM")
	flags.StringVar(&o.Region, "region", "", "`name` of the account's region (default South Central US)")
	flags.BoolVar(&o.EnableFaults, "enable-faults", false, "enable /_emulator/faults and /_emulator/split, without authentication, for tests")
	flags.Uint64Var(&o.FaultSeed, "fault-seed", 1, "`seed` of the probabilities of faults")
}

// Validate returns an error that names the first missing or contradictory flag.
func (o *program) Validate() error {
	return cmp.Or(
		process.Required("data-dir", o.DataDir),
		process.ErrorIf(o.KeyFile == "" && !o.WellKnownKey && o.Authority == "", "--authority, --key-file or --well-known-key is required"),
		process.ErrorIf(o.KeyFile != "" && o.WellKnownKey, "--key-file and --well-known-key are mutually exclusive"),
		process.ErrorIf(o.Authority != "" && o.AccountFile == "", "--account-file is required with --authority: only its role assignments allow requests"),
		process.ErrorIf((o.TLSCert == "") != (o.TLSKey == ""), "--tls-cert and --tls-key require each other"),
	)
}

// Main is the program cosmos-emulator. It reads the arguments of the process.
func Main() {
	var options program
	process.Main("cosmos-emulator", &options, options.Run)
}

const (
	// shutdownTimeout bounds the requests that are in progress when the program stops.
	shutdownTimeout = 5 * time.Second
	// The settings of the garbage collector: the live heap is a few megabytes, because documents are in the file.
	gcPercent   = 800
	memoryLimit = 512 << 20
)

// Run serves until ctx ends.
func (o *program) Run(ctx context.Context, p *process.Process) error {
	process.PaceCollector(gcPercent, memoryLimit)
	key := ""
	if o.WellKnownKey {
		key = WellKnownKey
	}
	if o.KeyFile != "" {
		b, err := os.ReadFile(o.KeyFile)
		if err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		key = strings.TrimSpace(string(b))
	}
	content, tokens, err := o.account()
	if err != nil {
		return err
	}
	server, err := Open(Options{
		DataDir: o.DataDir, Key: key, Account: content, Tokens: tokens, Region: o.Region, EnableFaults: o.EnableFaults, FaultSeed: o.FaultSeed, Logger: p.Log,
	})
	if err != nil {
		return err
	}
	server.Observe = registerMetrics(p.Metrics, server)
	p.Ready("store", server.Healthy)
	return errors.Join(o.serve(ctx, p, server), server.Close())
}

// account returns the content of the account and the verifier of tokens, which is nil without an authority.
func (o *program) account() (account.Account, *entra.Verifier, error) {
	if o.AccountFile == "" {
		return account.Account{}, nil, nil
	}
	content, err := account.Read(o.AccountFile)
	if err != nil {
		return account.Account{}, nil, fmt.Errorf("--account-file: %w", err)
	}
	if o.Authority == "" {
		return *content, nil, nil
	}
	if content.Tenant == "" {
		return account.Account{}, nil, errors.New("--account-file: tenant is required with --authority")
	}
	client, err := certfile.NewClient(o.AuthorityCA, http.DefaultTransport.(*http.Transport).Clone())
	if err != nil {
		return account.Account{}, nil, fmt.Errorf("--authority-ca-file: %w", err)
	}
	return *content, &entra.Verifier{Authority: o.Authority, Tenant: content.Tenant, Client: client}, nil
}

// serve serves the emulator until ctx ends.
func (o *program) serve(ctx context.Context, p *process.Process, server *Server) error {
	config, err := certfile.ListenerConfig(o.TLSCert, o.TLSKey, p.Metrics)
	if err != nil {
		return err
	}
	scheme := "http"
	if config != nil {
		scheme = "https"
	}
	h := process.NewHTTPServer(process.Streams, server, p.Log)
	h.TLSConfig = config
	listener, err := process.Listen(o.Listen, o.AddressFile)
	if err != nil {
		return err
	}
	p.Log.Info("serving Cosmos DB", logkey.URL, scheme+"://"+listener.Addr().String())
	if o.EnableFaults {
		p.Log.Warn("fault injection is enabled; its endpoints have no authentication", logkey.Path, "/_emulator/")
	}
	return process.ServeHTTP(ctx, h, listener, shutdownTimeout)
}

// registerMetrics registers the metrics and returns the function that records a request. The values of labels are
// bounded.
func registerMetrics(metrics *prometheus.Registry, server *Server) func(resourceType, operation string, status int, took time.Duration) {
	requests := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "cosmos_emulator_request_seconds", Help: "Latency of requests in seconds.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .5, 1, 5},
	}, []string{"resource", "operation", "code"})
	commits := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cosmos_emulator_commits_total", Help: "Number of transactions committed with an fsync.",
	}, func() float64 { return float64(server.Stats().Commits) })
	writes := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "cosmos_emulator_committed_writes_total", Help: "Number of write requests in committed transactions.",
	}, func() float64 { return float64(server.Stats().Writes) })
	metrics.MustRegister(requests, commits, writes)
	resources := map[string]bool{"": true, "dbs": true, "colls": true, "docs": true, "pkranges": true}
	return func(resource, operation string, status int, took time.Duration) {
		if !resources[resource] {
			resource = "other"
		}
		requests.WithLabelValues(resource, operation, strconv.Itoa(status)).Observe(took.Seconds())
	}
}

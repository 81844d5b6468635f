package frontdoor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/tickets"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// shutdownTimeout bounds the requests that are in progress when the program stops.
const shutdownTimeout = 5 * time.Second

// program has the flags of the program.
type program struct {
	Listen             string
	PublicURL          string
	IdentityDir        string
	FrontendAddress    string
	StateDir           string
	ClientsFile        string
	ServiceClientsFile string
	ARMClientFile      string
	ProviderAudience   string
	EngineersFile      string
	AdminAudience      string
	Location           string
	APIVersions        string
	Limits             string
	WorkloadsFile      string
	WorkloadIssuer     string
	WorkloadKeyFile    string
	StoreAudience      string
	TicketTokenFile    string
	ClosedTicketsFile  string
}

// AddFlags registers the options with flags.
func (o *program) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "listen", "", "`address` of the ARM API over TLS, as host:port")
	flags.StringVar(&o.PublicURL, "public-url", "", "`URL` of the ARM API for callers (default https://<listen>)")
	flags.StringVar(&o.IdentityDir, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt")
	flags.StringVar(&o.FrontendAddress, "frontend-address", "", "`address` of the frontend, as host:port")
	flags.StringVar(&o.StateDir, "state-dir", "", "`folder` for the subscriptions and the signing key of tokens")
	flags.StringVar(&o.ClientsFile, "clients-file", "", "JSON `file` with the clients that may request tokens")
	flags.StringVar(&o.ServiceClientsFile, "service-clients-file", "", "JSON `file` with the region's services, which may request tokens as well")
	flags.StringVar(&o.WorkloadsFile, "workload-clients-file", "", "JSON `file` with the clients that are workloads")
	flags.StringVar(&o.WorkloadIssuer, "workload-issuer", "", "`issuer` of the tokens with which services authenticate (workload identity); without it only secrets are accepted")
	flags.StringVar(&o.WorkloadKeyFile, "workload-issuer-key-file", "", "PEM `file` with the public key of --workload-issuer")
	flags.StringVar(&o.StoreAudience, "store-audience", "", "`audience` of the services' tokens for the Cosmos DB account: its URL without a port")
	flags.StringVar(&o.ARMClientFile, "own-client-file", "", "JSON `file` with the one client that identifies ARM to the resource provider (default: requests to the provider have no token)")
	flags.StringVar(&o.ProviderAudience, "provider-audience", "", "`audience` of tokens for the resource provider; required with --own-client-file")
	flags.StringVar(&o.EngineersFile, "engineers-file", "", "JSON `file` with the clients of SREs, who may request tokens for --admin-audience only")
	flags.StringVar(&o.AdminAudience, "admin-audience", "", "`audience` of the SREs' tokens; required with --engineers-file")
	flags.StringVar(&o.TicketTokenFile, "ticket-token-file", "", "`file` with the bearer token of callers of the ticket validator; without it there is no ticket validator")
	flags.StringVar(&o.ClosedTicketsFile, "closed-tickets-file", "", "`file` with the IDs of closed tickets, one in each line; required with --ticket-token-file")
	flags.StringVar(&o.Location, "location", "westus3", "Azure `location` of the emulated region")
	flags.StringVar(&o.APIVersions, "api-versions", "2026-09-01-preview,2026-06-30-preview,2025-12-23-preview,2024-06-10-preview", "comma-separated api-`versions` of the resource provider, the preferred one first")
	flags.StringVar(&o.Limits, "limits", "", "rate limits, as `KIND=SIZE:PER_SECOND,…`: reads, writes and deletes of a subscription, tenant-reads and tenant-writes of a principal, anonymous of a peer; Azure has reads=250:25,writes=200:10,deletes=200:10")
}

// Validate returns an error that names the first missing flag.
func (o *program) Validate() error {
	return cmp.Or(
		process.Required("listen", o.Listen),
		process.Required("identity-dir", o.IdentityDir),
		process.Required("frontend-address", o.FrontendAddress),
		process.Required("state-dir", o.StateDir),
		process.Required("clients-file", o.ClientsFile),
		process.ErrorIf((o.WorkloadIssuer == "") != (o.WorkloadKeyFile == ""), "--workload-issuer and --workload-issuer-key-file require each other"),
		process.ErrorIf(o.ARMClientFile != "" && o.ProviderAudience == "", "--provider-audience is required with --own-client-file"),
		process.ErrorIf(o.TicketTokenFile != "" && o.ClosedTicketsFile == "", "--closed-tickets-file is required with --ticket-token-file"),
		process.ErrorIf(o.EngineersFile != "" && o.AdminAudience == "", "--admin-audience is required with --engineers-file"),
	)
}

// Main is the program arm-frontdoor. It reads the arguments of the process.
func Main() {
	var options program
	process.Main("arm-frontdoor", &options, options.Run)
}

// Run serves until ctx ends.
func (o *program) Run(ctx context.Context, p *process.Process) error {
	identity, err := mesh.LoadIdentity(o.IdentityDir)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(identity.Collectors()...)
	if o.PublicURL == "" {
		o.PublicURL = "https://" + o.Listen
	}
	armClient, err := o.armClient()
	if err != nil {
		return err
	}
	clients, audiences, err := o.clients(armClient)
	if err != nil {
		return err
	}
	issuer, err := token.NewIssuer(o.PublicURL, o.StateDir, clients, audiences...)
	if err != nil {
		return err
	}
	if o.WorkloadIssuer != "" {
		if issuer.Workloads, err = token.OpenFederation(o.WorkloadIssuer, o.WorkloadKeyFile); err != nil {
			return fmt.Errorf("--workload-issuer-key-file: %w", err)
		}
	}
	limits, err := ParseRateLimits(o.Limits)
	if err != nil {
		return fmt.Errorf("--limits: %w", err)
	}
	subscriptions, err := OpenDirectory(filepath.Join(o.StateDir, "subscriptions.json"))
	if err != nil {
		return err
	}
	handler, err := New(Options{
		PublicURL: o.PublicURL, Location: o.Location, APIVersions: strings.Split(o.APIVersions, ","),
		Frontend: o.FrontendAddress, FrontendTLS: identity.ClientTLS(mesh.Frontend),
		Tokens: issuer, ARMClient: armClient, ProviderAudience: o.ProviderAudience, Directory: subscriptions, Limits: limits, Log: p.Log, Metrics: p.Metrics,
	})
	if err != nil {
		return err
	}
	defer handler.Close()
	p.Ready("frontend", responds(o.FrontendAddress, identity.ClientTLS(mesh.Frontend)))

	served, err := o.withTickets(handler)
	if err != nil {
		return err
	}

	// Callers of ARM have tokens and no certificates.
	tlsConfig := identity.ServerTLS()
	tlsConfig.ClientAuth, tlsConfig.VerifyConnection = tls.NoClientCert, nil
	tlsConfig.MinVersion = tls.VersionTLS12
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := process.NewHTTPServer(process.Calls, served, p.Log)
	server.TLSConfig, server.DisableGeneralOptionsHandler = tlsConfig, true
	p.Log.Info("serving ARM", logkey.URL, o.PublicURL)
	return process.ServeHTTP(ctx, server, listener, shutdownTimeout)
}

// withTickets returns the handler with the ticket validator, if there is one.
func (o *program) withTickets(handler http.Handler) (http.Handler, error) {
	if o.TicketTokenFile == "" {
		return handler, nil
	}
	text, err := os.ReadFile(o.TicketTokenFile)
	if err != nil {
		return nil, fmt.Errorf("--ticket-token-file: %w", err)
	}
	validator := &tickets.Server{PublicURL: o.PublicURL, Token: strings.TrimSpace(string(text)), ClosedFile: o.ClosedTicketsFile}
	if validator.Token == "" {
		return nil, fmt.Errorf("--ticket-token-file: %s is empty", o.TicketTokenFile)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tickets.Path {
			validator.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	}), nil
}

// clients returns all clients of the token issuer, and the audiences of their tokens besides those of Azure.
func (o *program) clients(armClient *token.Client) (clients []token.Client, audiences []string, err error) {
	if clients, err = token.ReadClients(o.ClientsFile); err != nil {
		return nil, nil, err
	}
	if o.ServiceClientsFile != "" {
		services, err := token.ReadClients(o.ServiceClientsFile)
		if err != nil {
			return nil, nil, err
		}
		clients = append(clients, services...)
	}
	if o.WorkloadsFile != "" {
		services, err := token.ReadClients(o.WorkloadsFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--workload-clients-file: %w", err)
		}
		clients = append(clients, services...)
	}
	if armClient != nil {
		clients, audiences = append(clients, *armClient), []string{o.ProviderAudience}
	}
	if o.StoreAudience != "" {
		audiences = append(audiences, o.StoreAudience)
	}
	if o.EngineersFile != "" {
		engineers, err := token.ReadClients(o.EngineersFile)
		if err != nil {
			return nil, nil, fmt.Errorf("--engineers-file: %w", err)
		}
		for _, engineer := range engineers {
			engineer.Audiences = []string{o.AdminAudience}
			clients = append(clients, engineer)
		}
		audiences = append(audiences, o.AdminAudience)
	}
	return clients, audiences, nil
}

// armClient returns the client that identifies ARM to the resource provider, or nil if none is configured.
func (o *program) armClient() (*token.Client, error) {
	if o.ARMClientFile == "" {
		return nil, nil
	}
	clients, err := token.ReadClients(o.ARMClientFile)
	if err != nil {
		return nil, fmt.Errorf("--own-client-file: %w", err)
	}
	if len(clients) != 1 {
		return nil, fmt.Errorf("--own-client-file: %s contains %d clients, want one", o.ARMClientFile, len(clients))
	}
	return &clients[0], nil
}

// responds returns a check that the frontend at address responds to a request. It does not ask whether the frontend is ready, because
// the frontend waits for the front door's keys. The kernel accepts connections for a hung frontend, so a connection is not enough.
func responds(address string, tlsConfig *tls.Config) process.Check {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("the frontend does not respond: %w", ctx.Err())
			}
			return errors.New("the frontend cannot be reached")
		}
		return response.Body.Close()
	}
}

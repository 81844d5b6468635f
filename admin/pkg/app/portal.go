package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/admin/pkg/live"
	"github.com/hcpmesh/hcpmesh/admin/pkg/portal"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// PortalOptions are the flags of the SRE portal. Without Listen there is none.
type PortalOptions struct {
	// Listen is the address of the portal, host:port, and URL its URL for browsers.
	Listen, URL string
	// Issuer signs people in, and ClientID is the application of the portal. Empty Issuer and Scope follow from the options of the
	// authentication.
	Issuer, ClientID, Scope string
	// CAFile contains the authorities that verify the issuer's certificate; empty means those of the authentication.
	CAFile string
	// Region is the name of the region in headings.
	Region string
}

// AddFlags registers the options with flags.
func (o *PortalOptions) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Listen, "portal-listen", "", "`address` of the SRE portal, which uses TLS unless --sidecar-identity is set (default: no portal)")
	flags.StringVar(&o.URL, "portal-url", "", "`URL` of the SRE portal for browsers, https without a path; required with --portal-listen")
	flags.StringVar(&o.Issuer, "portal-issuer", "", "`URL` of the issuer with which engineers sign in to the portal (default: --authentication-issuer)")
	flags.StringVar(&o.ClientID, "portal-client-id", "", "client `ID` of the portal's application, which has a federated credential for the workload identity of admin; required with --portal-listen")
	flags.StringVar(&o.Scope, "portal-scope", "", "`scope` of the access tokens of engineers (default: --authentication-audience followed by /.default)")
	flags.StringVar(&o.CAFile, "portal-issuer-ca-file", "", "`file` with the certificate authorities for the certificate of --portal-issuer (default: --authentication-ca-file)")
	flags.StringVar(&o.Region, "portal-region", "", "`name` of the region in the headings of the portal (default: --environment)")
}

// validate returns an error for the first missing or invalid flag.
func (o *PortalOptions) validate(authentication authn.Options) error {
	if o.Listen == "" {
		for _, set := range []struct{ flag, value string }{
			{"portal-url", o.URL}, {"portal-issuer", o.Issuer}, {"portal-client-id", o.ClientID}, {"portal-scope", o.Scope},
		} {
			if set.value != "" {
				return fmt.Errorf("--%s requires --portal-listen", set.flag)
			}
		}
		return nil
	}
	return cmp.Or(
		process.Required("portal-url", o.URL),
		process.Required("portal-client-id", o.ClientID),
		process.Required("portal-issuer", cmp.Or(o.Issuer, authentication.Issuer)),
		process.Required("portal-scope", cmp.Or(o.Scope, authentication.Audience)),
		process.Named("portal-url", portal.CheckURL(o.URL)),
	)
}

// portalServer is the server of the portal and its listener.
type portalServer struct {
	http     *http.Server
	listener net.Listener
}

// portal returns the server of the portal, or nil if there is none.
func (o *Options) portal(api http.Handler, db *database.DB, changes *live.Changes, transport mesh.Transport, log *slog.Logger, metrics prometheus.Registerer) (*portalServer, error) {
	if o.Portal.Listen == "" {
		return nil, nil
	}
	assertion := os.Getenv("AZURE_FEDERATED_TOKEN_FILE")
	if assertion == "" {
		return nil, errors.New("--portal-listen: AZURE_FEDERATED_TOKEN_FILE is not set: the portal authenticates to the issuer with a workload identity")
	}
	issuer := authn.Options{CAFile: cmp.Or(o.Portal.CAFile, o.Authentication.CAFile)}
	client, err := issuer.IssuerClient()
	if err != nil {
		return nil, fmt.Errorf("--portal-issuer-ca-file: %w", err)
	}
	verifier, err := authn.NewIDTokenVerifier(authn.IDTokenOptions{Issuer: cmp.Or(o.Portal.Issuer, o.Authentication.Issuer), ClientID: o.Portal.ClientID, Client: client})
	if err != nil {
		return nil, fmt.Errorf("--portal-issuer: %w", err)
	}
	pages, err := portal.New(portal.Options{
		API: api, URL: o.Portal.URL, Region: cmp.Or(o.Portal.Region, o.Environment), Log: log, Metrics: metrics, Now: time.Now,
		Sessions: &portal.Sessions{Database: db, Now: time.Now}, Changes: changes,
		Provider: &portal.Provider{Verifier: verifier, Client: client, ClientID: o.Portal.ClientID, Scope: cmp.Or(o.Portal.Scope, o.Authentication.Audience+"/.default"),
			AssertionFile: assertion, RedirectURL: o.Portal.URL + "/signed-in", Now: time.Now},
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.Portal.Listen)
	if err != nil {
		return nil, fmt.Errorf("--portal-listen: %w", err)
	}
	server := process.NewHTTPServer(process.Calls, transport.PublicHandler(pages), log)
	server.RegisterOnShutdown(changes.Hub.Release)
	return &portalServer{listener: listener, http: server}, nil
}

package authn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// The values of Options.Mode.
const (
	modeSidecar = "sidecar"
	modeToken   = "token"
	modeOff     = "off"
)

// Options configure how a service authenticates the callers of its requests.
type Options struct {
	// Mode is sidecar, token or off. It has no default, so that authentication is never disabled by omission.
	Mode string
	// CheckURL is the URL of the sidecar's check endpoint.
	CheckURL string
	// Issuer, Audience and ClientIDs (separated by commas) are those of accepted tokens.
	Issuer    string
	Audience  string
	ClientIDs string
	// CAFile contains the authorities that verify the issuer's certificate; "" means those of the system.
	CAFile string
	// Claims lists further claims that the sidecar must return, set by services that need them. It is not a flag.
	Claims []string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Mode, "authentication", "", "`mode` of authentication: sidecar (a MISE sidecar checks each request), token (verify tokens of --authentication-issuer) or off")
	flags.StringVar(&o.CheckURL, "authentication-check-url", "", "`URL` of the sidecar's check endpoint, for example http://127.0.0.1:5000/ValidateRequest")
	flags.StringVar(&o.Issuer, "authentication-issuer", "", "`URL` of the token issuer; its OpenID configuration is at /.well-known/openid-configuration")
	flags.StringVar(&o.Audience, "authentication-audience", "", "`audience` of accepted tokens")
	flags.StringVar(&o.ClientIDs, "authentication-client-ids", "", "comma-separated client `IDs` of the allowed applications")
	flags.StringVar(&o.CAFile, "authentication-ca-file", "", "`file` with the certificate authorities for the issuer's certificate (default: those of the system)")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	switch o.Mode {
	case modeOff:
		return nil
	case modeSidecar:
		return process.Required("authentication-check-url", o.CheckURL)
	case modeToken:
		u, err := url.Parse(o.Issuer)
		return cmp.Or(
			process.Required("authentication-issuer", o.Issuer),
			process.Required("authentication-audience", o.Audience),
			process.Required("authentication-client-ids", o.ClientIDs),
			process.ErrorIf(err != nil || u.Scheme != "https" || u.Host == "", "--authentication-issuer: must be an https URL"),
		)
	case "":
		return errors.New("--authentication is required: sidecar, token or off")
	}
	return fmt.Errorf("--authentication: %q is not sidecar, token or off", o.Mode)
}

// issuerTimeout bounds one request to the issuer.
const issuerTimeout = 3 * time.Second

// Authenticator returns the configured Authenticator, or nil if authentication is off. The caller must execute run until
// the Authenticator is no longer used.
func (o *Options) Authenticator(log *slog.Logger, metrics prometheus.Registerer) (authenticator Authenticator, run func(ctx context.Context), err error) {
	noRun := func(context.Context) {}
	switch o.Mode {
	case modeSidecar:
		sidecar, err := NewSidecar(o.CheckURL, o.Claims...)
		if err != nil {
			return nil, nil, fmt.Errorf("--authentication-check-url: %w", err)
		}
		return sidecar, noRun, nil
	case modeToken:
		client, err := o.IssuerClient()
		if err != nil {
			return nil, nil, fmt.Errorf("--authentication-ca-file: %w", err)
		}
		tokens := NewTokenVerifier(TokenOptions{Issuer: o.Issuer, Audience: o.Audience, ClientIDs: strings.Split(o.ClientIDs, ","), Client: client, Log: log, Metrics: metrics})
		return tokens, tokens.Run, nil
	}
	log.Warn("requests are not authenticated: every client of the listener is trusted")
	return nil, noRun, nil
}

// IssuerClient returns the HTTP client for the documents of the issuer.
func (o *Options) IssuerClient() (*http.Client, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, Proxy: http.ProxyFromEnvironment}
	if o.CAFile != "" {
		transport.Proxy = nil
	}
	client, err := certfile.NewClient(o.CAFile, transport)
	if err != nil {
		return nil, err
	}
	client.Timeout = issuerTimeout
	return client, nil
}

package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// The ways in which requests are authenticated.
const (
	authenticateBySidecar = "sidecar"
	authenticateByToken   = "token"
	authenticateNot       = "off"
)

// Options are the flags that say who decides in whose name a request comes.
type Options struct {
	// Mode is sidecar, token or off. There is no default: that nobody is asked for a token is said, not forgotten.
	Mode string
	// CheckURL is the check endpoint of the sidecar.
	CheckURL string
	// Issuer, Audience and ClientIDs (separated by commas) are of the tokens that count, and CAFile what the issuer's
	// certificate is verified with; empty takes the system's authorities.
	Issuer    string
	Audience  string
	ClientIDs string
	CAFile    string
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Mode, "authentication", "", "who decides in whose name a request comes: `MODE` sidecar asks a MISE sidecar, token verifies tokens of --authentication-issuer, off asks nobody")
	flags.StringVar(&o.CheckURL, "authentication-check-url", "", "`URL` of the sidecar's check endpoint, as in http://127.0.0.1:5000/ValidateRequest")
	flags.StringVar(&o.Issuer, "authentication-issuer", "", "`URL` of the issuer of tokens, below which its OpenID configuration is")
	flags.StringVar(&o.Audience, "authentication-audience", "", "`audience` that tokens must be for")
	flags.StringVar(&o.ClientIDs, "authentication-client-ids", "", "comma-separated `ids` of the applications that may call")
	flags.StringVar(&o.CAFile, "authentication-ca-file", "", "`file` with the authorities that the issuer's certificate is verified with; empty takes the system's")
}

// Validate names the first flag that is missing or wrong.
func (o *Options) Validate() error {
	required := map[string]string{}
	switch o.Mode {
	case authenticateNot:
	case authenticateBySidecar:
		required["authentication-check-url"] = o.CheckURL
	case authenticateByToken:
		required["authentication-issuer"] = o.Issuer
		required["authentication-audience"] = o.Audience
		required["authentication-client-ids"] = o.ClientIDs
	case "":
		return errors.New("--authentication is required: sidecar, token or off")
	default:
		return fmt.Errorf("--authentication: %q is not sidecar, token or off", o.Mode)
	}
	for _, name := range []string{"authentication-check-url", "authentication-issuer", "authentication-audience", "authentication-client-ids"} {
		if value, needed := required[name]; needed && value == "" {
			return fmt.Errorf("--%s is required with --authentication %s", name, o.Mode)
		}
	}
	if o.Mode == authenticateByToken {
		if u, err := url.Parse(o.Issuer); err != nil || u.Scheme != "https" || u.Host == "" {
			return errors.New("--authentication-issuer: an https URL is needed")
		}
	}
	return nil
}

// issuerTimeout bounds one reading of a document of the issuer.
const issuerTimeout = 3 * time.Second

// Authenticator is who decides; nil when nobody does. keepFresh must run as long as it is used.
func (o *Options) Authenticator(log *slog.Logger) (decides Authenticator, keepFresh func(ctx context.Context), err error) {
	nothing := func(context.Context) {}
	switch o.Mode {
	case authenticateBySidecar:
		sidecar, err := NewSidecar(o.CheckURL)
		if err != nil {
			return nil, nil, fmt.Errorf("--authentication-check-url: %w", err)
		}
		return sidecar, nothing, nil
	case authenticateByToken:
		client, err := o.issuerClient()
		if err != nil {
			return nil, nil, fmt.Errorf("--authentication-ca-file: %w", err)
		}
		tokens := NewTokens(TokenOptions{Issuer: o.Issuer, Audience: o.Audience, ClientIDs: strings.Split(o.ClientIDs, ","), Client: client})
		return tokens, tokens.Run, nil
	}
	log.Warn("requests are not authenticated: whoever the listener lets in is believed")
	return nil, nothing, nil
}

func (o *Options) issuerClient() (*http.Client, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, Proxy: http.ProxyFromEnvironment}
	if o.CAFile != "" {
		content, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, err
		}
		authorities := x509.NewCertPool()
		if !authorities.AppendCertsFromPEM(content) {
			return nil, fmt.Errorf("%s holds no certificate", o.CAFile)
		}
		transport.TLSClientConfig.RootCAs, transport.Proxy = authorities, nil
	}
	return &http.Client{Transport: transport, Timeout: issuerTimeout}, nil
}

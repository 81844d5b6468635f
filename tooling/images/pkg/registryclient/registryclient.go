// Package registryclient has the settings of programs that send requests to a registry: TLS, credentials and limits of time. A Pusher copies built
// images with their attached documents from an image layout to a registry, which shows an image only when it has all of its layers.
package registryclient

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Options are the settings for one registry.
type Options struct {
	// PlainHTTP permits HTTP, and excludes credentials.
	PlainHTTP bool
	// Authorities is a file with the certificate authorities that sign the registry's certificate; empty means the system's.
	Authorities string
	// Credentials is a file in the format of Docker's config.json, with auths by host name.
	Credentials string
	// Dial connects to the registry; nil means over the network of the process. A registry inside other network namespaces needs it.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Prefix precedes the names of flags in errors: PREFIXplain-http, PREFIXca-file and PREFIXcredentials.
	Prefix string
}

// Name returns the options to parse the names of the registry's repositories.
func (o *Options) Name() []name.Option {
	if o.PlainHTTP {
		return []name.Option{name.StrictValidation, name.Insecure}
	}
	return []name.Option{name.StrictValidation}
}

// Remote returns the options of requests. An error names the flag.
func (o *Options) Remote() ([]remote.Option, error) {
	if o.PlainHTTP && (o.Credentials != "" || o.Authorities != "") {
		return nil, fmt.Errorf("-%splain-http: excludes -%scredentials and -%sca-file", o.Prefix, o.Prefix, o.Prefix)
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		IdleConnTimeout:       90 * time.Second,
		MaxIdleConnsPerHost:   16,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:     true,
	}
	if o.Dial != nil {
		transport.Proxy, transport.DialContext = nil, o.Dial
	}
	if o.Authorities != "" {
		authorities, err := certfile.LoadRoots(o.Authorities)
		if err != nil {
			return nil, fmt.Errorf("-%sca-file: %w", o.Prefix, err)
		}
		transport.TLSClientConfig.RootCAs = authorities.Pool()
	}
	options := []remote.Option{remote.WithTransport(schemes{plain: o.PlainHTTP, next: transport})}
	if o.Credentials == "" {
		return options, nil
	}
	keychain, err := load(o.Credentials)
	if err != nil {
		return nil, fmt.Errorf("-%scredentials: %w", o.Prefix, err)
	}
	return append(options, remote.WithAuthFromKeychain(keychain)), nil
}

// schemes refuses requests without TLS unless they are permitted. The client library would use HTTP for registries on this machine and in
// private networks that do not respond to HTTPS.
type schemes struct {
	plain bool
	next  http.RoundTripper
}

func (s schemes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !s.plain {
		return nil, fmt.Errorf("request to %s: HTTP is not permitted", r.URL.Host)
	}
	return s.next.RoundTrip(r)
}

// keychain has credentials by host name.
type keychain map[string]authn.AuthConfig

func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	if config, ok := k[target.RegistryStr()]; ok {
		return authn.FromConfig(config), nil
	}
	return authn.Anonymous, nil
}

// load reads credentials. The error does not contain them.
func load(file string) (keychain, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var config struct {
		Auths keychain `json:"auths"`
	}
	if json.Unmarshal(text, &config) != nil {
		return nil, errors.New(file + " is not in the format of Docker's config.json")
	}
	if len(config.Auths) == 0 {
		return nil, errors.New(file + ": auths: there is none; helpers are not supported")
	}
	return config.Auths, nil
}

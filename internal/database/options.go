package database

import (
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/hcpmesh/hcpmesh/internal/certfile"
)

// Options configure the connection to Cosmos DB.
type Options struct {
	// Endpoint is the account's URL, for example https://localhost:8081.
	Endpoint string
	// Credential gets the tokens of requests; nil means the workload identity of this process.
	Credential azcore.TokenCredential
	// Key is the account's key in base64, in place of a credential. It is for tests with an emulator: services have no key.
	Key string
	// CAFile holds the PEM certificates to trust for the endpoint and for the issuer of the workload identity's tokens; empty trusts
	// the system's certificates.
	CAFile string
	// MaxConnections bounds the connections to the endpoint; 0 means 64.
	MaxConnections int
	// RequestTimeout bounds one attempt of one request; 0 means 10 s.
	RequestTimeout time.Duration
	// RetryBudget bounds how long one call is retried while Cosmos DB throttles, is unavailable or the outcome is
	// unknown; 0 means 15 s. The caller's context bounds it, too.
	RetryBudget time.Duration
	// Transport replaces the HTTP client of the options above, for tests that inject faults.
	Transport http.RoundTripper
}

// AddFlags registers the flags of the options.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Endpoint, "cosmos-endpoint", "", "`URL` of the Cosmos DB account, for example https://localhost:8081")
	flags.StringVar(&o.CAFile, "cosmos-ca-file", "", "`file` with the PEM certificates to trust for --cosmos-endpoint and for the token issuer of the workload identity; empty trusts the system's certificates")
	flags.IntVar(&o.MaxConnections, "cosmos-max-connections", 64, "maximum `number` of connections to Cosmos DB, 1 to 1024")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "https" && endpoint.Scheme != "http") {
		return fmt.Errorf("--cosmos-endpoint: %q is not an https URL", o.Endpoint)
	}
	if o.MaxConnections < 0 || o.MaxConnections > 1024 {
		return fmt.Errorf("--cosmos-max-connections: %d is not 1 to 1024", o.MaxConnections)
	}
	return nil
}

func (o *Options) complete() error {
	if err := o.Validate(); err != nil {
		return err
	}
	roots, err := o.trust()
	if err != nil {
		return err
	}
	if o.Key == "" && o.Credential == nil {
		if o.Credential, err = workloadCredential(roots); err != nil {
			return err
		}
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 64
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	if o.RetryBudget == 0 {
		o.RetryBudget = 15 * time.Second
	}
	if o.Transport != nil {
		return nil
	}
	o.Transport = trusting(roots, o.newTransport())
	return nil
}

// trust returns the authorities to trust for the endpoint and for the token issuer; nil means those of the system.
func (o *Options) trust() (*certfile.Roots, error) {
	if o.CAFile == "" {
		return nil, nil
	}
	roots, err := certfile.LoadRoots(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("--cosmos-ca-file: %w", err)
	}
	return roots, nil
}

// trusting returns a transport that trusts the authorities.
func trusting(roots *certfile.Roots, transport *http.Transport) http.RoundTripper {
	if roots == nil {
		return transport
	}
	return roots.Transport(transport)
}

// newTransport returns a pool of HTTP/1.1 connections. Over a local network it carries more small requests than one
// HTTP/2 connection, and requests delay each other less.
func (o *Options) newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 3 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		TLSHandshakeTimeout:   5 * time.Second,
		MaxIdleConns:          o.MaxConnections,
		MaxIdleConnsPerHost:   o.MaxConnections,
		MaxConnsPerHost:       o.MaxConnections,
		IdleConnTimeout:       90 * time.Second,
		ResponseHeaderTimeout: o.RequestTimeout,
		Protocols:             http1(),
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       16 << 10,
	}
}

func http1() *http.Protocols {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return protocols
}

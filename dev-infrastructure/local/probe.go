package local

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"

	"github.com/hcpmesh/hcpmesh/internal/process"
)

// httpReady returns a probe that succeeds if a GET of the URL returns 200. tlsConfig returns the TLS configuration for
// a probe, and may be nil.
func httpReady(url string, tlsConfig func() (*tls.Config, error)) func(ctx context.Context) error {
	return httpProbe(url, tlsConfig, func(response *http.Response) error {
		if response.StatusCode == http.StatusOK {
			return nil
		}
		body, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10))
		if _, reason := process.ParseNotReady(body); reason != "" {
			return errors.New(reason)
		}
		return fmt.Errorf("responds with status %d", response.StatusCode)
	})
}

// httpLive returns a probe that succeeds if a GET of the URL returns a response with any status. A process that reports a failed
// dependency responds; restarting it would not help.
func httpLive(url string, tlsConfig func() (*tls.Config, error)) func(ctx context.Context) error {
	return httpProbe(url, tlsConfig, func(*http.Response) error { return nil })
}

// httpProbe returns a probe that sends a GET of the URL and returns what check returns for the response.
func httpProbe(url string, tlsConfig func() (*tls.Config, error), check func(*http.Response) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		// One connection per probe: probes are rare, and a probe must not use a connection of a previous process.
		transport := &http.Transport{DisableKeepAlives: true}
		if tlsConfig != nil {
			var err error
			if transport.TLSClientConfig, err = tlsConfig(); err != nil {
				return err
			}
		}
		client := &http.Client{Transport: transport}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return unreachable(err)
		}
		defer response.Body.Close()
		return check(response)
	}
}

// unreachable returns the reason why a request of a probe got no response.
func unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("does not accept connections")
	}
	return errors.New("does not respond")
}

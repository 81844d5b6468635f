package local

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
)

// httpReady returns a probe that succeeds if a GET of the URL returns 200. tlsConfig may be nil.
func httpReady(url string, tlsConfig *tls.Config) func(ctx context.Context) error {
	// One connection per probe: probes are rare, and a probe must not use a connection of a previous process.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return unreachable(err)
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, 16<<10))
		if response.StatusCode == http.StatusOK {
			return nil
		}
		return errors.New(notReady(response.StatusCode, body))
	}
}

// httpLive returns a probe that succeeds if a GET of the URL returns a response with any status. A process that reports a failed
// dependency responds; restarting it would not help.
func httpLive(url string, tlsConfig *tls.Config) func(ctx context.Context) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return unreachable(err)
		}
		return response.Body.Close()
	}
}

// unreachable returns the reason why a request of a probe got no response.
func unreachable(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errors.New("does not accept connections")
	}
	return errors.New("does not respond")
}

// notReady returns one line with the reason in a response of /readyz: ours is JSON (process.Readiness), Kubernetes' has
// one line per check.
func notReady(status int, body []byte) string {
	var ours struct {
		NotReady map[string]string `json:"notReady"`
	}
	if json.Unmarshal(body, &ours) == nil && len(ours.NotReady) > 0 {
		var parts []string
		for dependency, reason := range ours.NotReady {
			parts = append(parts, dependency+": "+reason)
		}
		slices.Sort(parts)
		return strings.Join(parts, "; ")
	}
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "[-]") {
			return strings.TrimSpace(strings.TrimPrefix(line, "[-]"))
		}
	}
	return fmt.Sprintf("responds with status %d", status)
}

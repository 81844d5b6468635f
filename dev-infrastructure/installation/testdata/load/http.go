package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
)

// httpCall makes a call over a client.
type httpCall func(context.Context, *http.Client) error

// bothWays returns two calls: one on connections that it keeps, and one on a new connection for each request.
func bothWays(kind string, ports *usedPorts, config func() *tls.Config, newCall func() httpCall) map[string]call {
	kept, first, second := &http.Client{Transport: &http.Transport{TLSClientConfig: config(), DialContext: ports.dial}}, newCall(), newCall()
	return map[string]call{
		kind: func(ctx context.Context) error { return first(ctx, kept) },
		kind + " on a new connection": func(ctx context.Context) error {
			return second(ctx, &http.Client{Transport: &http.Transport{TLSClientConfig: config(), DialContext: ports.dial, DisableKeepAlives: true}})
		},
	}
}

// request sends a request and returns the body of the response. Another status than the wanted one is an error.
func request(ctx context.Context, on *http.Client, method, url string, header http.Header, body []byte, want int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	response, err := on.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s: %s", response.Status, text)
	}
	return text, err
}

package action

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
)

// The pauses between the attempts of a check that waits for its success.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 5 * time.Second
)

// until calls check until it succeeds or the context ends. The error names the last failure.
func until(ctx context.Context, check func(context.Context) error) error {
	pauses := backoff.New(firstPause, lastPause)
	var last error
	for {
		if err := check(ctx); err == nil {
			return nil
		} else if ctx.Err() == nil || last == nil {
			last = err // not the error of a request that the end of ctx cut
		}
		if err := pauses.Wait(ctx); err != nil {
			return fmt.Errorf("%w: %w", last, err)
		}
	}
}

// HTTP waits until a GET request returns a status.
type HTTP struct{ Client *http.Client }

type httpParameters struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
}

// Run waits for the status.
func (h HTTP) Run(ctx context.Context, r Request) (map[string]string, error) {
	var with httpParameters
	if err := Decode(r, &with); err != nil {
		return nil, err
	}
	return nil, until(ctx, func(ctx context.Context) error { return h.expect(ctx, with.URL, with.Status) })
}

func (h HTTP) expect(ctx context.Context, url string, status int) error {
	response, err := h.get(ctx, url)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
	if response.StatusCode != status {
		return &Error{ClassOfStatus(response.StatusCode), fmt.Errorf("GET %s returned %s; expected %d", url, response.Status, status)}
	}
	return nil
}

func (h HTTP) get(ctx context.Context, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := h.Client.Do(request)
	if err != nil {
		return nil, &Error{Unavailable, err}
	}
	return response, nil
}

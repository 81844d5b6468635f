package install

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestNoRequestAfterTheEnd checks that a transport whose context has ended sends nothing. Otherwise Helm could still record an interrupted
// revision as failed.
func TestNoRequestAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sent := 0
	transport := bound{ctx, roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{Body: http.NoBody}, nil
	})}
	for range 100 {
		body := &closed{Reader: strings.NewReader("{}")}
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, "https://cluster.example/", body))(t)
		if _, err := transport.RoundTrip(request); !errors.Is(err, context.Canceled) || !body.closed {
			t.Fatalf("got %v, body closed: %t", err, body.closed)
		}
	}
	if sent != 0 {
		t.Errorf("%d requests were sent", sent)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// closed notices that it is closed.
type closed struct {
	*strings.Reader
	closed bool
}

func (c *closed) Close() error {
	c.closed = true
	return nil
}

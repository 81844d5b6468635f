package database

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// hungTransport never responds.
type hungTransport struct{}

func (hungTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestFirstRequestEndsWithItsContext checks that a process which starts while Cosmos DB hangs does not wait longer than the caller:
// azcosmos reads the account first, without the caller's cancellation.
func TestFirstRequestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := must.Get(Open(t.Context(), Options{Endpoint: "https://cosmos.invalid", Key: "a2V5", Transport: hungTransport{}}))(t)
		defer db.Close()
		key := must.Get(ResourceKey("/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c"))(t)
		for name, call := range map[string]func(context.Context) error{
			"ping": db.Ping,
			"read": func(ctx context.Context) error { _, err := db.Clusters().Find(ctx, key); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			began := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %s, want the error of the context after a second", name, err, time.Since(began))
			}
			cancel()
		}
	})
}

// endingTransport is an account that responds to the properties of itself and its database, until it refuses all connections.
type endingTransport struct{ refuses atomic.Bool }

func (e *endingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.refuses.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	const location = `[{"name": "westus3", "databaseAccountEndpoint": "https://cosmos.invalid"}]`
	body := `{"id": "account", "writableLocations": ` + location + `, "readableLocations": ` + location + `, "userConsistencyPolicy": {"defaultConsistencyLevel": "Strong"}}`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestPingNamesRefusedConnection checks that a refused connection can be distinguished from a store that does not respond, also if the
// time of the question ends while azcosmos waits to repeat the request.
func TestPingNamesRefusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport := &endingTransport{}
		db := must.Get(Open(t.Context(), Options{Endpoint: "https://cosmos.invalid", Key: "a2V5", Transport: transport}))(t)
		defer db.Close()
		must.Do(t, db.Ping(t.Context()))
		transport.refuses.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := db.Ping(ctx); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("got %v, want a refused connection", err)
		}
	})
}

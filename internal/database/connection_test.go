package database

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
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
		db, err := Open(t.Context(), Options{Endpoint: "https://cosmos.invalid", Key: "a2V5", Transport: hungTransport{}})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		key, err := ResourceKey("/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c")
		if err != nil {
			t.Fatal(err)
		}
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

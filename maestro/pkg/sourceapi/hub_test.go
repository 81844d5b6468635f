package sourceapi

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/resource"
)

func page(from, size int) []*resource.Resource {
	var resources []*resource.Resource
	for i := range size {
		id := fmt.Sprint(from + i)
		resources = append(resources, &resource.Resource{ID: id, Source: "s", Consumer: "c", Status: &resource.Status{ResourceID: id}})
	}
	return resources
}

// TestLargeResyncDisconnectsNoSubscriber: a source with more resources than queueLimit requested all its statuses and was
// disconnected for not keeping up with the response, each time.
func TestLargeResyncDisconnectsNoSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, pageSize = 2*queueLimit + 500, 500
		h := NewHub(nil, "self", time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		subscription := h.Subscribe("s", "")
		defer subscription.Close()
		go func() {
			for from := 0; from < all; from += pageSize {
				h.Resend(t.Context(), page(from, pageSize))
			}
		}()
		// The subscriber begins when the resync waits for it.
		synctest.Wait()
		got := map[string]bool{}
		for len(got) < all {
			<-subscription.Ready()
			taken := must.Get(subscription.Take(100))(t)
			for _, r := range taken {
				got[r.ID] = true
			}
		}
	})
}

// TestStuckSubscriberDelaysNoResync: of two subscribers one takes nothing. The other receives everything and the first is
// disconnected.
func TestStuckSubscriberDelaysNoResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all, pageSize = queueLimit + 1000, 500
		h := NewHub(nil, "self", time.Hour, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		stuck, other := h.Subscribe("s", ""), h.Subscribe("s", "c")
		defer stuck.Close()
		defer other.Close()
		go func() {
			for from := 0; from < all; from += pageSize {
				h.Resend(t.Context(), page(from, pageSize))
			}
		}()
		for got := 0; got < all; {
			<-other.Ready()
			taken := must.Get(other.Take(100))(t)
			got += len(taken)
		}
		if _, err := stuck.Take(1); err != ErrBehind {
			t.Errorf("the stuck subscriber: %v", err)
		}
	})
}

package delivery

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// downLink is a link without a connection, which counts how often it is asked for one.
type downLink struct{ asked atomic.Int64 }

func (l *downLink) Ready(context.Context) error { return mqttlink.ErrDown }

func (l *downLink) Connected() bool {
	l.asked.Add(1)
	return false
}

func (l *downLink) Publish(context.Context, string, *cloudevents.Event) error {
	return mqttlink.ErrDown
}

func (l *downLink) Connects() int64 { return 0 }

// TestConsumerIsServedBeforeItRequestsStatuses is a regression test. A replica that took over a consumer could request the statuses of
// its agent before it passed on the agent's events. It then dropped the response, and the source kept an old status until the next change.
func TestConsumerIsServedBeforeItRequestsStatuses(t *testing.T) {
	for range 100 {
		link := &downLink{}
		d := New(Options{Link: link})
		d.mu.RLock()
		started := make(chan struct{})
		go func() {
			d.start("mgmt-1")
			close(started)
		}()
		for d.mu.TryRLock() { // it fails as soon as start waits for the lock
			d.mu.RUnlock()
			runtime.Gosched()
		}
		for range 1000 {
			runtime.Gosched() // a loop that runs already uses the link now
		}
		early := link.asked.Load()
		d.mu.RUnlock()
		<-started
		d.stop("mgmt-1")
		if early > 0 {
			t.Fatal("the consumer uses the link before it gets events")
		}
	}
}

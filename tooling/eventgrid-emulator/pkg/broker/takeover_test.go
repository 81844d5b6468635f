package broker_test

import (
	"bytes"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// slowEnd is a hook that stops the first connection with subscriptions between the two steps of its end: its subscriptions are removed, its
// session is not.
type slowEnd struct {
	mqtt.HookBase
	stopped atomic.Bool
	// reached is closed when the connection has stopped there, and released when it may go on.
	reached, released chan struct{}
}

func (*slowEnd) ID() string { return "slow-end" }

func (*slowEnd) Provides(b byte) bool { return b == mqtt.OnUnsubscribed }

func (h *slowEnd) OnUnsubscribed(*mqtt.Client, packets.Packet) {
	if h.stopped.CompareAndSwap(false, true) {
		close(h.reached)
		<-h.released
	}
}

// signal is a log that closes a channel when a message is written first.
type signal struct {
	message string
	once    sync.Once
	written chan struct{}
}

func (s *signal) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(s.message)) {
		s.once.Do(func() { close(s.written) })
	}
	return len(line), nil
}

// TestClientReceivesAfterItConnectsAgain connects a client while the end of its previous connection is being processed. The end must not
// remove the new session.
func TestClientReceivesAfterItConnectsAgain(t *testing.T) {
	waits := &signal{message: broker.TakenOver, written: make(chan struct{})}
	r := startWith(t, broker.Options{Log: slog.New(slog.NewTextHandler(waits, nil))})
	end := &slowEnd{reached: make(chan struct{}), released: make(chan struct{})}
	must.Do(t, r.AddHook(end))
	first := r.mustConnect("mgmt-1")
	must.Do(t, first.subscribe(t, down1, 1))
	r.DropConnections("mgmt-1")
	<-end.reached

	connected := make(chan *client, 1)
	go func() {
		defer close(connected)
		second, err := r.connect("mgmt-1", nil)
		if err != nil {
			t.Errorf("the client cannot connect again: %v", err)
			return
		}
		if err := second.subscribe(t, down1, 1); err != nil {
			t.Errorf("the client cannot subscribe again: %v", err)
		}
		connected <- second
	}()
	select {
	case <-waits.written:
	case <-connected:
		close(end.released)
		t.Fatal("the client is connected before the end of its previous connection was processed")
	}
	close(end.released)
	second := <-connected
	if second == nil {
		t.FailNow()
	}
	must.Do(t, r.mustConnect("maestro-server").publish(t, down1, "hello"))
	if got := <-second.received; got != "hello" {
		t.Errorf("received %q", got)
	}
}

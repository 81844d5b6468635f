package broker

import (
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
)

// certificateEnds are the timers that close connections when the certificates of their clients end. TLS verifies a certificate in the
// handshake only.
type certificateEnds struct {
	mu     sync.Mutex
	timers map[*mqtt.Client]*time.Timer
}

// watch calls end at a time unless forget is called before.
func (e *certificateEnds) watch(cl *mqtt.Client, at time.Time, end func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timers == nil {
		e.timers = map[*mqtt.Client]*time.Timer{}
	}
	e.timers[cl] = time.AfterFunc(time.Until(at), end)
}

func (e *certificateEnds) forget(cl *mqtt.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if timer := e.timers[cl]; timer != nil {
		timer.Stop()
		delete(e.timers, cl)
	}
}

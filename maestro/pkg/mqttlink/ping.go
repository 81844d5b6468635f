package mqttlink

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// pinger sends the pings of MQTT's keep-alive, and further ones on request. The broker responds to every PINGREQ with one PINGRESP,
// which do not name each other: a response answers all requests that were made before it.
type pinger struct {
	*paho.DefaultPinger
	conn net.Conn

	mu sync.Mutex
	// waiting is ended by the next response. It is nil if no request waits.
	waiting *pingRequest
	// requested is true if a request has been made since the last PINGREQ and has not been answered. writing is true while write runs.
	requested, writing bool
}

// pingRequest is one request, or several that wait for the same response.
type pingRequest struct {
	// ended is closed by the response, or after err was set.
	ended chan struct{}
	err   error
}

func newPinger(conn net.Conn) *pinger {
	return &pinger{DefaultPinger: paho.NewDefaultPinger(), conn: conn}
}

// PingResp implements paho.Pinger.
func (p *pinger) PingResp() {
	p.DefaultPinger.PingResp()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(nil)
}

// end ends the request that waits. The caller holds the lock.
func (p *pinger) end(err error) {
	if p.waiting != nil {
		p.waiting.err = err
		close(p.waiting.ended)
	}
	p.waiting, p.requested = nil, false
}

// ping sends a ping and waits for a response until ctx ends.
func (p *pinger) ping(ctx context.Context) error {
	p.mu.Lock()
	if p.waiting == nil {
		p.waiting = &pingRequest{ended: make(chan struct{})}
	}
	request := p.waiting
	p.requested = true
	if !p.writing {
		p.writing = true
		// Writing to a hung broker blocks when its buffers are full. Closing the connection ends it.
		go p.write()
	}
	p.mu.Unlock()
	select {
	case <-request.ended:
		return request.err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the response to a ping: %w", ctx.Err())
	}
}

// write writes a PINGREQ until no request is left without one. A request that is made during a write needs another PINGREQ: the response to
// the one in progress may have arrived before the request.
func (p *pinger) write() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.requested {
		p.requested = false
		p.mu.Unlock()
		_, err := packets.NewControlPacket(packets.PINGREQ).WriteTo(p.conn)
		p.mu.Lock()
		if err != nil {
			p.end(fmt.Errorf("sending a ping: %w", err))
		}
	}
	p.writing = false
}

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
// which do not name each other: a response answers all requests that were sent before it.
type pinger struct {
	*paho.DefaultPinger
	conn net.Conn

	mu sync.Mutex
	// waiting is closed by the next response. It is nil if nothing waits. sending is true while a requested ping is being written.
	waiting chan struct{}
	sending bool
}

func newPinger(conn net.Conn) *pinger {
	return &pinger{DefaultPinger: paho.NewDefaultPinger(), conn: conn}
}

// PingResp implements paho.Pinger.
func (p *pinger) PingResp() {
	p.DefaultPinger.PingResp()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != nil {
		close(p.waiting)
		p.waiting = nil
	}
}

// ping sends a ping and waits for a response until ctx ends.
func (p *pinger) ping(ctx context.Context) error {
	p.mu.Lock()
	if p.waiting == nil {
		p.waiting = make(chan struct{})
	}
	response, send := p.waiting, !p.sending
	p.sending = true
	p.mu.Unlock()
	failed := make(chan error, 1)
	if send {
		// Writing to a hung broker blocks when its buffers are full. Closing the connection ends it.
		go func() {
			_, err := packets.NewControlPacket(packets.PINGREQ).WriteTo(p.conn)
			p.mu.Lock()
			p.sending = false
			p.mu.Unlock()
			if err != nil {
				failed <- err
			}
		}()
	}
	select {
	case <-response:
		return nil
	case err := <-failed:
		return fmt.Errorf("sending a ping: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("waiting for the response to a ping: %w", ctx.Err())
	}
}

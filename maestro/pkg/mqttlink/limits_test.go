package mqttlink_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/eclipse/paho.golang/packets"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// connectTo runs a link to a server that answers CONNECT with the given properties and every other packet with those that respond returns.
func connectTo(t *testing.T, announced *packets.Properties, keepAlive time.Duration, respond func(any) []*packets.ControlPacket) *mqttlink.Link {
	t.Helper()
	dir := identityFiles(t, must.Get(authority.Open(t.TempDir(), "test"))(t))
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))(t)
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}}))(t)
	serve := func(connection net.Conn) {
		defer connection.Close()
		for {
			packet, err := packets.ReadPacket(connection)
			if err != nil {
				return
			}
			answers := []*packets.ControlPacket{packets.NewControlPacket(packets.CONNACK)}
			if packet.Type == packets.CONNECT {
				answers[0].Content.(*packets.Connack).Properties = announced
			} else {
				answers = respond(packet.Content)
			}
			for _, answer := range answers {
				if _, err := answer.WriteTo(connection); err != nil {
					return
				}
			}
		}
	}
	link := mqttlink.New(mqttlink.Options{Address: listener.Addr().String(), ClientID: "agent", KeepAlive: keepAlive,
		TLS: must.Get(must.Get(mqttlink.LoadIdentity(dir))(t).ClientTLS(listener.Addr().String()))(t)})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { serve(connection) })
		}
	})
	running.Go(func() { _ = link.Run(t.Context()) })
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return link
}

func newEvent(id string) *cloudevents.Event {
	event := cloudevents.NewEvent()
	event.SetID(id)
	event.SetType("test")
	event.SetSource("test")
	return &event
}

// TestReceiveMaximumIsKept announces that the server accepts one message before it has acknowledged it (MQTT 5, section 3.2.2.3.3). The server acknowledges
// a message only with the response to a later ping.
func TestReceiveMaximumIsKept(t *testing.T) {
	const messages = 20
	var received []uint16
	link := connectTo(t, &packets.Properties{ReceiveMaximum: new(uint16(1))}, 0, func(content any) (answers []*packets.ControlPacket) {
		switch content := content.(type) {
		case *packets.Publish:
			if received = append(received, content.PacketID); len(received) > 1 {
				t.Errorf("%d messages are not acknowledged", len(received))
			}
		case *packets.Pingreq:
			answers = append(answers, packets.NewControlPacket(packets.PINGRESP))
			for _, id := range received {
				acknowledgement := packets.NewControlPacket(packets.PUBACK)
				acknowledgement.Content.(*packets.Puback).PacketID = id
				answers = append(answers, acknowledgement)
			}
			received = nil
		}
		return answers
	})
	eventually.Soon(t, "the link is up", func() error { return link.Ready(t.Context()) })
	var sent atomic.Int32
	var group sync.WaitGroup
	for i := range messages {
		group.Go(func() {
			if err := link.Publish(t.Context(), "topic", newEvent(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
			sent.Add(1)
		})
	}
	eventually.Soon(t, "all messages are acknowledged", func() error {
		if err := link.Ready(t.Context()); err != nil || sent.Load() < messages {
			return fmt.Errorf("%d are, %w", sent.Load(), err)
		}
		return nil
	})
	group.Wait()
}

// TestServerKeepAliveIsKept announces a shorter keep-alive interval than the client requests (MQTT 5, section 3.2.2.3.14).
func TestServerKeepAliveIsKept(t *testing.T) {
	var pings atomic.Int32
	connectTo(t, &packets.Properties{ServerKeepAlive: new(uint16(1))}, time.Hour, func(content any) []*packets.ControlPacket {
		if _, ok := content.(*packets.Pingreq); !ok {
			return nil
		}
		pings.Add(1)
		return []*packets.ControlPacket{packets.NewControlPacket(packets.PINGRESP)}
	})
	eventually.Soon(t, "the client has sent two pings", func() error {
		if n := pings.Load(); n < 2 {
			return fmt.Errorf("it has sent %d", n)
		}
		return nil
	})
}

// TestServerWithoutAcknowledgementsIsRefused announces QoS 0 as the maximum (MQTT 5, section 3.2.2.3.4): a message without an acknowledgement may be lost.
func TestServerWithoutAcknowledgementsIsRefused(t *testing.T) {
	link := connectTo(t, &packets.Properties{MaximumQOS: new(byte(0))}, 0, func(content any) []*packets.ControlPacket {
		if _, ok := content.(*packets.Publish); ok {
			t.Error("a message was sent")
		}
		return nil
	})
	eventually.Soon(t, "the link names the limit", func() error {
		if err := link.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "Maximum QoS is 0") {
			return fmt.Errorf("it reports %w", err)
		}
		return nil
	})
	if err := link.Publish(t.Context(), "topic", newEvent("a")); !errors.Is(err, mqttlink.ErrDown) {
		t.Errorf("the message: %v", err)
	}
}

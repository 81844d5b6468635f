package broker_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// TestConnectionEndsWithItsCertificate connects with two certificates, of which one ends during the connection.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	b := start(t, broker.Options{})
	lasting := b.mustConnect("mgmt-1")
	var ending *client
	eventually.WithinLifetime(t, func(lifetime time.Duration) (err error) {
		ending, err = b.connectWith(b.issueUntil(time.Now().Add(lifetime), mesh.MaestroAgent, "mgmt-2"), "mgmt-2", nil)
		return err
	})
	if err := <-ending.ended; err.Error() != "disconnected with 0xa0" {
		t.Errorf("the connection ended with %v, want the reason 0xa0", err)
	}
	if _, err := b.connect("mgmt-2", nil); err != nil {
		t.Errorf("the client cannot connect with its next certificate: %v", err)
	}
	select {
	case err := <-lasting.ended:
		t.Errorf("the other connection ended: %v", err)
	default:
	}
}

// TestConnectionOfClientThatDoesNotReadEnds lets the broker wait for a client that does not read when the certificate ends.
func TestConnectionOfClientThatDoesNotReadEnds(t *testing.T) {
	b := start(t, broker.Options{})
	server := b.mustConnect("maestro-server")
	var ending net.Conn
	eventually.WithinLifetime(t, func(lifetime time.Duration) (err error) {
		certificate := b.issueUntil(time.Now().Add(lifetime), mesh.MaestroAgent, "mgmt-2")
		if ending, err = b.dial(certificate); err != nil {
			return err
		}
		t.Cleanup(func() { _ = ending.Close() })
		for _, request := range []packets.Packet{
			&packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: "mgmt-2", CleanStart: true, Properties: &packets.Properties{}},
			&packets.Subscribe{PacketID: 1, Subscriptions: []packets.SubOptions{{Topic: down2}}, Properties: &packets.Properties{}},
		} {
			if _, err := request.WriteTo(ending); err != nil {
				return err
			}
			if _, err := packets.ReadPacket(ending); err != nil {
				return err
			}
		}
		return nil
	})
	for range 64 { // more than the buffers of a connection hold
		must.Do(t, server.publish(t, down2, strings.Repeat("x", broker.MaxPacketBytes-200)))
	}
	eventually.Soon(t, "the broker closes the connection", func() error {
		if _, err := (&packets.Publish{Topic: up2, Payload: []byte("x"), Properties: &packets.Properties{}}).WriteTo(ending); err != nil {
			return nil
		}
		return errors.New("the client can publish")
	})
}

package broker_test

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// TestInvalidClientsCannotConnect connects as invalid clients with the names of the broker's clients. With the certificates of the region, the
// same connections are accepted.
func TestInvalidClientsCannotConnect(t *testing.T) {
	region := meshtest.New(t)
	identity := must.Get(broker.LoadIdentity(region.Identity(mesh.EventGridEmulator).Dir()))(t)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	b := must.Get(broker.Start(listener, broker.Options{TLS: identity.TLS(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}))(t)
	defer func() { _ = b.Close() }()
	connect := func(config *tls.Config, name string) error {
		conn, err := tls.Dial("tcp", b.Addr(), config)
		if err != nil {
			return err
		}
		defer conn.Close()
		client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(conn), PacketTimeout: time.Minute})
		if _, err := client.Connect(t.Context(), &paho.Connect{ClientID: name, KeepAlive: 30, CleanStart: true}); err != nil {
			return err
		}
		return client.Disconnect(&paho.Disconnect{})
	}
	for workload, name := range map[mesh.Peer]string{mesh.MaestroServer: maestroapi.ServerName, mesh.MaestroAgent: "mgmt-1"} {
		if err := connect(region.IdentityWith(workload, name).ClientTLS(mesh.EventGridEmulator), name); err != nil {
			t.Errorf("%s cannot connect: %v", workload, err)
		}
		for _, invalid := range region.InvalidClients(workload, name) {
			if err := connect(invalid.TLS(), name); err == nil {
				t.Errorf("a client with %s can connect", invalid.Name)
			}
		}
	}
}

package conformance

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// TestHungBrokerIsNotReady checks a broker whose connection is open and that does not respond, long before the keep-alive interval
// ends.
func TestHungBrokerIsNotReady(t *testing.T) {
	r := maestrotest.New(t, "", slog.New(slog.DiscardHandler))
	proxy := netfault.StartProxy(t, r.BrokerAddress)
	link := mqttlink.New(mqttlink.Options{
		Address: proxy.Address, TLS: r.MQTT(string(mesh.MaestroServer)), ClientID: "test",
		Receive: func(context.Context, string, *cloudevents.Event) {}, Up: func(context.Context) {},
	})
	r.Run("link", link.Run)
	eventually.Soon(t, "the link is ready", func() error { return link.Ready(t.Context()) })

	proxy.Hang()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := link.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a hung broker: %v", err)
		}
		cancel()
	}
	proxy.Continue()
	if err := link.Ready(t.Context()); err != nil || link.Connects() != 1 {
		t.Errorf("after the broker continued: %v, %d connections", err, link.Connects())
	}
	r.Broker.DropConnections("")
	proxy.Hang()
	eventually.Soon(t, "the broken link is reported", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if link.Ready(ctx) == nil {
			return errors.New("ready")
		}
		return nil
	})
}

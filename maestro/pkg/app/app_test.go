package app_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestServerStopsWhenAListenerFails: a server without one of its APIs must not keep running.
func TestServerStopsWhenAListenerFails(t *testing.T) {
	for name, broken := range map[string]func(c *app.Config) net.Listener{
		"gRPC": func(c *app.Config) net.Listener { return c.GRPC },
		"REST": func(c *app.Config) net.Listener { return c.REST },
	} {
		t.Run(name, func(t *testing.T) {
			config := unreachable(t, meshtest.New(t))
			ctx := t.Context()
			s := must.Get(app.New(ctx, config))(t)
			must.Do(t, broken(&config).Close())
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "use of closed network connection") {
				t.Errorf("stopped with %v", err)
			}
		})
	}
}

// unreachable returns the configuration of a server whose database and broker are unreachable. The server waits for both.
func unreachable(t *testing.T, region *meshtest.Region) app.Config {
	return app.Config{
		DatabaseURL: "postgres://nobody@127.0.0.1:1/none", MQTTAddress: "127.0.0.1:1", MQTTTLS: &tls.Config{},
		GRPC: listen(t), REST: listen(t), Transport: region.Identity(mesh.MaestroServer), Rules: mesh.Rules(), Log: slog.New(slog.DiscardHandler),
	}
}

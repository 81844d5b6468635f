package app_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestServerStopsWhenAListenerFails: a server without one of its APIs must not keep running.
func TestServerStopsWhenAListenerFails(t *testing.T) {
	for name, broken := range map[string]func(c *app.Config) net.Listener{
		"gRPC": func(c *app.Config) net.Listener { return c.GRPC },
		"REST": func(c *app.Config) net.Listener { return c.REST },
	} {
		t.Run(name, func(t *testing.T) {
			// The database and the broker are unreachable; the server waits for both.
			config := app.Config{
				DatabaseURL: "postgres://nobody@127.0.0.1:1/none", MQTTAddress: "127.0.0.1:1", MQTTTLS: &tls.Config{},
				GRPC: listen(t), REST: listen(t), TLS: &tls.Config{}, Log: slog.New(slog.DiscardHandler),
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := app.New(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			if err := broken(&config).Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.Run(ctx); err == nil || !strings.Contains(err.Error(), "use of closed network connection") {
				t.Errorf("stopped with %v", err)
			}
		})
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

package app

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// TestReadyAsksTheAPIServer checks that a runtime that reconciled before reports a hung API server.
func TestReadyAsksTheAPIServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	proxy := netfault.StartProxy(t, server.Listener.Addr().String())
	runtime := New(Options{}, slog.New(slog.DiscardHandler))
	if err := runtime.Ready(t.Context()); err == nil {
		t.Error("ready before it runs")
	}
	h := must.Get(newHealth(&rest.Config{Host: "http://" + proxy.Address}))(t)
	runtime.health.Store(h)
	runtime.waiting.Store(nil)
	if err := runtime.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	proxy.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := runtime.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a hung API server: %v", err)
	}
}

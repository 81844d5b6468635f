package frontdoor

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// TestHungFrontendIsNotReady checks a frontend whose kernel accepts connections and that does not respond.
func TestHungFrontendIsNotReady(t *testing.T) {
	// The frontend can reject the request: it responds.
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	proxy := netfault.StartProxy(t, server.Listener.Addr().String())
	check := responds(proxy.Address, server.Client().Transport.(*http.Transport).TLSClientConfig)
	must.Do(t, check(t.Context()))
	proxy.Hang()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := check(ctx); err == nil || !strings.Contains(err.Error(), "does not respond") {
		t.Errorf("with a hung frontend: %v", err)
	}
	if err := responds(netfault.ClosedAddress(t), nil)(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be reached") {
		t.Errorf("without a frontend: %v", err)
	}
}

// Package registrytest runs registries for tests, which can change their responses.
package registrytest

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// Options are the options of a registry.
type Options struct {
	// Dir is the folder of the content; empty means a new one.
	Dir string
	// Policy is who may write.
	Policy registry.Policy
	// TLS serves HTTPS. The registry's Client trusts its certificate.
	TLS bool
}

// Fault responds to a request in place of the registry and returns true, or returns false.
type Fault func(http.ResponseWriter, *http.Request) bool

// Registry is a running registry.
type Registry struct {
	*httptest.Server
	// Host is the host and the port of the registry, as in the names of images.
	Host string

	fault           atomic.Pointer[Fault]
	uploads, writes atomic.Int32
}

// Start starts a registry that is stopped at the end of the test.
func Start(t testing.TB, o Options) *Registry {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	content, err := registry.Open(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	handler := registry.New(content, o.Policy, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	r := &Registry{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if fault := r.fault.Load(); fault != nil && (*fault)(w, request) {
			return
		}
		switch request.Method {
		case http.MethodPatch:
			r.uploads.Add(1)
			r.writes.Add(1)
		case http.MethodPut:
			r.writes.Add(1)
		}
		handler.ServeHTTP(w, request)
	}))
	if o.TLS {
		r.EnableHTTP2 = true
		r.StartTLS()
	} else {
		r.Server.Start()
	}
	t.Cleanup(r.Close)
	r.Host = r.Listener.Addr().String()
	return r
}

// SetFault sets the fault; nil removes it.
func (r *Registry) SetFault(fault Fault) {
	if fault == nil {
		r.fault.Store(nil)
		return
	}
	r.fault.Store(&fault)
}

// Uploads returns the number of requests with the content of a blob.
func (r *Registry) Uploads() int { return int(r.uploads.Load()) }

// Writes returns the number of requests with the content of a blob, or that completed a blob or a manifest.
func (r *Registry) Writes() int { return int(r.writes.Load()) }

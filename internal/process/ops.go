package process

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/pprof"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds a readiness check, so that /readyz reports a dependency that does not respond.
const checkTimeout = 3 * time.Second

// Check returns why a dependency is not available, or nil if it is.
type Check func(ctx context.Context) error

type readiness struct {
	mu     sync.Mutex
	checks map[string]Check
}

// Ready registers the readiness check of a dependency. It replaces an earlier check of the same name.
func (p *Process) Ready(dependency string, check Check) {
	p.readiness.mu.Lock()
	defer p.readiness.mu.Unlock()
	if p.readiness.checks == nil {
		p.readiness.checks = map[string]Check{}
	}
	p.readiness.checks[dependency] = check
}

// Readiness is the body of /readyz.
type Readiness struct {
	Ready bool `json:"ready"`
	// NotReady contains the reason for each dependency that is not available.
	NotReady map[string]string `json:"notReady,omitempty"`
	// Dependencies lists all checked dependencies in alphabetical order.
	Dependencies []string `json:"dependencies"`
}

// CheckReadiness runs all checks concurrently.
func (p *Process) CheckReadiness(ctx context.Context) Readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	p.readiness.mu.Lock()
	checks := make(map[string]Check, len(p.readiness.checks))
	for name, check := range p.readiness.checks {
		checks[name] = check
	}
	p.readiness.mu.Unlock()

	result := Readiness{Ready: true, Dependencies: []string{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, check := range checks {
		result.Dependencies = append(result.Dependencies, name)
		wg.Go(func() {
			err := check(ctx)
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if result.NotReady == nil {
				result.NotReady = map[string]string{}
			}
			result.Ready, result.NotReady[name] = false, err.Error()
		})
	}
	wg.Wait()
	sort.Strings(result.Dependencies)
	return result
}

// OpsHandler serves /healthz (200 while the process runs), /readyz (200 or 503 with a Readiness), /version (a Version),
// /metrics, and profiles below /debug/pprof/ (net/http/pprof).
func (p *Process) OpsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		readiness := p.CheckReadiness(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if !readiness.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(readiness)
	})
	mux.HandleFunc("GET /version", p.serveVersion)
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.Metrics, promhttp.HandlerOpts{}))
	return mux
}

type opsServer struct {
	server *http.Server
	done   chan struct{}
}

func serveOps(listener net.Listener, p *Process) *opsServer {
	ops := &opsServer{
		// There is no write timeout, because the client chooses the duration of a profile.
		server: &http.Server{Handler: p.OpsHandler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(ops.done)
		_ = ops.server.Serve(listener)
	}()
	return ops
}

func (o *opsServer) close() {
	_ = o.server.Close()
	<-o.done
}

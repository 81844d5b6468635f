package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// checkTimeout bounds a readiness check, so that /readyz reports a dependency that does not respond. It is shorter than the timeout
// of the probes that read /readyz.
const checkTimeout = 2 * time.Second

// Check returns why a dependency is not available, or nil if it is. It asks the dependency a question that the dependency cannot
// answer while it is stopped or hung, and returns when its context ends. The error must not contain secrets.
type Check func(ctx context.Context) error

// readiness contains the checks by name of the dependency.
type readiness struct {
	mu           sync.Mutex
	dependencies map[string]*dependency
}

// dependency is a registered check. At most one run of a check is in progress; requests for /readyz at the same time share it. So
// a check that does not return occupies one goroutine, however often /readyz is requested.
type dependency struct {
	check Check
	run   *checkRun // nil if none is in progress
}

// checkRun is a run of a check. err is set when done is closed.
type checkRun struct {
	done chan struct{}
	err  error
}

// Ready registers the readiness check of a dependency. It replaces an earlier check of the same name.
func (p *Process) Ready(name string, check Check) {
	p.readiness.mu.Lock()
	defer p.readiness.mu.Unlock()
	if p.readiness.dependencies == nil {
		p.readiness.dependencies = map[string]*dependency{}
	}
	p.readiness.dependencies[name] = &dependency{check: check}
}

// start returns the names of all dependencies and the run in progress of every check that is not excluded. It starts those that are not in
// progress.
func (r *readiness) start(ctx context.Context, excluded []string) (names []string, runs map[string]*checkRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names, runs = make([]string, 0, len(r.dependencies)), make(map[string]*checkRun, len(r.dependencies))
	for name, d := range r.dependencies {
		names = append(names, name)
		if slices.Contains(excluded, name) {
			continue
		}
		if d.run == nil {
			run := &checkRun{done: make(chan struct{})}
			d.run = run
			go r.execute(ctx, d, run)
		}
		runs[name] = d.run
	}
	return names, runs
}

// execute runs a check to its end. The run does not end with the request that started it, because others share it.
func (r *readiness) execute(ctx context.Context, d *dependency, run *checkRun) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	run.err = d.check(ctx)
	if run.err != nil && ctx.Err() != nil {
		run.err = errUnresponsive
	}
	r.mu.Lock()
	d.run = nil
	r.mu.Unlock()
	close(run.done)
}

// errUnresponsive is the reason for a dependency that did not respond in time.
var errUnresponsive = fmt.Errorf("does not respond within %s", checkTimeout)

// errUnknownDependency is the reason for an excluded dependency that the process does not have: a misspelt name would check more than the
// probe wants.
var errUnknownDependency = errors.New("is excluded from the readiness checks, and the process has no such dependency")

// Readiness is the body of /readyz.
type Readiness struct {
	Ready bool `json:"ready"`
	// NotReady contains the reason for each dependency that is not available, and for "drain" while the process drains.
	NotReady map[string]string `json:"notReady,omitempty"`
	// Dependencies lists all dependencies in alphabetical order.
	Dependencies []string `json:"dependencies"`
}

// CheckReadiness runs all checks concurrently and returns within checkTimeout, even if a check does not return. Excluded dependencies are
// not checked. The process is not ready if it has no dependency with the name of an excluded one.
func (p *Process) CheckReadiness(ctx context.Context, excluded ...string) Readiness {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	names, runs := p.readiness.start(ctx, excluded)
	slices.Sort(names)
	result := Readiness{Ready: true, Dependencies: names}
	if p.drain.draining() {
		result.Ready, result.NotReady = false, map[string]string{drainReason: errDraining.Error()}
	}
	for _, name := range excluded {
		if slices.Contains(names, name) {
			continue
		}
		if result.NotReady == nil {
			result.NotReady = map[string]string{}
		}
		result.Ready, result.NotReady[name] = false, errUnknownDependency.Error()
	}
	for name, run := range runs {
		err := errUnresponsive
		select {
		case <-run.done:
			err = run.err
		case <-ctx.Done():
			// The run can end at the same time.
			select {
			case <-run.done:
				err = run.err
			default:
			}
		}
		if err == nil {
			continue
		}
		if result.NotReady == nil {
			result.NotReady = map[string]string{}
		}
		result.Ready, result.NotReady[name] = false, err.Error()
	}
	return result
}

// OpsHandler serves /healthz (200 while the process responds, whatever the state of its dependencies: for liveness probes),
// /readyz (200 or 503 with a Readiness), /version (a Version) and /metrics. Each parameter exclude of /readyz is the name of a dependency
// that is not checked: probes exclude those that all replicas share, so that an outage of one does not take all replicas out of service.
func (p *Process) OpsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		readiness := p.CheckReadiness(r.Context(), r.URL.Query()["exclude"]...)
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
		server: NewHTTPServer(Calls, p.OpsHandler(), p.Log),
		done:   make(chan struct{}),
	}
	ops.serve(listener)
	return ops
}

func (o *opsServer) serve(listener net.Listener) {
	go func() {
		defer close(o.done)
		_ = o.server.Serve(listener)
	}()
}

func (o *opsServer) close() {
	_ = o.server.Close()
	<-o.done
}

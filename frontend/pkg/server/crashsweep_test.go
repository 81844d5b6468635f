package server_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/dispatch"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// crashingFrontend is a frontend that crashes at its external writes: commits of batches and calls of Cluster Service.
// A new frontend without any state of the previous one replaces it.
type crashingFrontend struct {
	*testSubscription
	config   server.Config
	injector *crashsweep.Injector
	handler  http.Handler
	end      func()
}

// start starts a frontend.
func (l *crashingFrontend) start() {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	options := l.cosmos
	options.Transport = l.injector.Transport(databasetest.WriteContainer)
	db := must.Get(database.Open(ctx, options))(l.t)
	config := l.config
	config.Database, config.Metrics = db, prometheus.NewRegistry()
	rpc := clusterservice.NewClient(l.clusterService.serve(l.t, grpc.WithUnaryInterceptor(l.injector.UnaryClientInterceptor())))
	dispatcher := dispatch.New(rpc, config.Log, config.Metrics)
	config.Dispatcher, config.Credentials = dispatcher, rpc
	var group sync.WaitGroup
	group.Go(func() { dispatcher.Run(ctx) })
	l.handler = l.injector.Handler(server.New(config))
	l.end = sync.OnceFunc(func() { cancel(); group.Wait(); db.Close() })
	l.t.Cleanup(l.end)
}

// sendUntilAccepted sends a request like a client that retries after lost responses; it accepts a conflict in the
// response to a retry. It returns after the change was also sent to Cluster Service, unless the frontend crashed before
// that.
func (l *crashingFrontend) sendUntilAccepted(method, target, body string) {
	l.t.Helper()
	for retried := false; ; retried = true {
		l.restart()
		recorder := httptest.NewRecorder()
		request := l.request(method, target, body)
		l.handler.ServeHTTP(recorder, request)
		if l.injector.Crashed() {
			continue // the client did not receive the response
		}
		if retried && recorder.Code == http.StatusConflict {
			return // the crashed frontend had committed the request
		}
		if recorder.Code/100 == 2 {
			break
		}
		l.t.Fatalf("%s %s status %d: %s", method, target, recorder.Code, recorder.Body)
	}
	eventually.Soon(l.t, "the frontend has crashed or Cluster Service has the state", func() error {
		if !l.injector.Crashed() && !l.isSent(target) {
			return errors.New("the frontend runs")
		}
		return nil
	})
	l.restart()
}

// restart replaces a crashed frontend.
func (l *crashingFrontend) restart() {
	l.t.Helper()
	if l.injector.Crashed() {
		l.end()
		l.injector.Restart()
		l.start()
	}
}

// isSent reports whether Cluster Service has the stored state of a resource.
func (l *crashingFrontend) isSent(id string) bool {
	sent := true
	l.forEachResource(func(resource *hub.Resource, uid string, generation int64, state hub.ProvisioningState, _ func(context.Context) error) {
		l.clusterService.mu.Lock()
		defer l.clusterService.mu.Unlock()
		if resource.ID == id {
			sent = l.clusterService.generations[uid] >= generation && (state != hub.Deleting || l.clusterService.deleted[uid])
		}
	})
	return sent
}

// forEachResource calls do for the resources that Cluster Service stores, clusters first, with the function that sends
// them.
func (l *crashingFrontend) forEachResource(do func(resource *hub.Resource, uid string, generation int64, state hub.ProvisioningState, tell func(context.Context) error)) {
	l.t.Helper()
	documents := l.documents()
	for _, item := range documents.clusters {
		d := &item.Value
		do(&d.Cluster.Resource, d.UID, d.Generation, d.ProvisioningState, sender(d, d.ProvisioningState, l.rpc.ApplyCluster, l.rpc.DeleteCluster))
	}
	for _, item := range documents.nodePools {
		d := &item.Value
		do(&d.NodePool.Resource, d.UID, d.Generation, d.ProvisioningState, sender(d, d.ProvisioningState, l.rpc.ApplyNodePool, l.rpc.DeleteNodePool))
	}
	for _, item := range documents.externals {
		d := &item.Value
		do(&d.ExternalAuth.Resource, d.UID, d.Generation, d.ProvisioningState, sender(d, d.ProvisioningState, l.rpc.ApplyExternalAuth, l.rpc.DeleteExternalAuth))
	}
}

func sender[D, R any](document *D, state hub.ProvisioningState, apply, remove func(context.Context, *D) (R, error)) func(context.Context) error {
	if state == hub.Deleting {
		apply = remove
	}
	return func(ctx context.Context) error {
		_, err := apply(ctx, document)
		return err
	}
}

// runBackend does the backend's work: it sends what the frontend did not send, and finishes the operations in progress.
func (l *crashingFrontend) runBackend() {
	l.t.Helper()
	l.documents().check(l.t)
	l.forEachResource(func(_ *hub.Resource, uid string, _ int64, _ hub.ProvisioningState, tell func(context.Context) error) {
		if err := tell(l.t.Context()); err != nil {
			l.t.Fatalf("telling Cluster Service of %s: %v", uid, err)
		}
	})
	must.Do(l.t, l.finishOperations(l.t.Context()))
}

// state describes the stored documents and Cluster Service's state, without UIDs and times, which differ between runs.
func (l *crashingFrontend) state() (lines []string) {
	l.t.Helper()
	add := func(format string, values ...any) { lines = append(lines, fmt.Sprintf(format, values...)) }
	short := func(id string) string { return id[strings.Index(id, "/hcpOpenShiftClusters/")+1:] }
	documents := l.documents()
	for _, item := range documents.clusters {
		add("%s %s generation %d operation %q revocation %q tags %v", short(item.Value.Cluster.ID), item.Value.ProvisioningState, item.Value.Generation,
			item.Value.ActiveOperationID, item.Value.RevocationOperationID, item.Value.Cluster.Tags)
	}
	for _, item := range documents.nodePools {
		add("%s %s generation %d operation %q", short(item.Value.NodePool.ID), item.Value.ProvisioningState, item.Value.Generation, item.Value.ActiveOperationID)
	}
	for _, item := range documents.externals {
		add("%s %s generation %d operation %q", short(item.Value.ExternalAuth.ID), item.Value.ProvisioningState, item.Value.Generation, item.Value.ActiveOperationID)
	}
	for _, item := range documents.credentials {
		add("credential %s", item.Value.State)
	}
	for _, item := range documents.operations {
		add("operation %s of a %s %s", item.Value.Request, item.Value.ResourceType, item.Value.Status)
	}
	for _, item := range documents.reservations {
		add("reservation %s", item.Value.Kind)
	}
	l.clusterService.mu.Lock()
	defer l.clusterService.mu.Unlock()
	for uid, effects := range l.clusterService.effects {
		add("in Cluster Service generation %d, deleted %v, %d effects", l.clusterService.generations[uid], l.clusterService.deleted[uid], effects)
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}

// TestSweepRequests crashes the frontend before and after each commit of a batch and each call of Cluster Service, in a
// scenario with one cluster: create it with a node pool and an external authentication, change it, revoke its
// credentials, and delete everything. A client that retries reaches the same final state after every crash: no request
// is executed in part or twice.
//
// Two requests are not idempotent and not part of the scenario: a request for a credential, whose name is in the
// response, so that a lost response leaves an unused credential; and the result with a generated private key, which is
// returned once.
//
// The sweep detects a frontend that commits the reservations of a new resource in a batch before the resource's batch:
// a crash between the two leaves a reservation without an owner.
func TestSweepRequests(t *testing.T) {
	t.Parallel()
	crashsweep.Sweep(t, crashsweep.Options{Parallel: true}, func(t *testing.T, d *crashsweep.Injector) any {
		l := &crashingFrontend{injector: d}
		l.testSubscription = newHarness(t, func(c *server.Config) { l.config = *c }).newSubscription(t)
		l.start()
		cluster := l.cluster("cluster")
		pool, auth := cluster+"/nodePools/pool", cluster+"/externalAuths/auth"
		var worlds [][]string
		for _, requests := range [][]struct{ method, target, body string }{
			{{http.MethodPut, cluster, l.body("cluster.json", "{}")}},
			{{http.MethodPut, pool, l.body("nodepool.json", "{}")}, {http.MethodPut, cluster + "/nodePools/other", l.body("nodepool.json", "{}")}, {http.MethodPut, auth, l.body("external-auth.json", "{}")}},
			{{http.MethodPatch, cluster, `{"tags":{"a":"b"}}`}},
			{{http.MethodPost, cluster + "/revokeCredentials", ""}},
			{{http.MethodDelete, pool, ""}},
			{{http.MethodDelete, cluster, ""}},
		} {
			if requests[0].method == http.MethodPost {
				// One credential is issued and one is pending; no crash happens here.
				for _, done := range []func(){l.runBackend, func() {}} {
					l.mustDo(http.StatusAccepted, http.MethodPost, cluster+"/requestAdminCredential", signingRequest(t))
					done()
				}
			}
			for _, request := range requests {
				l.sendUntilAccepted(request.method, request.target, request.body)
			}
			l.runBackend()
			worlds = append(worlds, l.state())
		}
		return worlds
	})
}

package server_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
)

// The faults of a dependency.
const (
	hangs    = "hangs"
	refuses  = "refuses"
	notReady = "not ready"
	diskFull = "disk full"
)

// outage is the fault of one dependency, for all clients in admin of a harness.
type outage struct {
	layer, fault string
	// ended is true before and after the fault.
	ended atomic.Bool
	// longest is the longest time that admin was ready to wait for the dependency, in nanoseconds.
	longest atomic.Int64
}

// act returns the error of a request to a layer while the fault lasts, or nil if the layer works.
func (o *outage) act(ctx context.Context, layer string) error {
	// A hung PostgreSQL makes the services above it hang as well.
	hit := o.layer == layer || o.layer == adminv1.ComponentPostgreSQL && (layer == adminv1.ComponentClusterService || layer == adminv1.ComponentMaestroServer)
	switch {
	case !hit || o.ended.Load() || o.fault == diskFull: // a store with a full disk answers reads
		return nil
	case o.fault == hangs:
		if deadline, ok := ctx.Deadline(); ok {
			o.longest.Store(max(o.longest.Load(), int64(time.Until(deadline))))
		} else {
			o.longest.Store(int64(time.Hour))
		}
		// The test does not wait for the deadline. The client of Cosmos DB would repeat the request.
		switch layer {
		case adminv1.ComponentCosmosDB:
			<-ctx.Done()
			return ctx.Err()
		case adminv1.ComponentClusterService:
			return status.FromContextError(context.DeadlineExceeded).Err()
		}
		return context.DeadlineExceeded
	case o.fault == refuses:
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		if layer == adminv1.ComponentClusterService {
			return status.Error(codes.Unavailable, refused.Error()) // as the client of gRPC does
		}
		return refused
	}
	return status.Error(codes.Unavailable, "the server is not ready")
}

// RoundTrip implements http.RoundTripper for the connection to Cosmos DB.
func (o *outage) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := o.act(r.Context(), adminv1.ComponentCosmosDB); err != nil {
		return nil, err
	}
	return http.DefaultTransport.RoundTrip(r)
}

// target returns a component whose readiness endpoint has the fault.
func (o *outage) target(t *testing.T, layer, shard string) layers.Target {
	t.Helper()
	answer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case layer != o.layer || shard == "mgmt-2":
		case o.fault == diskFull:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"notReady":{"store":"write /data/log: no space left on device"}}`))
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(answer.Close)
	base := answer.URL
	if layer == o.layer && shard != "mgmt-2" && o.fault == refuses {
		base = "http://" + netfault.ClosedAddress(t)
	}
	return layers.Target{Name: strings.TrimPrefix(shard+"-component-"+layer, "-"), Layer: layer, ProvisionShard: shard, Ready: base + "/readyz", Alive: base + "/healthz"}
}

// intercept makes the question for a component hang that has the fault.
func (o *outage) intercept(target layers.Target, ask layers.Question) layers.Question {
	return func(ctx context.Context) error {
		if o.fault == hangs && target.ProvisionShard != "mgmt-2" {
			if err := o.act(ctx, target.Layer); err != nil {
				return err
			}
		}
		return ask(ctx)
	}
}

// newRegion returns a harness with five clusters, four of them with an operation in flight, and with a dependency away.
func newRegion(t *testing.T, o *outage) *harness {
	t.Helper()
	h := newHarness(t)
	h.populateOperations(t)
	h.fleet.fail = func(ctx context.Context) error { return o.act(ctx, adminv1.ComponentClusterService) }
	h.works.fail = func(ctx context.Context) error { return o.act(ctx, adminv1.ComponentMaestroServer) }
	options := h.cosmos
	options.Transport = o
	db := must.Get(database.Open(t.Context(), options))(t)
	t.Cleanup(db.Close)
	config := &layers.Config{}
	for _, layer := range layers.Layers() {
		switch layer {
		case adminv1.ComponentManagementAPI, adminv1.ComponentAgent, adminv1.ComponentHyperShift, adminv1.ComponentManagementWorker:
			config.Components = append(config.Components, o.target(t, layer, "mgmt-1"), o.target(t, layer, "mgmt-2"))
		case adminv1.ComponentHostedAPI:
		default:
			config.Components = append(config.Components, o.target(t, layer, ""))
		}
	}
	monitor := must.Get(layers.New(layers.Options{Config: config, Own: server.Questions(db, h.config.Fleet, h.works), Deadline: componentDeadline,
		Intercept: o.intercept, Metrics: newRegistry(), Log: slog.New(slog.DiscardHandler)}))(t)
	// A connection that has never reached its account behaves differently; internal/database tests that.
	o.ended.Store(true)
	must.Do(t, db.Ping(t.Context()))
	o.ended.Store(false)
	h.config.Database, h.config.Layers, h.config.Metrics = db, monitor, newRegistry()
	h.config.AskHostedAPI = func(ctx context.Context, _ string) error { return o.act(ctx, adminv1.ComponentHostedAPI) }
	api := httptest.NewServer(server.New(h.config))
	t.Cleanup(api.Close)
	h.url = api.URL
	return h
}

// flights are the operations in flight; the clusters have the same names.
var flights = []string{"create", "update", "scale", "delete", "quiet"}

// populateOperations stores a cluster on mgmt-1 for each operation in flight.
func (h *harness) populateOperations(t *testing.T) {
	t.Helper()
	began := time.Now().Add(-10 * time.Minute).UTC()
	entry := func(layer, state string) *clusterservicev1.LayerProgress {
		return &clusterservicev1.LayerProgress{Layer: layer, State: state, Since: timestamppb.New(began)}
	}
	for _, name := range flights {
		uid := "6f9619ff-8b86-4d01-b42d-" + strings.Repeat("0", 12-len(name)) + hexOf(name)
		id := "/subscriptions/" + subscription + "/resourceGroups/Group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
		key := must.Get(database.ResourceKey(id))(t)
		document := database.ClusterDocument{UID: uid, Generation: 1, ProvisioningState: hub.Succeeded, Cluster: hub.Cluster{Resource: hub.Resource{ID: id, Name: name, Location: "westus3"}}}
		c := &clusterservicev1.Cluster{Uid: uid, ResourceId: id, Generation: 1, Spec: &clusterservicev1.ClusterSpec{Name: name, Location: "westus3"},
			Status: &clusterservicev1.ClusterStatus{Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1, ClusterId: clusterID, ProvisionShard: "mgmt-1",
				ApiUrl: "https://127.0.0.1:1", Progress: []*clusterservicev1.LayerProgress{entry("placement", "Placed"), entry("maestro", "Published"), entry("management-cluster", "Applied"), entry("control-plane", "Available")}}}
		pool := &clusterservicev1.NodePool{Uid: uid[:35] + "f", ClusterUid: uid, ResourceId: id + "/nodePools/np", Generation: 1, Spec: &clusterservicev1.NodePoolSpec{Name: "np"},
			Status: &clusterservicev1.NodePoolStatus{Phase: clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_READY, ObservedGeneration: 1}}
		batch := h.db.NewBatch(subscription)
		begin := func(request database.OperationRequest, state hub.ProvisioningState, resource, uid string) {
			operation := "operation-of-" + name
			database.Create(batch, h.db.Operations(), database.OperationKey(subscription, "westus3", operation), database.OperationDocument{
				OperationID: operation, Request: request, ResourceID: resource, UID: uid, Generation: 1, Status: state, StartTime: began})
		}
		poolState := hub.Succeeded
		switch name {
		case "create":
			document.ProvisioningState, c.Status.Phase, c.Status.ObservedGeneration = hub.Provisioning, clusterservicev1.ClusterPhase_CLUSTER_PHASE_INSTALLING, 0
			c.Status.Progress[3] = entry("control-plane", "ControlPlaneComponentsNotAvailable")
			begin(database.CreateRequest, hub.Provisioning, id, uid)
		case "update":
			document.ProvisioningState, c.Status.Phase, c.Status.ObservedGeneration = hub.Updating, clusterservicev1.ClusterPhase_CLUSTER_PHASE_UPDATING, 0
			c.Status.Progress = append(c.Status.Progress, entry("azure", "RetryingDNS"))
			begin(database.UpdateRequest, hub.Updating, id, uid)
		case "scale":
			pool.Status.Phase, poolState = clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_UPDATING, hub.Updating
			pool.Status.Progress = []*clusterservicev1.LayerProgress{entry("node-pool", "WaitingForNodes")}
			begin(database.UpdateRequest, hub.Updating, pool.ResourceId, pool.Uid)
		case "delete":
			document.ProvisioningState, c.DeleteTime, c.Status.Phase = hub.Deleting, timestamppb.New(began), clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING
			c.Status.Deletion = &clusterservicev1.Deletion{Steps: []*clusterservicev1.DeletionStep{{Name: "hosted-cluster", Kind: "hosted-cluster", Layer: "management-cluster",
				State: clusterservicev1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Since: timestamppb.New(began)}}}
			begin(database.DeleteRequest, hub.Deleting, id, uid)
		}
		database.Create(batch, h.db.Clusters(), key, document)
		poolKey := must.Get(database.ResourceKey(pool.ResourceId))(t)
		database.Create(batch, h.db.NodePools(), poolKey, database.NodePoolDocument{UID: pool.Uid, ClusterUID: uid, Generation: 1, ProvisioningState: poolState,
			NodePool: hub.NodePool{Resource: hub.Resource{ID: pool.ResourceId, Name: "np"}}})
		must.Do(t, batch.Commit(t.Context()))
		h.fleet.clusters, h.fleet.nodePools = append(h.fleet.clusters, c), append(h.fleet.nodePools, pool)
	}
}

// hexOf returns the bytes of a name as characters of a UUID.
func hexOf(name string) string {
	return strings.Map(func(r rune) rune { return rune("0123456789abcdef"[r%16]) }, name)
}

// TestOutagesAreExplained is the matrix of dependency, fault and operation in flight, over real connections to the dependencies.
// The explanation names the component that is away, asks an SRE to act, and comes although the dependency does not respond.
func TestOutagesAreExplained(t *testing.T) {
	t.Parallel()
	for _, layer := range layers.Layers() {
		for _, fault := range []string{hangs, refuses, notReady, diskFull} {
			if fault == diskFull && layer != adminv1.ComponentCosmosDB && layer != adminv1.ComponentPostgreSQL && layer != adminv1.ComponentEtcd {
				continue // the others have no disk
			}
			t.Run(layer+" "+fault, func(t *testing.T) {
				t.Parallel()
				o := &outage{layer: layer, fault: fault}
				h := newRegion(t, o)
				var all sync.WaitGroup
				for _, name := range flights {
					all.Go(func() { h.checkOutage(t, o, name) })
				}
				all.Wait()
				if longest := time.Duration(o.longest.Load()); longest > explanationBudget {
					t.Errorf("admin waits up to %s for a dependency that does not respond", longest)
				}
			})
		}
	}
}

func (h *harness) checkOutage(t *testing.T, o *outage, name string) {
	var explained adminv1.Explanation
	if status, body := h.get(t, "reader", "/clusters/"+url.PathEscape(name)+"/explanation", &explained); status != http.StatusOK {
		t.Errorf("%s: %d %s", name, status, body)
		return
	}
	text := explained.Text()
	first := explained.Items[0]
	depends := true
	switch o.layer {
	case adminv1.ComponentFrontend:
		depends = false
	case adminv1.ComponentManagementWorker:
		depends = name == "delete"
	case adminv1.ComponentHostedAPI:
		depends = name != "create" && name != "delete"
	}
	if !depends {
		if first.Code == adminv1.ExplanationLayerAway {
			t.Errorf("%s does not depend on it:\n%s", name, text)
		}
		return
	}
	want := map[string]adminv1.ComponentState{hangs: adminv1.ComponentUnresponsive, refuses: adminv1.ComponentUnreachable, notReady: adminv1.ComponentNotReady, diskFull: adminv1.ComponentDiskFull}[o.fault]
	if first.Code != adminv1.ExplanationLayerAway || first.Layer != o.layer || first.State != string(want) || first.Responsible != adminv1.PartySRE {
		t.Errorf("%s: %s %s %s %s, want the outage %s:\n%s", name, first.Code, first.Layer, first.State, first.Responsible, want, text)
	}
	for _, item := range explained.Items {
		if item.Responsible == adminv1.PartyCustomer || item.Responsible == adminv1.PartyAzure || item.Code == adminv1.ExplanationReady {
			t.Errorf("%s: %s is responsible, with code %s:\n%s", name, item.Responsible, item.Code, text)
		}
	}
}

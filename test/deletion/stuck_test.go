package deletion

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	workv1 "open-cluster-management.io/api/work/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	csmaestro "github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

var (
	hostedClusters = schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}
	nodePools      = schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"}
	namespaces     = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	configMaps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// goneController is a finalizer without a controller.
const goneController = "backup.example.com/hook"

// patch changes an object on the management cluster.
func (r *region) patch(gvr schema.GroupVersionResource, namespace, name, patch string) {
	r.t.Helper()
	must.Get(r.objects.Resource(gvr).Namespace(namespace).Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "test"}))(r.t)
}

// addFinalizer adds a finalizer to an object.
func (r *region) addFinalizer(gvr schema.GroupVersionResource, namespace, name, finalizer string) {
	r.t.Helper()
	r.eventually("a finalizer on "+name, func() error {
		object, err := r.objects.Resource(gvr).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.SetFinalizers(append(object.GetFinalizers(), finalizer))
		_, err = r.objects.Resource(gvr).Namespace(namespace).Update(r.t.Context(), object, metav1.UpdateOptions{FieldManager: "test"})
		return err
	})
}

func (r *region) exists(gvr schema.GroupVersionResource, namespace, name string) bool {
	r.t.Helper()
	_, err := r.objects.Resource(gvr).Namespace(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatal(err)
	}
	return err == nil
}

// nothingLeft checks that both namespaces of the cluster and all of its works are gone.
func (c *cluster) nothingLeft() {
	c.r.t.Helper()
	for _, name := range []string{c.namespace, c.controlPlane} {
		c.r.eventually("namespace "+name+" is gone", func() error {
			if c.r.exists(namespaces, "", name) {
				return errors.New("it exists")
			}
			return nil
		})
	}
	left, err := c.r.reads.ListDeletionLeftovers(c.r.t.Context(), &csv1.ListDeletionLeftoversRequest{ClusterUid: c.uid})
	if err != nil || len(left.GetLeftovers()) > 0 {
		c.r.t.Errorf("leftovers: %v, %v", left, err)
	}
}

// TestStuckDeletions runs each scenario of docs/operators/stuck-deletion in one region. A scenario resolves by itself, or with
// the one command that it runs. Scenarios that stop no process run in parallel after the others, because most of their time is
// the deletion of namespaces.
func TestStuckDeletions(t *testing.T) {
	nightly.Only(t)
	r := newRegion(t)
	for _, scenario := range []struct {
		name     string
		parallel bool
		run      func(r *region)
	}{
		{"cloud-resources-gone", true, cloudResourcesGone},
		{"orphaned-namespace-bundle", false, orphanedNamespaceBundle},
		{"finalizer-of-a-gone-controller", true, finalizerOfAGoneController},
		{"terminating-namespace", true, terminatingNamespace},
		{"work-recreated-by-an-agent", true, workRecreatedByAnAgent},
		{"missed-deletion", false, missedDeletion},
		{"management-cluster-gone", false, managementClusterGone},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			if scenario.parallel {
				t.Parallel()
				own := *r
				own.t = t
				scenario.run(&own)
				return
			}
			outer := r.t
			r.t = t
			defer func() { r.t = outer }()
			scenario.run(r)
		})
	}
}

// cloudResourcesGone: HyperShift cannot destroy cloud resources because their resource group is gone. It stops waiting after
// ten minutes, which timeScale reduces to three seconds. Another fault extends the wait until the step was reported as stuck.
func cloudResourcesGone(r *region) {
	c := r.create("cloud")
	inject := func(faults string) {
		r.patch(hostedClusters, c.namespace, c.hosted, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, contract.FaultAnnotation, faults))
	}
	inject(string(contract.FaultCloudGone + "," + contract.FaultDeleteStuck))
	c.remove()
	c.stuckIn("hosted-cluster", "Finalizers hypershift.openshift.io/finalizer")
	inject(string(contract.FaultCloudGone))
	c.deleted()
	c.nothingLeft()
}

// orphanedNamespaceBundle: after the deletion of a cluster, a delayed message creates its namespaces bundle in Maestro again. The
// search for orphans finds and deletes it. A bundle without a deletion record would stay.
func orphanedNamespaceBundle(r *region) {
	c := r.create("orphaned")
	c.remove()
	c.deleted()
	c.nothingLeft()
	client := must.Get(csmaestro.NewClient("passthrough:///"+r.maestro.GRPC, fleet.Source, credentials.NewTLS(r.Identity(string(mesh.ClusterService)).ClientTLS(mesh.MaestroServer)), slog.New(slog.DiscardHandler)))(r.t)
	defer client.Close()
	name := "ocm-local-orphan"
	manifest := must.Get(json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}))(r.t)
	work := fleet.WorkName(fleet.Namespaces, c.id, "")
	bundle := &csmaestro.Bundle{ID: fleet.WorkID(shard, work, ""), Name: work, Consumer: shard, Manifests: []json.RawMessage{manifest},
		Configs: []workv1.ManifestConfigOption{{ResourceIdentifier: workv1.ResourceIdentifier{Resource: "namespaces", Name: name},
			UpdateStrategy: &workv1.UpdateStrategy{Type: workv1.UpdateStrategyTypeServerSideApply}}}}
	// Cluster Service is stopped, so that it does not delete the orphan before the namespace was observed.
	r.service.Stop()
	must.Get(client.Create(r.t.Context(), bundle))(r.t)
	r.eventually("the orphan exists", func() error {
		if !r.exists(namespaces, "", name) {
			return errors.New("not yet")
		}
		return nil
	})
	r.startService()
	r.eventually("the orphan is deleted", func() error {
		object, err := r.objects.Resource(namespaces).Get(r.t.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("namespace %s is %v", name, object.Object["status"])
	})
}

// finalizerOfAGoneController: a controller that no longer runs left a finalizer on the HostedCluster. One command makes the agent
// remove it.
func finalizerOfAGoneController(r *region) {
	c := r.create("finalizer")
	r.addFinalizer(hostedClusters, c.namespace, c.hosted, goneController)
	c.remove()
	stuck := c.stuckIn("hosted-cluster", goneController)
	if !slices.Contains(stuck.GetFinalizers(), goneController) {
		r.t.Errorf("reported finalizers: %v", stuck.GetFinalizers())
	}
	if shown := r.hcpctl("show", c.uid); !strings.Contains(shown, goneController) || !strings.Contains(shown, "stuck") {
		r.t.Errorf("hcpctl does not show the finalizer and that the step is stuck:\n%s", shown)
	}
	r.hcpctl("release", c.uid, "hosted-cluster", goneController, "--reason", "the backup controller was removed last week", "--ticket", "INC-7")
	status := c.deleted()
	if i := step(status, "hosted-cluster").GetActions(); len(i) != 1 || i[0].GetActor().GetTicket() != "INC-7" {
		r.t.Errorf("recorded actions are %v", i)
	}
	c.nothingLeft()
}

// terminatingNamespace: a foreign object in the cluster's namespace blocks the deletion of the namespace.
func terminatingNamespace(r *region) {
	c := r.create("namespace")
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": "left-behind", "namespace": c.namespace, "finalizers": []any{goneController}}}}
	must.Get(r.objects.Resource(configMaps).Namespace(c.namespace).Create(r.t.Context(), object, metav1.CreateOptions{}))(r.t)
	c.remove()
	c.stuckIn("namespaces", goneController+" in 1 resource instances")
	r.hcpctl("release", c.uid, "namespaces", goneController, "--reason", "its controller is gone", "--ticket", "INC-8")
	c.deleted()
	c.nothingLeft()
}

// workRecreatedByAnAgent: HyperShift deletes NodePools itself. An agent that still has the work of a pool would recreate it, so
// the works of pools are deleted first. A pool that is recreated anyway is deleted with the HostedCluster.
func workRecreatedByAnAgent(r *region) {
	c := r.create("recreated")
	pool := c.hosted + "-np1"
	object := must.Get(r.objects.Resource(nodePools).Namespace(c.namespace).Get(r.t.Context(), pool, metav1.GetOptions{}))(r.t)
	// The fault delays the deletion of the HostedCluster, so that there is time to recreate the pool.
	r.patch(hostedClusters, c.namespace, c.hosted, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, contract.FaultAnnotation, contract.FaultDeleteStuck))
	c.remove()
	c.until("without its pool's work", func(s *csv1.ClusterStatus) bool { return deletiongraph.Ended(step(s, "node-pool/np1")) })
	again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": object.GetAPIVersion(), "kind": "NodePool", "spec": object.Object["spec"],
		"metadata": map[string]any{"name": pool, "namespace": c.namespace}}}
	r.eventually("the NodePool is recreated", func() error {
		_, err := r.objects.Resource(nodePools).Namespace(c.namespace).Create(r.t.Context(), again, metav1.CreateOptions{FieldManager: "an-agent"})
		if apierrors.IsAlreadyExists(err) {
			return err
		}
		if err != nil {
			r.t.Fatal(err)
		}
		return nil
	})
	r.patch(hostedClusters, c.namespace, c.hosted, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, contract.FaultAnnotation))
	c.deleted()
	c.nothingLeft()
}

// missedDeletion: the agent is stopped when the deletion is sent, and Cluster Service is stopped when it is confirmed. Maestro
// sends the deletion again, and Cluster Service resyncs the status that it missed.
func missedDeletion(r *region) {
	c := r.create("missed")
	r.agent.Stop()
	c.remove()
	c.stuckIn("hosted-cluster", "Waiting for the agent of "+shard)
	r.service.Stop()
	r.startAgent()
	r.eventually("the HostedCluster is gone", func() error {
		if r.exists(hostedClusters, c.namespace, c.hosted) {
			return errors.New("it exists")
		}
		return nil
	})
	r.startService()
	c.deleted()
	c.nothingLeft()
}

// managementClusterGone: the agent stays unavailable and the steps are forced. When the agent returns, the leftovers are
// deleted.
func managementClusterGone(r *region) {
	c := r.create("away")
	r.agent.Stop()
	c.remove()
	c.stuckIn("node-pool/np1", "Waiting for the agent of "+shard)
	reason := []string{"--reason", "the management cluster is lost", "--ticket", "INC-9"}
	r.hcpctl(append([]string{"force", c.uid, "node-pool/np1"}, reason...)...)
	c.stuckIn("hosted-cluster", "")
	r.hcpctl(append([]string{"force", c.uid, "hosted-cluster"}, reason...)...)
	c.stuckIn("namespaces", "")
	r.hcpctl(append([]string{"force", c.uid, "namespaces"}, reason...)...)
	status := c.deleted()
	for _, name := range []string{"node-pool/np1", "hosted-cluster", "namespaces"} {
		if s := step(status, name); s.GetState() != csv1.DeletionStepState_DELETION_STEP_STATE_FORCED || s.GetForce().GetLeftBehind() == "" {
			r.t.Errorf("step %v", s)
		}
	}
	if left := r.hcpctl("leftovers", c.uid); strings.Count(left, "is lost") != 3 {
		r.t.Errorf("leftovers:\n%s", left)
	}
	r.startAgent()
	r.eventually("the leftovers are gone", func() error {
		left, err := r.reads.ListDeletionLeftovers(r.t.Context(), &csv1.ListDeletionLeftoversRequest{ClusterUid: c.uid})
		if err == nil && len(left.GetLeftovers()) > 0 {
			err = fmt.Errorf("left: %v", left.GetLeftovers())
		}
		return err
	})
	c.nothingLeft()
}

package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	workclientset "open-cluster-management.io/api/client/work/clientset/versioned"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/ocm/pkg/work/helper"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
)

// restoreApplied creates the objects of a work on the cluster as an agent had applied them, like the restore of a backup.
func (r *region) restoreApplied(consumer, work, configMap string) (name string) {
	r.t.Helper()
	ctx := r.t.Context()
	works := must.Get(workclientset.NewForConfig(cluster(r.t)))(r.t)
	kube := must.Get(kubernetes.NewForConfig(cluster(r.t)))(r.t)
	hash := helper.HubHash("maestro")
	name = hash + "-" + work
	applied := must.Get(works.WorkV1().AppliedManifestWorks().Create(ctx, &workv1.AppliedManifestWork{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{workv1.AppliedManifestWorkFinalizer}},
		Spec:       workv1.AppliedManifestWorkSpec{HubHash: hash, AgentID: consumer, ManifestWorkName: work},
	}, metav1.CreateOptions{}))(r.t)
	object := must.Get(kube.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap,
		OwnerReferences: []metav1.OwnerReference{*helper.NewAppliedManifestWorkOwner(applied)}}}, metav1.CreateOptions{}))(r.t)
	applied.Status.AppliedResources = []workv1.AppliedManifestResourceMeta{{Version: "v1", UID: string(object.UID),
		ResourceIdentifier: workv1.ResourceIdentifier{Resource: "configmaps", Name: configMap, Namespace: "default"}}}
	must.Get(works.WorkV1().AppliedManifestWorks().UpdateStatus(ctx, applied, metav1.UpdateOptions{}))(r.t)
	return name
}

// TestRestoredClusterLosesDeletedWorks: a management cluster that was restored from a backup had works again that were deleted since,
// and neither the server nor the agent deleted them.
func TestRestoredClusterLosesDeletedWorks(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	options := agent.Options{Cluster: cluster(t), OrphanInterval: 200 * time.Millisecond}
	first := r.StartAgent(consumer, options)
	cs := r.source(s, "cluster-service")
	cs.subscribe()
	kept, deleted := newBundle(consumer, "x"), newBundle(consumer, "x")
	for _, b := range []bundle{kept, deleted} {
		cs.must("create", b)
		cs.untilApplied(b.ID, 1)
	}
	cs.must("delete", deleted)
	cs.untilDeleted(deleted.ID)
	first.Stop()

	// The server must not delete a work that it has no record of.
	unknown := uuid.NewString()
	restored := r.restoreApplied(consumer, deleted.ID, deleted.configMapName())
	foreign := r.restoreApplied(consumer, unknown, "foreign-"+unknown)
	r.StartAgent(consumer, options)
	r.untilGone(deleted.configMapName())
	works := must.Get(workclientset.NewForConfig(cluster(t)))(t)
	eventually.Soon(t, "its AppliedManifestWork is deleted", func() error {
		_, err := works.WorkV1().AppliedManifestWorks().Get(t.Context(), restored, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			err = fmt.Errorf("%s exists", restored)
		}
		return err
	})

	if _, err := works.WorkV1().AppliedManifestWorks().Get(t.Context(), foreign, metav1.GetOptions{}); err != nil {
		t.Errorf("AppliedManifestWork of an unknown work: %v", err)
	}
	if _, err := r.configMap(kept.configMapName()); err != nil {
		t.Errorf("object of an existing work: %v", err)
	}
}

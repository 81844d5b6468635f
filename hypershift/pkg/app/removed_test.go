package app

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// customersObject is an object of the cluster's owner, which exists as long as the data of the control plane.
const customersObject = "orders"

// createWithData creates a cluster of process fidelity with one node and an object of its owner.
func (s *sample) createWithData(t *testing.T) {
	t.Helper()
	s.createPrerequisites(t)
	s.setPool(t, int64(1), "spec", "replicas")
	s.apply(t, s.cluster)
	s.apply(t, s.pool)
	s.waitCluster(t, available)
	s.waitPool(t, poolReady(1))
	must.Get(s.hosted(t).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: customersObject}}, metav1.CreateOptions{}))(t)
}

// uidOf returns the UID of an object on the management cluster; empty if it does not exist.
func (s *sample) uidOf(t *testing.T, object client.Object, key client.ObjectKey) types.UID {
	t.Helper()
	if err := s.client.Get(t.Context(), key, object); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return object.GetUID()
}

func (s *sample) namespaceUID(t *testing.T) types.UID {
	t.Helper()
	return s.uidOf(t, &corev1.Namespace{}, client.ObjectKey{Name: s.controlPlane()})
}

func (s *sample) controlPlaneUID(t *testing.T) types.UID {
	t.Helper()
	return s.uidOf(t, &hyperv1.HostedControlPlane{}, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name})
}

// awaitRebuilt waits until the HostedControlPlane is another one and serves with one node. The HostedCluster keeps the conditions
// of the former one, and the former API server serves until the next one starts, so the conditions of the HostedControlPlane count.
func (s *sample) awaitRebuilt(t *testing.T, before types.UID) {
	t.Helper()
	eventually.Soon(t, "the control plane is built again", func() error {
		var now hyperv1.HostedControlPlane
		uid := s.uidOf(t, &now, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name})
		if uid == "" || uid == before {
			return fmt.Errorf("the HostedControlPlane is %q, before %q%s", uid, before, s.remainingObjects(t))
		}
		if !meta.IsStatusConditionTrue(now.Status.Conditions, string(hyperv1.HostedControlPlaneAvailable)) {
			return fmt.Errorf("the HostedControlPlane %s is not available: %+v", uid, now.Status.Conditions)
		}
		if err := available(s.hostedCluster(t)); err != nil {
			return err
		}
		_, err := s.nodesReady(t, 1)
		return err
	})
}

// hasCustomersObject reports whether the object of the cluster's owner exists.
func (s *sample) hasCustomersObject(t *testing.T) bool {
	t.Helper()
	_, err := s.hosted(t).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), customersObject, metav1.GetOptions{})
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return !apierrors.IsNotFound(err)
}

// TestRemovedNamespaceIsRebuiltEmpty deletes the namespace of a control plane. The HostedCluster stays and gets a new, empty
// control plane, as from the real operator: nothing of its own status shows that the data is gone.
func TestRemovedNamespaceIsRebuiltEmpty(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.sample(t, "emptied")
	s.createWithData(t)
	cluster, namespace, controlPlane := s.hostedCluster(t).UID, s.namespaceUID(t), s.controlPlaneUID(t)

	must.Do(t, s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.controlPlane()}}))
	s.awaitRebuilt(t, controlPlane)
	if now := s.namespaceUID(t); now == namespace || now == "" {
		t.Errorf("the namespace is %q, before %q", now, namespace)
	}
	if now := s.hostedCluster(t).UID; now != cluster {
		t.Errorf("the HostedCluster is %q, before %q", now, cluster)
	}
	if s.hasCustomersObject(t) {
		t.Error("the new control plane has data of the removed one")
	}
	s.waitPool(t, poolReady(1))
	s.delete(t)
	s.expectNothingRuns(t)
}

// TestRemovedHostedControlPlaneKeepsItsData deletes only the HostedControlPlane. The volumes of etcd belong to the namespace, so
// the next one continues with the data.
func TestRemovedHostedControlPlaneKeepsItsData(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), withProcessFidelity))
	s := m.sample(t, "kept")
	s.createWithData(t)
	namespace, controlPlane := s.namespaceUID(t), s.controlPlaneUID(t)

	must.Do(t, s.client.Delete(t.Context(), &hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: s.name}}))
	s.awaitRebuilt(t, controlPlane)
	if now := s.namespaceUID(t); now != namespace {
		t.Errorf("the namespace is %q, before %q", now, namespace)
	}
	if !s.hasCustomersObject(t) {
		t.Error("the data was removed with the HostedControlPlane")
	}
	s.delete(t)
	s.expectNothingRuns(t)
}

// testRemovedNamespace deletes the namespace of a control plane while an object in it has a finalizer. Until the
// namespace is gone the HostedCluster has no control plane and reports why.
func testRemovedNamespace(t *testing.T, m *managementCluster) {
	s := m.available(t, "held")
	controlPlane := s.controlPlaneUID(t)
	const finalizer = "test.hcpmesh.io/held"
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.controlPlane(), Name: "held", Finalizers: []string{finalizer}}}
	must.Do(t, s.client.Create(t.Context(), held))
	must.Do(t, s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.controlPlane()}}))
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationSucceeded))
		if c == nil || c.Status != metav1.ConditionFalse || meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable)) {
			return fmt.Errorf("the conditions are %v", hc.Status.Conditions)
		}
		return nil
	})
	if now := s.controlPlaneUID(t); now != "" {
		t.Errorf("HostedControlPlane %s exists in a namespace that is being deleted", now)
	}
	must.Do(t, s.client.Patch(t.Context(), held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if now := s.controlPlaneUID(t); now == "" || now == controlPlane {
			return errors.New("the control plane is not built again yet")
		}
		return available(hc)
	})
	s.delete(t)
}

// TestSweepRemovedNamespace crashes the runtime at each of its writes while it completes the removal of a control plane by another
// client and builds it again.
func TestSweepRemovedNamespace(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	var removed types.UID
	newCrashRuntime(t).sweep(t, "n", createAndSettle, func(t *testing.T, s *sample) {
		removed = s.namespaceUID(t)
		must.Do(t, s.client.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.controlPlane()}}))
	}, func(s *sample) error {
		var namespace corev1.Namespace
		if err := s.client.Get(context.Background(), client.ObjectKey{Name: s.controlPlane()}, &namespace); err != nil {
			return err
		}
		if namespace.UID == removed {
			return errors.New("the namespace still exists")
		}
		return settledAt("4.20.8")(s)
	})
}

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// sweepClusters have no controller manager. The tests themselves implement the namespace controller, because the real
// one waits for some seconds before it empties a namespace.
var sweepClusters kubeapitest.Pool

// crashRuntime is a runtime that crashes at its writes to the management cluster.
type crashRuntime struct {
	*managementCluster
	crashsweep.Process
	t        *testing.T
	scheme   *runtime.Scheme
	instance atomic.Pointer[observedRuntime] // the newest
}

// observedRuntime is a runtime with an observer of its controllers.
type observedRuntime struct {
	*Runtime
	observer *observer
}

func newCrashRuntime(t *testing.T) *crashRuntime {
	t.Helper()
	m := &crashRuntime{t: t, managementCluster: &managementCluster{Cluster: sweepClusters.Cluster(t, func(context.Context, *kubeapitest.Cluster) error { return nil })}}
	config := must.Get(clientcmd.BuildConfigFromFlags("", m.Kubeconfig()))(t)
	config.QPS, config.Burst = -1, 0
	m.scheme = must.Get(contract.NewScheme())(t)
	m.client = must.Get(client.NewWithWatch(config, client.Options{Scheme: m.scheme}))(t)
	options := m.options(t.TempDir(), nil)
	must.Do(t, installCRDs(t.Context(), m.client, options.CRDDir))
	options.CRDDir = ""
	config = rest.CopyConfig(config)
	config.Wrap(m.KubernetesTransport)
	m.runNamespaceController()
	m.Start(func() func() { return m.startRuntime(options, config) })
	t.Cleanup(func() {
		m.Stop()
		m.expectNoHostedClusters(t)
	})
	return m
}

// startRuntime starts a runtime and returns a function that stops it.
func (m *crashRuntime) startRuntime(options Options, config *rest.Config) (end func()) {
	level := slog.LevelError
	if testing.Verbose() {
		level = slog.LevelWarn
	}
	instance := &observedRuntime{New(options, slog.New(slog.NewTextHandler(m.t.Output(), &slog.HandlerOptions{Level: level}))), newObserver(m.scheme)}
	instance.newCache, instance.newQueue = instance.observer.newCache, instance.observer.newQueue
	m.instance.Store(instance)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A runtime that crashes during its start may return the error.
		if err := instance.RunWith(ctx, config); err != nil && !errors.Is(err, crashsweep.ErrCrashed) {
			m.t.Errorf("the runtime failed: %v", err)
		}
	}()
	return func() { cancel(); <-done }
}

// checkIdle returns nil if the runtime reconciles, and has read and handled all changes of the objects on the management cluster.
func (m *crashRuntime) checkIdle() error {
	return m.Idle(func() error {
		instance := m.instance.Load()
		if err := instance.Ready(context.Background()); err != nil {
			return err
		}
		return instance.observer.checkIdle(context.Background(), m.client)
	})
}

// sweep runs a scenario with a crash at every point. prepare creates the objects for it with a runtime that does not
// crash. run performs the scenario, and reached returns nil when it is complete. sweep compares snapshots of the idle
// runtime, which has nothing left to do that would change them.
func (m *crashRuntime) sweep(t *testing.T, id string, prepare, run func(t *testing.T, s *sample), reached func(s *sample) error) {
	crashsweep.Sweep(t, crashsweep.Options{}, func(t *testing.T, d *crashsweep.Injector) any {
		s := m.sample(t, fmt.Sprintf("%s%d", id, d.Seed()))
		s.createPrerequisites(t)
		if prepare != nil {
			prepare(t, s)
			eventually.Soon(t, "the runtime is idle", m.checkIdle)
		}
		var snapshot map[string]any
		m.During(d, func() {
			run(t, s)
			eventually.Soon(t, "the scenario is complete", func() error { return errors.Join(m.checkIdle(), reached(s)) })
			snapshot = s.snapshot(t)
		})
		s.clear(t)
		return snapshot
	})
}

// clear deletes the cluster if it exists, and waits until all its objects are gone.
func (s *sample) clear(t *testing.T) {
	t.Helper()
	hc := &hyperv1.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
	if err := s.client.Delete(t.Context(), hc); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	s.awaitGone(t)
	requests := &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: s.name}}
	if err := s.client.Delete(t.Context(), requests); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// runNamespaceController empties namespaces that are being deleted and removes their finalizers, until the test ends.
func (m *crashRuntime) runNamespaceController() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			watcher, err := m.client.Watch(ctx, &corev1.NamespaceList{})
			if err != nil {
				continue
			}
			for event := range watcher.ResultChan() {
				namespace, ok := event.Object.(*corev1.Namespace)
				if !ok || event.Type == watch.Deleted || namespace.DeletionTimestamp.IsZero() {
					continue
				}
				for ctx.Err() == nil {
					if err := m.finalize(ctx, namespace); err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
						break
					}
				}
			}
		}
	})
	m.t.Cleanup(func() { cancel(); group.Wait() })
}

// finalize deletes all objects of a namespace, and removes its finalizer when it is empty.
func (m *crashRuntime) finalize(ctx context.Context, namespace *corev1.Namespace) error {
	for _, kind := range []struct {
		object client.Object
		list   client.ObjectList
	}{
		{&hyperv1.HostedControlPlane{}, &hyperv1.HostedControlPlaneList{}}, {&hyperv1.ControlPlaneComponent{}, &hyperv1.ControlPlaneComponentList{}},
		{&corev1.Secret{}, &corev1.SecretList{}}, {&corev1.ConfigMap{}, &corev1.ConfigMapList{}},
		{&certificatesv1alpha1.CertificateSigningRequestApproval{}, &certificatesv1alpha1.CertificateSigningRequestApprovalList{}},
		{&certificatesv1alpha1.CertificateRevocationRequest{}, &certificatesv1alpha1.CertificateRevocationRequestList{}},
	} {
		if err := m.client.DeleteAllOf(ctx, kind.object, client.InNamespace(namespace.Name)); err != nil {
			return err
		}
		if err := m.client.List(ctx, kind.list, client.InNamespace(namespace.Name)); err != nil {
			return err
		}
		if meta.LenList(kind.list) > 0 {
			return fmt.Errorf("%T still exist in %s", kind.object, namespace.Name)
		}
	}
	namespace.Spec.Finalizers = nil
	return m.client.SubResource("finalize").Update(ctx, namespace)
}

// settledAt returns a check that the control plane has completed a version and the pool has its nodes at it.
func settledAt(version string) func(*sample) error {
	return func(s *sample) error {
		var hc hyperv1.HostedCluster
		if err := s.client.Get(context.Background(), s.key(), &hc); err != nil {
			return err
		}
		if hc.Status.Version == nil || len(hc.Status.Version.History) == 0 || hc.Status.Version.History[0].Version != version || hc.Status.Version.History[0].State != "Completed" {
			return fmt.Errorf("the cluster's version is %+v", hc.Status.Version)
		}
		var pool hyperv1.NodePool
		if err := s.client.Get(context.Background(), client.ObjectKeyFromObject(s.pool), &pool); err != nil {
			return err
		}
		if pool.Status.Version != version {
			return fmt.Errorf("the pool's version is %q", pool.Status.Version)
		}
		return errors.Join(available(&hc), poolReady(2)(&pool))
	}
}

// createWithTwoNodes creates a cluster with a pool of two nodes.
func createWithTwoNodes(t *testing.T, s *sample) {
	t.Helper()
	s.setPool(t, int64(2), "spec", "replicas")
	s.apply(t, s.cluster)
	s.apply(t, s.pool)
}

func createAndSettle(t *testing.T, s *sample) {
	t.Helper()
	createWithTwoNodes(t, s)
	eventually.Soon(t, "the cluster is settled", func() error { return settledAt("4.20.8")(s) })
}

// TestSweepCreation crashes the runtime at each of its writes while a cluster with a node pool is created.
func TestSweepCreation(t *testing.T) {
	t.Parallel()
	newCrashRuntime(t).sweep(t, "c", nil, createWithTwoNodes, settledAt("4.20.8"))
}

// TestSweepUpgrade does the same while the control plane and then the pool are upgraded.
func TestSweepUpgrade(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	newCrashRuntime(t).sweep(t, "u", createAndSettle, func(t *testing.T, s *sample) {
		s.set(t, image(t, "4.20.15"), "spec", "release", "image")
		s.apply(t, s.cluster)
		s.setPool(t, image(t, "4.20.15"), "spec", "release", "image")
		s.apply(t, s.pool)
	}, settledAt("4.20.15"))
}

// TestSweepRevocation does the same while a class of credentials is revoked of which one was issued, and one of another
// class is issued.
func TestSweepRevocation(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	newCrashRuntime(t).sweep(t, "r", func(t *testing.T, s *sample) {
		createAndSettle(t, s)
		s.certificate(t, s.name, s.request(t, s.name, contract.CustomerBreakGlass, "system:customer-break-glass:system-admin"))
	}, func(t *testing.T, s *sample) {
		crr := &certificatesv1alpha1.CertificateRevocationRequest{ObjectMeta: metav1.ObjectMeta{Name: "revocation", Namespace: s.controlPlane()},
			Spec: certificatesv1alpha1.CertificateRevocationRequestSpec{SignerClass: string(contract.CustomerBreakGlass)}}
		must.Do(t, s.client.Create(t.Context(), crr, workAgent))
		s.request(t, s.name+"-sre", contract.SREBreakGlass, "system:sre-break-glass:ada")
	}, func(s *sample) error {
		var crr certificatesv1alpha1.CertificateRevocationRequest
		if err := s.client.Get(context.Background(), client.ObjectKey{Namespace: s.controlPlane(), Name: "revocation"}, &crr); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(crr.Status.Conditions, certificatesv1alpha1.PreviousCertificatesRevokedType) {
			return fmt.Errorf("the revocation's conditions are %v", crr.Status.Conditions)
		}
		var request certificatesv1.CertificateSigningRequest
		if err := s.client.Get(context.Background(), client.ObjectKey{Name: s.name + "-sre"}, &request); err != nil {
			return err
		}
		if len(request.Status.Certificate) == 0 {
			return errors.New("the other class's request is not signed")
		}
		return nil
	})
}

// TestSweepKeyRotation does the same while the encryption key of etcd's data gets a new version.
func TestSweepKeyRotation(t *testing.T) {
	nightly.Only(t)
	t.Parallel()
	const next = "fedcba9876543210fedcba9876543210"
	newCrashRuntime(t).sweep(t, "k", createAndSettle, func(t *testing.T, s *sample) {
		s.set(t, next, "spec", "secretEncryption", "kms", "azure", "activeKey", "keyVersion")
		s.apply(t, s.cluster)
	}, func(s *sample) error {
		var hc hyperv1.HostedCluster
		if err := s.client.Get(context.Background(), s.key(), &hc); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(hc.Status.Conditions, "EtcdDataEncryptionUpToDate"); c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != hc.Generation {
			return fmt.Errorf("EtcdDataEncryptionUpToDate is %v at generation %d", c, hc.Generation)
		}
		return nil
	})
}

// TestSweepDeletion does the same while a cluster with a node pool and a credential is deleted. It was verified with an
// injected bug: if hostedcluster's delete calls releaseSecrets after it removes the HostedCluster's finalizer, seed 21,
// finds secrets that the restarted runtime does not delete.
func TestSweepDeletion(t *testing.T) {
	t.Parallel()
	newCrashRuntime(t).sweep(t, "d", func(t *testing.T, s *sample) {
		createAndSettle(t, s)
		s.certificate(t, s.name, s.request(t, s.name, contract.CustomerBreakGlass, "system:customer-break-glass:system-admin"))
	}, func(t *testing.T, s *sample) {
		must.Do(t, s.client.Delete(t.Context(), s.hostedCluster(t)))
	}, func(s *sample) error {
		for _, gone := range []struct {
			key    client.ObjectKey
			object client.Object
		}{
			{s.key(), &hyperv1.HostedCluster{}}, {client.ObjectKey{Name: s.controlPlane()}, &corev1.Namespace{}},
		} {
			if err := s.client.Get(context.Background(), gone.key, gone.object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T still exists: %v, finalizers %s", gone.object, err, strings.Join(gone.object.GetFinalizers(), ", "))
			}
		}
		return nil
	})
}

package app

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func image(t *testing.T, version string) string {
	t.Helper()
	catalog := must.Get(release.Default())(t)
	r, known := catalog.Exact(version)
	if !known {
		t.Fatalf("the catalogue has no %s", version)
	}
	return r.Image
}

// TestContract runs tests that are cheap in status fidelity on one management cluster with one runtime. It is not parallel, because the tests that
// wait for the management cluster would prevent its cases from running.
func TestContract(t *testing.T) {
	m := newManagementCluster(t)
	m.startRuntime(t, m.options(t.TempDir(), nil))
	for name, test := range map[string]func(*testing.T, *managementCluster){
		"Coexistence":       testCoexistence,
		"Objects":           testObjects,
		"Upgrade":           testUpgrade,
		"UnnamedImage":      testUnnamedImage,
		"MissingPullSecret": testMissingPullSecret,
		"SigningKey":        testInvalidSigningKey,
		"Paused":            testPaused,
		"NodePoolDeleted":   testNodePoolDeleted,
		"Autoscaling":       testAutoscaling,
		"DeletedAtOnce":     testDeletedAtOnce,
		"SameNameAgain":     testSameNameAgain,
		"DeleteStuck":       testDeleteStuck,
		"GracePeriod":       testInvalidGracePeriod,
		"Version":           testNodesCompleteVersion,
		"Authentication":    testReportedAuthentication,
		"BreakGlass":        testReportedBreakGlass,
		"RemovedNamespace":  testRemovedNamespace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time of a case is the deletion of namespaces
			test(t, m)
		})
	}
}

// testCoexistence applies the same manifests repeatedly, as a work agent does. It expects that both field managers keep
// their fields, and that an apply without changes causes no write.
func testCoexistence(t *testing.T, m *managementCluster) {
	s := m.sample(t, "coexist")
	unset := s.cluster.Object["spec"].(map[string]any)
	delete(unset, "clusterID")
	delete(unset, "infraID")
	s.createWithPool(t)
	s.waitPool(t, poolReady(3))
	hc := s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if hc.Annotations[contract.HasBeenAvailableAnnotation] == "" || hc.Status.Version.History[0].State != "Completed" {
			return errors.New("not settled")
		}
		return nil
	})
	if hc.Spec.ClusterID == "" || hc.Spec.InfraID == "" || !slices.Contains(hc.Finalizers, contract.Finalizer) {
		t.Errorf("clusterID %q, infraID %q, finalizers %v", hc.Spec.ClusterID, hc.Spec.InfraID, hc.Finalizers)
	}
	for range 3 {
		s.apply(t, s.cluster)
		s.apply(t, s.pool)
	}
	after := s.hostedCluster(t)
	if after.Generation != hc.Generation || after.Spec.ClusterID != hc.Spec.ClusterID {
		t.Errorf("an apply without changes increased generation %d to %d", hc.Generation, after.Generation)
	}
	if after.ResourceVersion != hc.ResourceVersion {
		t.Errorf("an apply without changes caused a write: %s", cmp.Diff(hc, after))
	}

	s.set(t, []any{"10.0.0.0/8"}, "spec", "networking", "apiServer", "allowedCIDRBlocks")
	s.apply(t, s.cluster)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if hc.Status.Version.ObservedGeneration != hc.Generation {
			return fmt.Errorf("observed generation %d of %d", hc.Status.Version.ObservedGeneration, hc.Generation)
		}
		return available(hc)
	})
	hcp := get[hyperv1.HostedControlPlane](t, s.client, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name})
	if blocks := hcp.Spec.Networking.APIServer.AllowedCIDRBlocks; len(blocks) != 1 || blocks[0] != "10.0.0.0/8" {
		t.Errorf("the change was not copied to the control plane: %v", blocks)
	}

	managers := map[string]string{}
	for _, entry := range s.hostedCluster(t).ManagedFields {
		managers[entry.Manager+" "+entry.Subresource] = string(entry.Operation)
	}
	want := map[string]string{"work-agent ": "Apply", contract.OperatorManager + " ": "Update", contract.OperatorManager + " status": "Update"}
	if diff := cmp.Diff(want, managers); diff != "" {
		t.Errorf("managers of the HostedCluster (-want +got):\n%s", diff)
	}
	pool := get[hyperv1.NodePool](t, s.client, client.ObjectKeyFromObject(s.pool))
	if marketplace := pool.Spec.Platform.Azure.Image.AzureMarketplace; marketplace.Publisher != "azureopenshift" || marketplace.SKU != "420-v2" {
		t.Errorf("marketplace image: %+v", marketplace)
	}
	if len(pool.OwnerReferences) != 1 || pool.OwnerReferences[0].UID != hc.UID || !slices.Contains(pool.Finalizers, contract.Finalizer) {
		t.Errorf("owners %v, finalizers %v", pool.OwnerReferences, pool.Finalizers)
	}
	s.delete(t)
}

// testObjects checks the objects that consumers read in the two namespaces.
func testObjects(t *testing.T, m *managementCluster) {
	s := m.sample(t, "objects")
	s.create(t)
	hc := s.waitCluster(t, available)
	for key, field := range map[client.ObjectKey]string{
		{Namespace: s.namespace, Name: hc.Status.KubeConfig.Name}:        "kubeconfig",
		{Namespace: s.namespace, Name: hc.Status.CustomKubeconfig.Name}:  "kubeconfig",
		{Namespace: s.namespace, Name: hc.Status.KubeadminPassword.Name}: "password",
		{Namespace: s.namespace, Name: "kube-apiserver-tls-cert"}:        "tls.crt",
		{Namespace: s.controlPlane(), Name: "kube-apiserver-tls-cert"}:   "tls.crt",
		{Namespace: s.controlPlane(), Name: "admin-kubeconfig"}:          "kubeconfig",
		{Namespace: s.controlPlane(), Name: "pull-secret"}:               corev1.DockerConfigJsonKey,
	} {
		var secret corev1.Secret
		if err := s.client.Get(t.Context(), key, &secret); err != nil || len(secret.Data[field]) == 0 {
			t.Errorf("Secret %s has no %s: %v", key, field, err)
		}
	}
	namespace := get[corev1.Namespace](t, s.client, client.ObjectKey{Name: s.controlPlane()})
	if namespace.Labels[contract.HostedControlPlaneLabel] != "true" {
		t.Errorf("namespace: labels %v", namespace.Labels)
	}
	var components hyperv1.ControlPlaneComponentList
	must.Do(t, s.client.List(t.Context(), &components, client.InNamespace(s.controlPlane())))
	for _, component := range components.Items {
		if !meta.IsStatusConditionTrue(component.Status.Conditions, "Available") || !meta.IsStatusConditionTrue(component.Status.Conditions, "RolloutComplete") || component.Status.Version != "4.20.8" {
			t.Errorf("component %s: %+v", component.Name, component.Status)
		}
	}
	if len(components.Items) == 0 {
		t.Error("no components")
	}
	s.delete(t)
}

// testUnnamedImage checks that a node pool of a release before 4.20 gets machines only if its spec names the image of nodes.
func testUnnamedImage(t *testing.T, m *managementCluster) {
	s := m.sample(t, "image")
	s.setPool(t, image(t, "4.19.20"), "spec", "release", "image")
	s.createWithPool(t)
	s.waitPool(t, func(pool *hyperv1.NodePool) error {
		for _, c := range pool.Status.Conditions {
			if c.Type == hyperv1.NodePoolAllMachinesReadyConditionType && c.Reason == hyperv1.NodePoolNotFoundReason && poolCondition(pool, hyperv1.NodePoolValidGeneratedPayloadConditionType, "True") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", pool.Status.Conditions)
	})
	s.setPool(t, map[string]any{"imageGeneration": "Gen2", "publisher": "azureopenshift", "offer": "aro4", "sku": "419-v2", "version": "419.6.20250523"}, "spec", "platform", "azure", "image", "azureMarketplace")
	s.apply(t, s.pool)
	s.waitPool(t, poolReady(3))
	s.delete(t)
}

func testUpgrade(t *testing.T, m *managementCluster) {
	s := m.sample(t, "upgrade")
	s.createWithPool(t)
	s.waitPool(t, poolReady(3))
	s.waitCluster(t, available)

	s.setPool(t, image(t, "4.20.15"), "spec", "release", "image")
	s.apply(t, s.pool)
	s.waitPool(t, func(pool *hyperv1.NodePool) error {
		if !poolCondition(pool, hyperv1.NodePoolSupportedVersionSkewConditionType, "False") {
			return errors.New("a node pool newer than its cluster was accepted")
		}
		return nil
	})
	s.set(t, image(t, "4.20.15"), "spec", "release", "image")
	s.apply(t, s.cluster)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		history := hc.Status.Version.History
		if len(history) != 2 || history[0].Version != "4.20.15" || history[0].State != "Completed" {
			return fmt.Errorf("version history %+v", history)
		}
		if control := hc.Status.ControlPlaneVersion.History; len(control) != 1 || control[0].State != "Completed" {
			return fmt.Errorf("control plane version history %+v", control)
		}
		return available(hc)
	})
	s.waitPool(t, func(pool *hyperv1.NodePool) error {
		if pool.Status.Version != "4.20.15" {
			return fmt.Errorf("node pool is at %s: %+v", pool.Status.Version, pool.Status.NodesInfo)
		}
		return poolReady(3)(pool)
	})
	s.delete(t)
}

func testMissingPullSecret(t *testing.T, m *managementCluster) {
	s := m.sample(t, "pull")
	s.createPrerequisites(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pull-secret"}}
	must.Do(t, s.client.Delete(t.Context(), secret))
	s.apply(t, s.cluster)
	s.waitCluster(t, conditionIs(hyperv1.ReconciliationSucceeded, metav1.ConditionFalse))
	s.createPrerequisites(t)
	s.waitCluster(t, available)

	must.Do(t, s.client.Delete(t.Context(), secret))
	s.waitCluster(t, conditionIs(hyperv1.ReconciliationSucceeded, metav1.ConditionFalse, available))
	s.createPrerequisites(t)
	s.waitCluster(t, conditionIs(hyperv1.ReconciliationSucceeded, metav1.ConditionTrue, available))
	s.delete(t)
}

// testInvalidSigningKey gives a cluster keys for service-account tokens that the operator refuses: an elliptic one, and an RSA key in PKCS #8.
func testInvalidSigningKey(t *testing.T, m *managementCluster) {
	s := m.sample(t, "key")
	s.createPrerequisites(t)
	valid := must.Get(signingKey())(t)
	set := func(key []byte) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"data":{"key":%q}}`, base64.StdEncoding.EncodeToString(key))
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "sa-signing-key"}}
		must.Do(t, s.client.Patch(t.Context(), secret, client.RawPatch("application/merge-patch+json", patch), workAgent))
	}
	set(refusedKeys(t)["elliptic"])
	s.apply(t, s.cluster)
	s.waitCluster(t, refusesKey)
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: s.controlPlane()}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a cluster with a key that is refused has a control plane: %v", err)
	}
	set(valid)
	s.waitCluster(t, available)

	set(refusedKeys(t)["pkcs8"])
	s.waitCluster(t, conditionIs(hyperv1.ValidHostedClusterConfiguration, metav1.ConditionFalse, refusesKey, available))
	set(valid)
	s.waitCluster(t, conditionIs(hyperv1.ValidHostedClusterConfiguration, metav1.ConditionTrue, available))
	s.delete(t)
}

// refusedKeys returns keys for service-account tokens that the operator refuses.
func refusedKeys(t *testing.T) map[string][]byte {
	t.Helper()
	elliptic := must.Get(pki.NewAuthority("elliptic", time.Now()))(t)
	text := must.Get(signingKey())(t)
	key := must.Get(pki.ReadKey(text))(t)
	encoded := must.Get(x509.MarshalPKCS8PrivateKey(key))(t)
	return map[string][]byte{"elliptic": elliptic.Key, "pkcs8": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})}
}

// refusesKey returns nil if the HostedCluster reports that its key for service-account tokens is invalid.
func refusesKey(hc *hyperv1.HostedCluster) error {
	condition := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ValidHostedClusterConfiguration))
	if condition == nil || condition.Status != metav1.ConditionFalse || !strings.Contains(condition.Message, "invalid service account signing key") {
		return fmt.Errorf("ValidConfiguration is %+v", condition)
	}
	return nil
}

func testPaused(t *testing.T, m *managementCluster) {
	s := m.sample(t, "paused")
	s.set(t, "true", "spec", "pausedUntil")
	s.create(t)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationActive)); c == nil || c.Reason != hyperv1.ReconciliationPausedConditionReason {
			return errors.New("not paused")
		}
		return nil
	})
	if err := s.client.Get(t.Context(), client.ObjectKey{Name: s.controlPlane()}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
		t.Errorf("a paused cluster has a control plane: %v", err)
	}
	s.set(t, "false", "spec", "pausedUntil")
	s.apply(t, s.cluster)
	s.waitCluster(t, available)
	// The status continues to follow the control plane of a paused cluster.
	s.set(t, "true", "spec", "pausedUntil")
	s.annotate(contract.FaultAnnotation, string(contract.FaultEtcdQuorumLoss))
	s.apply(t, s.cluster)
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		progressing := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.HostedClusterProgressing))
		if progressing.Reason != hyperv1.BlockedReason || !meta.IsStatusConditionFalse(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable)) {
			return fmt.Errorf("%+v", hc.Status.Conditions)
		}
		return nil
	})
	s.set(t, "false", "spec", "pausedUntil")
	s.annotate(contract.FaultAnnotation, "")
	s.apply(t, s.cluster)
	s.waitCluster(t, available)
	s.delete(t)
}

func testNodePoolDeleted(t *testing.T, m *managementCluster) {
	s := m.sample(t, "pooldel")
	s.createWithPool(t)
	s.waitPool(t, poolReady(3))
	must.Do(t, s.client.Delete(t.Context(), s.pool))
	eventually.Soon(t, "the node pool and its record of machines are gone", func() error {
		if err := s.client.Get(t.Context(), client.ObjectKeyFromObject(s.pool), &hyperv1.NodePool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the node pool still exists: %v", err)
		}
		var records corev1.ConfigMapList
		if err := s.client.List(t.Context(), &records, client.InNamespace(s.controlPlane()), client.HasLabels{contract.MachinesLabel}); err != nil {
			return err
		}
		if len(records.Items) > 0 {
			return errors.New("its record of machines still exists")
		}
		return nil
	})
	if err := available(s.hostedCluster(t)); err != nil {
		t.Errorf("the deletion of the node pool affected the cluster: %v", err)
	}
	s.delete(t)
}

func testAutoscaling(t *testing.T, m *managementCluster) {
	s := m.sample(t, "scale")
	spec := s.pool.Object["spec"].(map[string]any)
	delete(spec, "replicas")
	spec["autoScaling"] = map[string]any{"min": int64(2), "max": int64(4)}
	s.createWithPool(t)
	s.waitPool(t, poolReady(2))
	s.pool.SetAnnotations(map[string]string{contract.AutoscaleAnnotation: "9"})
	s.apply(t, s.pool)
	s.waitPool(t, poolReady(4))
	s.delete(t)
}

// testDeletedAtOnce deletes clusters at different steps of their creation.
func testDeletedAtOnce(t *testing.T, m *managementCluster) {
	for name, reached := range map[string]func(*sample) error{
		"applied": func(*sample) error { return nil },
		"seen": func(s *sample) error {
			if hc := s.hostedCluster(t); len(hc.Finalizers) == 0 {
				return errors.New("it has no finalizer")
			}
			return nil
		},
		"namespace": func(s *sample) error {
			return s.client.Get(t.Context(), client.ObjectKey{Name: s.controlPlane()}, &corev1.Namespace{})
		},
		"plane": func(s *sample) error {
			return s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: s.name}, &hyperv1.HostedControlPlane{})
		},
		"secret": func(s *sample) error {
			return s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: contract.AdminKubeconfigSecret}, &corev1.Secret{})
		},
	} {
		s := m.sample(t, "once-"+name)
		s.create(t)
		s.apply(t, s.pool)
		eventually.Soon(t, "the creation reaches the step "+name, func() error { return reached(s) })
		must.Do(t, s.client.Delete(t.Context(), s.hostedCluster(t)))
		defer s.awaitGone(t)
	}
}

func testSameNameAgain(t *testing.T, m *managementCluster) {
	s := m.sample(t, "again")
	s.create(t)
	first := s.waitCluster(t, available)
	before := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: contract.AdminKubeconfig(s.name)})
	s.delete(t)
	s.create(t)
	second := s.waitCluster(t, available)
	after := get[corev1.Secret](t, s.client, client.ObjectKey{Namespace: s.namespace, Name: contract.AdminKubeconfig(s.name)})
	if first.UID == second.UID || cmp.Equal(before.Data, after.Data) {
		t.Error("the second incarnation has the credentials of the first")
	}
	s.delete(t)
}

func testDeleteStuck(t *testing.T, m *managementCluster) {
	s := m.sample(t, "stuck")
	s.annotate(contract.FaultAnnotation, string(contract.FaultDeleteStuck))
	s.create(t)
	s.waitCluster(t, available)
	must.Do(t, s.client.Delete(t.Context(), s.hostedCluster(t)))
	eventually.Soon(t, "the stuck deletion is reported", func() error {
		var hcp hyperv1.HostedControlPlane
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.controlPlane(), Name: s.name}, &hcp); err != nil {
			return err
		}
		if c := meta.FindStatusCondition(hcp.Status.Conditions, string(hyperv1.CloudResourcesDestroyed)); c == nil || c.Status != metav1.ConditionFalse {
			return errors.New("the stuck deletion is not reported")
		}
		return nil
	})
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.CloudResourcesDestroyed)); c == nil || c.Reason != "RemainingCloudResources" {
			return errors.New("the HostedCluster does not report the stuck deletion")
		}
		return nil
	})
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, contract.FaultAnnotation)
	must.Do(t, s.client.Patch(t.Context(), s.hostedCluster(t), client.RawPatch("application/merge-patch+json", patch)))
	s.awaitGone(t)
}

// testInvalidGracePeriod checks that a grace period that cannot be parsed stops a creation and a deletion.
func testInvalidGracePeriod(t *testing.T, m *managementCluster) {
	s := m.sample(t, "grace")
	failing := func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationSucceeded)); c == nil || c.Status != metav1.ConditionFalse ||
			!strings.Contains(c.Message, hyperv1.HCDestroyGracePeriodAnnotation) {
			return fmt.Errorf("ReconciliationSucceeded is %+v", c)
		}
		return nil
	}
	s.annotate(hyperv1.HCDestroyGracePeriodAnnotation, "soon")
	s.create(t)
	s.waitCluster(t, failing)
	s.annotate(hyperv1.HCDestroyGracePeriodAnnotation, "0s")
	s.apply(t, s.cluster)
	s.waitCluster(t, available)
	s.annotate(hyperv1.HCDestroyGracePeriodAnnotation, "soon")
	s.apply(t, s.cluster)
	s.waitCluster(t, failing)
	must.Do(t, s.client.Delete(t.Context(), s.hostedCluster(t)))
	s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if hc.DeletionTimestamp.IsZero() {
			return errors.New("not deleted")
		}
		return failing(hc)
	})
	s.annotate(hyperv1.HCDestroyGracePeriodAnnotation, "0s")
	s.apply(t, s.cluster)
	s.awaitGone(t)
}

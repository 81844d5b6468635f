package installation_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// stamp is the management cluster of the region whose configuration is for a machine.
const stamp = target + "/1"

// agentName is the chart, the namespace and the label of the pods of the agent.
const agentName = string(mesh.MaestroAgent)

// startManagementCluster starts a cluster of one node with the images of a management cluster. It has neither namespaces nor charts yet.
func startManagementCluster(ctx context.Context, t *testing.T) *region {
	t.Helper()
	return newRegion(ctx, t, stamp, builtImages(t), installation.ManagementImages(), func(configured values.Target) kubernetes.Options {
		hosts := must.Get(installation.StampHosts(configured))(t)
		return kubernetes.Options{Hosts: hosts, Nodes: []kubernetes.Node{{Name: "node-1"}},
			StorageClass: textOf(t, configured, "clusterService", "config", "etcd", "storageClass")}
	})
}

// supplyAgent creates what the chart of the agent expects in its namespace. private is the file with the key that opens sealed Secrets.
func (r *region) supplyAgent(private string) {
	r.t.Helper()
	r.supplier = &installation.Supplier{Target: r.target, Authority: r.authority, Secrets: r.secrets, Dir: r.dir,
		Given: map[string]string{r.text("managementCluster", "agent", "secretsKey", "secret"): private}}
	r.supply(agentName)
}

// TestManagementClusterRunsOnNode installs the charts of the Maestro agent and of the HyperShift runtime on a node. The Maestro server,
// PostgreSQL and the MQTT broker are outside of the cluster.
func TestManagementClusterRunsOnNode(t *testing.T) {
	transcript.Outcome(t, transcript.Installation)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	r := startManagementCluster(ctx, t)
	installer := &installation.Installer{Root: r.root, Cluster: r.cluster.Config(), Target: r.target, ReadyWithin: 4 * time.Minute, Log: t.Output()}
	must.Get(installer.Install(ctx, "cluster"))(t)
	consumer := r.text("managementCluster", "name")
	private, public := filepath.Join(r.dir, "agent-private.json"), filepath.Join(r.dir, "agent-public.json")
	must.Do(t, seal.CreatePair(private, public))
	keys := must.Get(seal.ReadPublic(public))(t)
	m := r.startMaestro()
	m.register(consumer)
	r.supplyAgent(private)
	began := time.Now()
	if _, err := installer.Install(ctx, agentName); err != nil {
		r.printPods(agentName)
		t.Fatal(err)
	}
	r.log("the agent was ready after %v", time.Since(began).Round(time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			r.printPods(agentName)
		}
	})

	bundle := m.applyBundle(consumer, keys)
	m.expectRefusals(consumer)
	m.replaceAgent(bundle)
	m.deleteBundle(bundle, worksSpace)
	r.installHypershift(installer)
	m.runHostedCluster(consumer, keys)
	for _, name := range []string{agentName, hypershiftName} {
		if result, err := installer.Install(ctx, name); err != nil || result.Changed {
			t.Errorf("a second installation of %s: %+v, %v, want no change", name, result, err)
		}
	}
}

// worksSpace is a namespace of a cluster, and workName the name of the objects in it.
const worksSpace, workName = "ocm-test-1", "work"

// object returns a manifest.
func object(apiVersion, kind, namespace, name string, fields map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	manifest := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	for key, value := range fields {
		manifest[key] = value
	}
	return manifest
}

// newBundle returns a bundle. Feedback is the object that is applied on the server's side, as Cluster Service publishes it, and from which
// the value at a path is reported.
func newBundle(consumer string, feedback map[string]any, path string, manifests ...map[string]any) map[string]any {
	configs := []any{}
	if feedback != nil {
		configs = append(configs, map[string]any{"resourceIdentifier": feedback, "updateStrategy": map[string]any{"type": "ServerSideApply"},
			"feedbackRules": []any{map[string]any{"type": "JSONPaths", "jsonPaths": []any{map[string]any{"name": "value", "path": path}}}}})
	}
	return map[string]any{"ID": uuid.NewString(), "Name": "test", "Consumer": consumer, "Manifests": manifests, "Configs": configs}
}

// configMap returns a ConfigMap with a value in the only key that the agent may write, dataKey. valuePath is the path of the value.
func configMap(namespace, value string) map[string]any {
	return object("v1", "ConfigMap", namespace, workName, map[string]any{"data": map[string]any{dataKey: value}})
}

const dataKey, valuePath = "ca-bundle.crt", `.data.ca-bundle\.crt`

// reports returns a condition of a status: the feedback has a value, and everything is applied.
func reports(value string) func(*workStatus) bool {
	return func(s *workStatus) bool {
		if !meta.IsStatusConditionTrue(s.Conditions, "Applied") {
			return false
		}
		for _, resource := range s.ResourceStatus {
			for _, feedback := range resource.StatusFeedbacks.Values {
				if feedback.Name == "value" && feedback.FieldValue.String == value {
					return true
				}
			}
		}
		return false
	}
}

// applyBundle publishes a namespace, a ConfigMap and a sealed Secret, and expects the status and the objects.
func (m *maestro) applyBundle(consumer string, keys *seal.PublicKeys) map[string]any {
	m.t.Helper()
	const value = "the value of the secret"
	secret := object("v1", "Secret", worksSpace, workName, map[string]any{"data": map[string]any{"key": base64.StdEncoding.EncodeToString([]byte(value))}})
	must.Do(m.t, seal.SealSecret(secret, consumer, keys))
	bundle := newBundle(consumer, map[string]any{"resource": "configmaps", "namespace": worksSpace, "name": workName}, valuePath,
		object("v1", "Namespace", "", worksSpace, nil), configMap(worksSpace, "one"), secret)
	began := time.Now()
	version := m.publish("create", bundle)
	m.awaitStatus(bundle, version, "the status of the new bundle", reports("one"))
	m.t.Logf("the status of a new bundle arrived after %v", time.Since(began).Round(time.Millisecond))
	opened, err := m.cluster.Client().CoreV1().Secrets(worksSpace).Get(m.ctx, workName, metav1.GetOptions{})
	if err != nil || string(opened.Data["key"]) != value {
		m.t.Errorf("the agent has not opened the Secret: %v", err)
	}
	return bundle
}

// expectRefusals publishes what the agent may not apply, and expects the reasons in the statuses.
func (m *maestro) expectRefusals(consumer string) {
	m.t.Helper()
	program := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example/program"}}}}
	administrator := map[string]any{"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": agentName, "namespace": agentName}}}
	for reason, c := range map[string]struct {
		manifest map[string]any
		want     string
	}{
		"an object outside of the namespaces of clusters": {object("v1", "ConfigMap", "kube-system", workName, nil), "namespaces of clusters"},
		"a program":                      {object("v1", "Pod", worksSpace, workName, program), "forbidden"},
		"the rights of an administrator": {object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "agent-administrator", administrator), "forbidden"},
	} {
		bundle := newBundle(consumer, nil, "", c.manifest)
		version := m.publish("create", bundle)
		m.awaitStatus(bundle, version, "the refusal of "+reason, func(s *workStatus) bool {
			return meta.IsStatusConditionFalse(s.Conditions, "Applied") && len(s.ResourceStatus) == 1 && strings.Contains(fmt.Sprint(s.ResourceStatus), c.want)
		})
	}
}

// replaceAgent deletes the pod of the agent, and expects that the next one applies a new version.
func (m *maestro) replaceAgent(bundle map[string]any) {
	m.t.Helper()
	before := m.pods(agentName)
	if len(before) != 1 {
		m.t.Fatalf("%d pods of the agent, want 1", len(before))
	}
	must.Do(m.t, m.cluster.Client().CoreV1().Pods(agentName).Delete(m.ctx, before[0].Name, metav1.DeleteOptions{}))
	eventually.Before(m.ctx, m.t, "the end of "+before[0].Name, func() error {
		_, err := m.cluster.Client().CoreV1().Pods(agentName).Get(m.ctx, before[0].Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it exists: %v", err)
	})
	bundle["Manifests"].([]map[string]any)[1] = configMap(worksSpace, "two")
	version := m.publish("update", bundle)
	m.awaitStatus(bundle, version, "the status of the changed bundle", reports("two"))
	if after := m.pods(agentName); len(after) != 1 || after[0].UID == before[0].UID || after[0].Status.Phase != corev1.PodRunning {
		m.t.Errorf("%d pods of the agent after its replacement", len(after))
	}
}

// deleteBundle deletes a bundle, and expects that the agent has deleted its namespace when it reports the deletion.
func (m *maestro) deleteBundle(bundle map[string]any, namespace string) {
	m.t.Helper()
	m.publish("delete", bundle)
	m.awaitStatus(bundle, 0, "the deletion of the bundle", func(s *workStatus) bool { return meta.IsStatusConditionTrue(s.Conditions, "Deleted") })
	if _, err := m.cluster.Client().CoreV1().Namespaces().Get(m.ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		m.t.Errorf("the namespace of the deleted bundle: %v", err)
	}
}

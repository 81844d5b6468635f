//go:build nightly

package app

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/netfault"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
)

// statedDifferences are the fields in which the operator and the runtime differ, with the reason. A field stands for those below it.
// hypershift/docs/behaviour.md has the same list. The test fails if an entry does not exist any more.
var statedDifferences = map[string]string{
	"HostedCluster.labels.hypershift.openshift.io/hosted-cluster-size":                            "the operator sets it with --enable-size-tagging, which the chart sets and the test does not",
	"HostedCluster.status.conditions.AutoNodeEnabled":                                             onlyOperator,
	"HostedCluster.status.conditions.ConfigOperatorReconciliationSucceeded":                       "newer than the operator",
	"HostedCluster.status.conditions.EtcdDataEncryptionUpToDate":                                  "newer than the operator",
	"HostedCluster.status.secretEncryption":                                                       "newer than the operator",
	"HostedCluster.status.conditions.HostedClusterRestoredFromBackup":                             onlyOperator,
	"HostedCluster.status.conditions.ValidIDPConfiguration":                                       onlyOperator,
	"HostedCluster.status.conditions.ValidProxyConfiguration":                                     onlyOperator,
	"HostedControlPlane.annotations.hypershift.openshift.io/disable-aws-node-termination-handler": "the operator disables a component of AWS, which the runtime does not have",
	"HostedControlPlane.annotations.hypershift.openshift.io/disable-cluster-autoscaler":           "the operator disables the autoscaler if no pool needs it; the runtime has none",
	"HostedControlPlane.annotations.runtime.hcpmesh.io/fidelity":                                  "an annotation of the runtime",
	"HostedControlPlane.labels.cluster.x-k8s.io/cluster-name":                                     "Cluster API sets the label, and does not run in the test",
	"Namespace.annotations.hypershift.openshift.io/cluster":                                       "the runtime finds the HostedCluster of a changed namespace with it, and nothing else reads it",
	"Namespace.annotations.hypershift.openshift.io/default-security-context-uid":                  "the user of the operator's pods",
	"NodePool.status.conditions.AutoscalingEnabled":                                               "the operator refuses a minimum of 0; v0.1.81 accepts it",
}

// onlyOperator is the reason of a condition that nothing reads.
const onlyOperator = "nothing reads it"

// providerRelease is the release from which the operator takes the provider of Cluster API for Azure if a cluster has 4.21 or newer.
const providerRelease = "quay.io/openshift-release-dev/ocp-release@sha256:7f183e9b5610a2c9f9aabfd5906b418adfbe659f441b019933426a19bf6a5962"

// TestPublishedOperator applies what Cluster Service renders to the runtime and to the published operator, one after the other on one management
// cluster. It compares their HostedClusters, HostedControlPlanes and NodePools, the keys for service-account tokens that they refuse, and shows the operator's
// machine templates and its deletion. The test takes the place of the control-plane operator, with the status that the runtime's HostedControlPlane had, and of
// Cluster API. A nightly run builds the operator. It has no access to a network: its registry is on loopback, and its proxy refuses connections.
func TestPublishedOperator(t *testing.T) {
	program := nightly.Program(t, "hypershift", "bin/hypershift-operator")
	t.Parallel()
	images := newRegistry(t)
	cluster := kubeapitest.Start(t)
	must.Do(t, cluster.RunControllers(t.Context()))
	m := connectTo(t, cluster)
	m.installOperatorKinds(t)
	m.mirror(t, providerRelease, images.release(t, "4.20.10"))
	samples := renderings(t, m, images)

	stop := m.startRuntime(t, m.options(t.TempDir(), func(o *Options) { o.ReleaseCatalog = images.catalog(t) }))
	begun, installed := map[*rendering]*state{}, map[*rendering]*state{}
	for _, s := range samples {
		s.annotate(contract.FaultAnnotation, string(contract.FaultInfrastructureStuck))
		s.create(t)
	}
	for _, s := range samples {
		s.waitCluster(t, conditionIs(hyperv1.InfrastructureReady, metav1.ConditionFalse))
		s.waitPool(t, func(pool *hyperv1.NodePool) error {
			return poolConditionIs(pool, hyperv1.NodePoolReconciliationActiveConditionType)
		})
		begun[s] = s.state(t)
		s.annotate(contract.FaultAnnotation, "")
		s.apply(t, s.cluster)
	}
	for _, s := range samples {
		s.waitCluster(t, conditionIs(hyperv1.ClusterVersionProgressing, metav1.ConditionFalse))
		s.waitPool(t, func(pool *hyperv1.NodePool) error {
			return poolConditionIs(pool, hyperv1.NodePoolAutorepairEnabledConditionType)
		})
		installed[s] = s.state(t)
	}
	testRefusedKeys(t, m, images)
	deleteRenderings(t, samples)
	stop()

	operator := m.startOperator(t, program, images)
	for _, s := range samples {
		s.create(t)
		s.createCertificate(t)
	}
	m.publishRouter(t)
	for _, s := range samples {
		for _, kind := range []hyperv1.ConditionType{hyperv1.ValidHostedClusterConfiguration, hyperv1.SupportedHostedCluster, hyperv1.ValidReleaseImage, hyperv1.ReconciliationSucceeded} {
			s.waitCluster(t, conditionIs(kind, metav1.ConditionTrue))
		}
		s.reportControlPlane(t, begun[s])
	}
	seen, seenInstalled := map[string]bool{}, map[string]bool{}
	compare(t, "the control plane is being created", begun, seen)
	for _, s := range samples {
		s.reportControlPlane(t, installed[s])
	}
	for _, s := range samples {
		s.reportMachines(t, installed[s])
	}
	compare(t, "the cluster is installed", installed, seenInstalled)
	for field := range statedDifferences {
		if !seen[field] && !seenInstalled[field] {
			t.Errorf("nothing differs in %s: remove it from the table", field)
		}
	}
	testRefusedKeys(t, m, images)
	testPublishedDeletion(t, samples[0])
	deleteRenderings(t, samples[1:])
	operator.Kill()
}

// compare waits until the operator's objects differ from the runtime's only in stated differences, which it adds to seen.
func compare(t *testing.T, stage string, ours map[*rendering]*state, seen map[string]bool) {
	t.Helper()
	eventually.Soon(t, stage+": the operator reports what the runtime reports", func() error {
		var unstated []string
		for r, our := range ours {
			theirs := r.state(t).fields
			all := maps.Clone(theirs)
			maps.Copy(all, our.fields)
			for field := range all {
				if theirs[field] == our.fields[field] {
					continue
				}
				stated := false
				for entry := range statedDifferences {
					if field == entry || strings.HasPrefix(field, entry+".") {
						stated, seen[entry] = true, true
					}
				}
				if !stated {
					unstated = append(unstated, fmt.Sprintf("%s: %s is %s by the operator and %s by the runtime", r.namespace, field, theirs[field], our.fields[field]))
				}
			}
		}
		if slices.Sort(unstated); len(unstated) > 0 {
			clear(seen) // a difference that ends is none
			return errors.New(strings.Join(unstated, "\n"))
		}
		return nil
	})
}

// rendering is what Cluster Service renders for a cluster.
type rendering struct {
	*sample
	// others are the objects in the namespace of the HostedCluster without it and its NodePool, in the order of the rendering.
	others []*unstructured.Unstructured
}

// renderings returns the golden files of Cluster Service's renderer: the simplest with the newest release of each minor version, and the others with one
// release.
func renderings(t *testing.T, m *managementCluster, images *registry) []*rendering {
	t.Helper()
	catalog := must.Get(release.Default())(t)
	var all []*rendering
	for _, minor := range catalog.Minors("stable") {
		newest, _ := catalog.Newest(minor, "stable")
		all = append(all, readRendering(t, m, "plain", newest.Version.String(), images))
	}
	for _, name := range []string{"everything", "access", "certificates"} {
		all = append(all, readRendering(t, m, name, "4.20.8", images))
	}
	return all
}

// readRendering reads a golden file. The cluster gets a namespace and a release of its own, and a key that exists.
func readRendering(t *testing.T, m *managementCluster, name, version string, images *registry) *rendering {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("../../../cluster-service/pkg/render/testdata", name+".golden.yaml")))(t)
	key := must.Get(signingKey())(t)
	_, first, _ := strings.Cut(string(text), "--- # work ")
	rendered, _, _ := strings.Cut(first, "-00-namespaces")
	id := strings.ReplaceAll(name+"-"+version, ".", "-")
	r := &rendering{sample: &sample{managementCluster: m, namespace: "ocm-local-" + id}}
	for _, document := range strings.Split(strings.ReplaceAll(first, rendered, id), "\n--- # work ") {
		header, body, _ := strings.Cut(document, "\n")
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(body), object); err != nil {
			t.Fatalf("%s: %s: %v", name, header, err)
		}
		switch {
		case strings.HasSuffix(header, ", read only"):
		case object.GetKind() == "HostedCluster":
			r.cluster, r.name = object, object.GetName()
			r.set(t, images.release(t, version), "spec", "release", "image")
		case object.GetKind() == "NodePool":
			r.pool = object
			r.setPool(t, images.release(t, version), "spec", "release", "image")
			if strings.HasPrefix(version, "4.19.") { // the golden file is of a newer release
				r.setPool(t, map[string]any{"imageGeneration": "Gen2", "publisher": "azureopenshift", "offer": "aro4", "sku": "419-v2", "version": "419.6.20250523"}, "spec", "platform", "azure", "image", "azureMarketplace")
			}
		case object.GetName() == "sa-signing-key":
			object.Object["data"] = map[string]any{"key": base64.StdEncoding.EncodeToString(key)}
			fallthrough
		case object.GetNamespace() == r.namespace, object.GetName() == r.namespace:
			r.others = append(r.others, object)
		}
	}
	return r
}

func (r *rendering) create(t *testing.T) {
	t.Helper()
	for _, object := range append(slices.Clone(r.others), r.cluster, r.pool) {
		r.apply(t, object)
	}
}

// deleteRenderings deletes clusters at the same time: most of the time is that of their namespaces.
func deleteRenderings(t *testing.T, all []*rendering) {
	t.Helper()
	for _, r := range all {
		must.Do(t, r.client.Delete(t.Context(), r.hostedCluster(t)))
	}
	for _, r := range all {
		r.awaitGone(t)
	}
}

// createCertificate creates the certificate of the API server in place of SecretSync, if the HostedCluster names one.
func (r *rendering) createCertificate(t *testing.T) {
	t.Helper()
	hc := r.hostedCluster(t)
	if hc.Spec.Configuration == nil || hc.Spec.Configuration.APIServer == nil {
		return
	}
	for _, named := range hc.Spec.Configuration.APIServer.ServingCerts.NamedCertificates {
		_, pair := serverPair(t, named.Names...)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: named.ServingCertificate.Name}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: pair.Cert, corev1.TLSPrivateKeyKey: pair.Key}}
		secret.OwnerReferences = []metav1.OwnerReference{{APIVersion: hyperv1.GroupVersion.String(), Kind: "HostedCluster", Name: hc.Name, UID: hc.UID}}
		must.Do(t, r.client.Create(t.Context(), secret))
	}
}

// state is what the runtime or the operator reports about a rendering.
type state struct {
	// fields are values of the HostedCluster, the HostedControlPlane and the NodePool by their path. A condition is its status and reason.
	fields map[string]string
	// status is that of the HostedControlPlane, and secrets are those to which it refers.
	status  any
	secrets []*corev1.Secret
}

// variable are fields whose values depend on the time, or on a hash of the writer's own.
var variable = regexp.MustCompile(`(Time|[gG]eneration|nodePool(CurrentConfig|CurrentConfigVersion|PlatformMachineTemplate))$`)

func (r *rendering) state(t *testing.T) *state {
	t.Helper()
	s := &state{fields: map[string]string{}}
	var add func(path string, value any)
	add = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			if kind, ok := value["type"]; ok && value["lastTransitionTime"] != nil {
				s.fields[fmt.Sprintf("%s.%s", path[:strings.LastIndexByte(path, '.')], kind)] = fmt.Sprint(value["status"], " ", value["reason"])
				return
			}
			for key, value := range value {
				add(path+"."+key, value)
			}
			if len(value) > 0 {
				return
			}
		case []any:
			for i, value := range value {
				add(fmt.Sprintf("%s.%d", path, i), value)
			}
			return
		}
		text := must.Get(json.Marshal(value))(t)
		if variable.MatchString(path) {
			text = []byte("set")
		}
		if path != "HostedCluster.annotations."+contract.FaultAnnotation {
			s.fields[path] = string(text)
		}
	}
	read := func(version, kind string, key client.ObjectKey) map[string]any {
		object := &unstructured.Unstructured{}
		object.SetAPIVersion(version)
		object.SetKind(kind)
		must.Do(t, r.client.Get(t.Context(), key, object))
		metadata := object.Object["metadata"].(map[string]any)
		for _, field := range []string{"labels", "annotations"} {
			add(kind+"."+field, metadata[field])
		}
		return object.Object
	}
	hypershift := hyperv1.GroupVersion.String()
	read("v1", "Namespace", client.ObjectKey{Name: r.controlPlane()})
	hcp := read(hypershift, "HostedControlPlane", client.ObjectKey{Namespace: r.controlPlane(), Name: r.name})
	add("spec", hcp["spec"])
	add("HostedCluster.status", read(hypershift, "HostedCluster", r.key())["status"])
	pool := read(hypershift, "NodePool", client.ObjectKeyFromObject(r.pool))
	add("NodePool.spec", pool["spec"])
	add("NodePool.status", pool["status"])
	s.status = hcp["status"]
	status, _ := hcp["status"].(map[string]any)
	for _, field := range []string{"kubeConfig", "kubeadminPassword"} {
		if reference, ok := status[field].(map[string]any); ok {
			secret := get[corev1.Secret](t, r.client, client.ObjectKey{Namespace: r.controlPlane(), Name: reference["name"].(string)})
			s.secrets = append(s.secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name}, Data: secret.Data, Type: secret.Type})
		}
	}
	return s
}

// reportControlPlane takes the place of the control-plane operator: it creates the objects of a control plane that the operator reads, and reports a status.
func (r *rendering) reportControlPlane(t *testing.T, as *state) {
	t.Helper()
	at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: r.controlPlane(), Name: name} }
	ignition := &appsv1.Deployment{ObjectMeta: at("ignition-server")}
	ignition.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ignition-server"}}
	ignition.Spec.Template.Labels = ignition.Spec.Selector.MatchLabels
	ignition.Spec.Template.Spec.Containers = []corev1.Container{{Name: "server", Image: "none"}}
	objects := []client.Object{ignition, &corev1.Secret{ObjectMeta: at("ignition-server-ca-cert"), Data: map[string][]byte{corev1.TLSCertKey: []byte("none")}}}
	configurations := 2
	if sources, _, _ := unstructured.NestedSlice(r.cluster.Object, "spec", "imageContentSources"); len(sources) > 0 {
		configurations = 3
	}
	for i := range configurations {
		of := at(fmt.Sprintf("ignition-config-%d", i))
		of.Labels = map[string]string{"hypershift.openshift.io/core-ignition-config": "true"}
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: of})
	}
	for _, secret := range as.secrets {
		objects = append(objects, secret.DeepCopy())
	}
	if as.fields["HostedCluster.status.customKubeconfig.name"] != "" { // the runtime has it only in the namespace of the HostedCluster
		custom := &corev1.Secret{ObjectMeta: at("custom-admin-kubeconfig"), Data: map[string][]byte{"kubeconfig": []byte("none")}}
		as.status.(map[string]any)["customKubeconfig"] = map[string]any{"name": custom.Name, "key": "kubeconfig"}
		objects = append(objects, custom)
	}
	for _, object := range objects {
		if err := r.client.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if as.fields["HostedCluster.status.conditions.IgnitionEndpointAvailable"] == "True AsExpected" {
		r.report(t, ignition, appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}})
	}
	r.report(t, &hyperv1.HostedControlPlane{ObjectMeta: at(r.name)}, as.status)
}

// report writes the status of an object.
func (m *managementCluster) report(t *testing.T, object client.Object, status any) {
	t.Helper()
	patch := must.Get(json.Marshal([]any{map[string]any{"op": "add", "path": "/status", "value": status}}))(t) // keeps null
	must.Do(t, m.client.Status().Patch(t.Context(), object, client.RawPatch(types.JSONPatchType, patch)))
}

// clusterAPI returns an object of Cluster API in the namespace of the control plane.
func (r *rendering) clusterAPI(group, kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(group + "cluster.x-k8s.io/v1beta1")
	object.SetKind(kind)
	object.SetNamespace(r.controlPlane())
	object.SetName(name)
	return object
}

// reportMachines takes the place of the ignition server and of Cluster API: it generates the payload of the NodePool, and creates machines whose nodes are
// ready. It checks what the operator requests of Cluster API for the NodePool.
func (r *rendering) reportMachines(t *testing.T, as *state) {
	t.Helper()
	deployment := r.clusterAPI("", "MachineDeployment", r.pool.GetName())
	field := func(object *unstructured.Unstructured, path string) any {
		value, _, _ := unstructured.NestedFieldNoCopy(object.Object, strings.Split(path, ".")...)
		return value
	}
	eventually.Soon(t, r.namespace+": the MachineDeployment is complete", func() error {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if field(deployment, "spec.template.spec.bootstrap.dataSecretName") == nil || field(deployment, "spec.template.spec.infrastructureRef.name") == "" {
			return fmt.Errorf("it has the template %v", field(deployment, "spec.template.spec"))
		}
		return nil
	})
	template := r.clusterAPI("infrastructure.", "AzureMachineTemplate", field(deployment, "spec.template.spec.infrastructureRef.name").(string))
	must.Do(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	replicas := field(r.pool, "spec.replicas")
	if replicas == nil {
		replicas = max(int64(1), field(r.pool, "spec.autoScaling.min").(int64))
	}
	subnet := field(r.pool, "spec.platform.azure.subnetID").(string)
	interfaces, _ := field(template, "spec.template.spec.networkInterfaces").([]any)
	got := map[string]any{"replicas": field(deployment, "spec.replicas"), "subnet": interfaces[0].(map[string]any)["subnetName"]}
	want := map[string]any{"replicas": replicas, "subnet": subnet[strings.LastIndexByte(subnet, '/')+1:]}
	for of, requested := range map[string]any{
		"spec.management.replace.rollingUpdate.maxSurge": field(deployment, "spec.strategy.rollingUpdate.maxSurge"), "spec.nodeDrainTimeout": field(deployment, "spec.template.spec.nodeDrainTimeout"),
		"spec.management.replace.rollingUpdate.maxUnavailable": field(deployment, "spec.strategy.rollingUpdate.maxUnavailable"),
		"spec.platform.azure.vmSize":                           field(template, "spec.template.spec.vmSize"), "spec.platform.azure.availabilityZone": field(template, "spec.template.spec.failureDomain"),
		"spec.platform.azure.osDisk.sizeGiB": field(template, "spec.template.spec.osDisk.diskSizeGB"), "spec.platform.azure.osDisk.diskStorageAccountType": field(template, "spec.template.spec.osDisk.managedDisk.storageAccountType"),
		"spec.platform.azure.osDisk.encryptionSetID": field(template, "spec.template.spec.osDisk.managedDisk.diskEncryptionSet.id"),
	} {
		got[of], want[of] = requested, field(r.pool, of)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the NodePool (-) and what the operator requests of Cluster API for it (+):\n%s", r.namespace, diff)
	}

	hash := strings.TrimPrefix(field(deployment, "spec.template.spec.bootstrap.dataSecretName").(string), "user-data-")
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.controlPlane(), Name: "token-" + hash}}
	must.Do(t, r.client.Patch(t.Context(), token, client.RawPatch("application/merge-patch+json", []byte(
		`{"metadata":{"annotations":{"hypershift.openshift.io/ignition-reached":"True"}},"stringData":{"reason":"AsExpected","message":"Payload generated successfully"}}`))))
	now := metav1.Now().UTC().Format(time.RFC3339)
	conditions := func(kinds ...string) (all []any) {
		for _, kind := range kinds {
			all = append(all, map[string]any{"type": kind, "status": "True", "lastTransitionTime": now})
		}
		return all
	}
	kubelet := strings.Trim(as.fields["NodePool.status.nodesInfo.nodeVersions.0.kubeletVersion"], `"`)
	info := map[string]any{}
	for _, key := range []string{"architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"} {
		info[key] = kubelet
	}
	var machines []*unstructured.Unstructured
	for i := range replicas.(int64) {
		machine := r.clusterAPI("", "Machine", fmt.Sprintf("%s-%d", r.pool.GetName(), i))
		machine.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: deployment.GetAPIVersion(), Kind: deployment.GetKind(), Name: deployment.GetName(), UID: deployment.GetUID()}})
		machine.Object["spec"] = field(deployment, "spec.template.spec")
		annotations, _, _ := unstructured.NestedStringMap(deployment.Object, "spec", "template", "metadata", "annotations")
		machine.SetAnnotations(annotations)
		must.Do(t, r.client.Create(t.Context(), machine))
		r.report(t, machine, map[string]any{"nodeInfo": info, "conditions": conditions("Ready", "InfrastructureReady", "NodeHealthy")})
		machines = append(machines, machine)
	}
	taints := must.Get(json.Marshal(must.Get(runtimeObject[hyperv1.NodePool](r.pool))(t).Spec.Taints))(t)
	labels, _, _ := unstructured.NestedStringMap(r.pool.Object, "spec", "nodeLabels")
	eventually.Soon(t, r.namespace+": the MachineDeployment is observed, and machines have the labels and taints of the NodePool", func() error {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return err
		}
		if generation := deployment.GetGeneration(); field(deployment, "status.observedGeneration") != generation {
			r.report(t, deployment, map[string]any{"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas, "observedGeneration": generation,
				"conditions": conditions("Available", "Ready")})
			return errors.New("the operator changes the MachineDeployment")
		}
		for _, machine := range machines {
			if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
				return err
			}
			for key, value := range labels {
				if got, ok := machine.GetLabels()["managed.hypershift.openshift.io."+key]; !ok || got != value {
					return fmt.Errorf("%s has the labels %v", machine.GetName(), machine.GetLabels())
				}
			}
			if got := machine.GetAnnotations()["hypershift.openshift.io/nodePoolTaints"]; got != string(taints) {
				return fmt.Errorf("%s has the taints %s", machine.GetName(), got)
			}
		}
		return nil
	})
}

// runtimeObject decodes an object.
func runtimeObject[T any](object *unstructured.Unstructured) (*T, error) {
	decoded := new(T)
	return decoded, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, decoded)
}

// publishRouter takes the place of the cloud: it gives the shared router of all control planes an address.
func (m *managementCluster) publishRouter(t *testing.T) {
	t.Helper()
	router := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "hypershift-sharedingress", Name: "router"}}
	eventually.Soon(t, "the operator has created the shared router", func() error { return m.client.Get(t.Context(), client.ObjectKeyFromObject(router), router) })
	m.report(t, router, corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}})
}

// poolConditionIs returns an error unless a condition of a NodePool is True.
func poolConditionIs(pool *hyperv1.NodePool, kind string) error {
	for _, condition := range pool.Status.Conditions {
		if condition.Type == kind && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("the conditions are %+v", pool.Status.Conditions)
}

// testRefusedKeys checks that a cluster with a key that is not RSA in PKCS #1 gets no control plane.
func testRefusedKeys(t *testing.T, m *managementCluster, images *registry) {
	t.Helper()
	for name, key := range refusedKeys(t) {
		r := readRendering(t, m, "plain", "4.20.8", images)
		for _, object := range r.others {
			if object.GetName() == "sa-signing-key" {
				object.Object["data"] = map[string]any{"key": base64.StdEncoding.EncodeToString(key)}
			}
		}
		r.create(t)
		r.waitCluster(t, conditionIs(hyperv1.ReconciliationSucceeded, metav1.ConditionFalse, refusesKey))
		if err := r.client.Get(t.Context(), client.ObjectKey{Name: r.controlPlane()}, &corev1.Namespace{}); !apierrors.IsNotFound(err) {
			t.Errorf("a cluster with the key %s has a control plane: %v", name, err)
		}
		r.delete(t)
	}
}

// testPublishedDeletion shows the order of the operator's deletion. Cluster API and the control-plane operator do not run, so the test adds and removes
// their finalizers, and reports that resources remain in the cloud.
func testPublishedDeletion(t *testing.T, r *rendering) {
	t.Helper()
	namespace := r.controlPlane()
	hcp := &hyperv1.HostedControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: r.name}}
	capi := r.clusterAPI("", "Cluster", r.hostedCluster(t).Spec.InfraID)
	finalize := func(object client.Object, finalizers string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, finalizers)
		must.Do(t, r.client.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", patch)))
	}
	deleting := func(object client.Object) error {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		if object.GetDeletionTimestamp().IsZero() {
			return fmt.Errorf("%T %s is not being deleted", object, object.GetName())
		}
		return nil
	}
	finalize(hcp, `["`+contract.Finalizer+`"]`)
	finalize(capi, `["cluster.cluster.x-k8s.io"]`)
	must.Do(t, r.client.Delete(t.Context(), r.hostedCluster(t)))
	eventually.Soon(t, "the node pool is gone and the Cluster of Cluster API is being deleted", func() error {
		if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(r.pool), &hyperv1.NodePool{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the node pool still exists: %v", err)
		}
		return deleting(capi)
	})
	if deleting(hcp) == nil {
		t.Error("the HostedControlPlane is deleted before the Cluster of Cluster API is gone")
	}
	finalize(capi, "null")
	eventually.Soon(t, "the HostedControlPlane is being deleted", func() error { return deleting(hcp) })
	if deleting(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}) == nil {
		t.Error("the namespace is deleted before the HostedControlPlane is gone")
	}
	remaining := metav1.Condition{Type: string(hyperv1.CloudResourcesDestroyed), Status: metav1.ConditionFalse, Reason: "RemainingCloudResources",
		Message: "Remaining resources: load balancers", LastTransitionTime: metav1.Now()}
	base := hcp.DeepCopy()
	meta.SetStatusCondition(&hcp.Status.Conditions, remaining)
	must.Do(t, r.client.Status().Patch(t.Context(), hcp, client.MergeFrom(base)))
	r.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
		if c := meta.FindStatusCondition(hc.Status.Conditions, remaining.Type); c == nil || c.Reason != remaining.Reason || c.Message != remaining.Message {
			return fmt.Errorf("%s is %+v", remaining.Type, c)
		}
		return nil
	})
	finalize(hcp, "null")
	r.awaitGone(t)
}

// installOperatorKinds installs what the operator reads, next to the definitions of the runtime: Cluster API, its provider for Azure, and kinds that accept
// every field.
func (m *managementCluster) installOperatorKinds(t *testing.T) {
	t.Helper()
	folder := filepath.Join(thirdParty, "crds/hypershift")
	must.Do(t, installCRDs(t.Context(), m.client, folder))
	var others []*apiextensionsv1.CustomResourceDefinition
	for kind, of := range map[string]struct {
		group, version string
		scope          apiextensionsv1.ResourceScope
	}{
		"Route":                {"route.openshift.io", "v1", apiextensionsv1.NamespaceScoped},
		"PodMonitor":           {"monitoring.coreos.com", "v1", apiextensionsv1.NamespaceScoped},
		"ServiceMonitor":       {"monitoring.coreos.com", "v1", apiextensionsv1.NamespaceScoped},
		"SecretProviderClass":  {"secrets-store.csi.x-k8s.io", "v1", apiextensionsv1.NamespaceScoped},
		"SecretSync":           {"secret-sync.x-k8s.io", "v1alpha1", apiextensionsv1.NamespaceScoped},
		"ImageDigestMirrorSet": {"config.openshift.io", "v1", apiextensionsv1.ClusterScoped},
	} {
		singular := strings.ToLower(kind)
		names := apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s"}
		if strings.HasSuffix(singular, "s") {
			names.Plural = singular + "es"
		}
		schema := &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
		others = append(others, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: names.Plural + "." + of.group},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: of.group, Scope: of.scope, Names: names, Versions: []apiextensionsv1.CustomResourceDefinitionVersion{
				{Name: of.version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema}}}}})
	}
	definitions := envtest.CRDInstallOptions{CRDs: others, ErrorIfPathMissing: true, Paths: []string{filepath.Join(folder, "cluster-api"), filepath.Join(folder, "cluster-api-provider-azure")}}
	must.Do(t, envtest.ReadCRDFiles(&definitions))
	for _, definition := range definitions.CRDs {
		if definition.Spec.Group == "cluster.x-k8s.io" { // the operator writes v1beta1, which a webhook of Cluster API converts to the stored version
			for i := range definition.Spec.Versions {
				version := &definition.Spec.Versions[i]
				version.Storage = version.Name == "v1beta1"
				version.Served = version.Storage
			}
		}
	}
	must.Get(envtest.InstallCRDs(m.config, envtest.CRDInstallOptions{CRDs: definitions.CRDs}))(t)
}

// mirror makes the operator read an image in place of another one.
func (m *managementCluster) mirror(t *testing.T, image, by string) {
	t.Helper()
	mirrors := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": "ImageDigestMirrorSet", "metadata": map[string]any{"name": "test"},
		"spec": map[string]any{"imageDigestMirrors": []any{map[string]any{"source": image, "mirrors": []any{by}}}}}}
	must.Do(t, m.client.Create(t.Context(), mirrors))
}

// startOperator starts the published operator as for ARO HCP.
func (m *managementCluster) startOperator(t *testing.T, program string, images *registry) *spawn.Process {
	t.Helper()
	const namespace = "hypershift"
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		// The API servers of tests do not write it. The operator allows its addresses in network policies.
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Endpoints", "metadata": map[string]any{"namespace": "default", "name": "kubernetes"}}},
	} {
		must.Do(t, m.client.Create(t.Context(), object))
	}
	dir := t.TempDir()
	authority := filepath.Join(dir, "registry.crt")
	must.Do(t, os.WriteFile(authority, images.authority, 0o600))
	proxy := "http://" + netfault.ClosedAddress(t)
	command := exec.Command(program, "run", "--namespace="+namespace, "--control-plane-operator-image="+images.image("hypershift", images.operator))
	command.Dir = dir
	command.Env = []string{"HOME=" + dir, "KUBECONFIG=" + m.Kubeconfig(), "SSL_CERT_FILE=" + authority, "SSL_CERT_DIR=" + dir, "HTTPS_PROXY=" + proxy, "HTTP_PROXY=" + proxy,
		"MY_NAMESPACE=" + namespace, "MY_NAME=operator", "MANAGED_SERVICE=" + hyperv1.AroHCP, "PLATFORMS_INSTALLED=Azure",
		"ARO_HCP_KEY_VAULT_USER_CLIENT_ID=dddddddd-0000-0000-0000-000000000001"}
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	process := must.Get(spawn.Start(command, syscall.SIGKILL))(t)
	t.Cleanup(func() {
		process.Kill()
		if text := output.Bytes(); t.Failed() {
			t.Logf("the end of the operator's output:\n%s", text[max(0, len(text)-64<<10):])
		}
	})
	return process
}

// registry serves images of which only the metadata exist.
type registry struct {
	*httptest.Server
	authority []byte
	blobs     map[string]blob
	// operator is the digest of the image of the operators of control planes, and releases are those of releases by version.
	operator string
	releases map[string]string
}

type blob struct {
	mediaType string
	content   []byte
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	listType     = "application/vnd.docker.distribution.manifest.list.v2+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

func newRegistry(t *testing.T) *registry {
	t.Helper()
	r := &registry{blobs: map[string]blob{}, releases: map[string]string{}}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		digest := path.Base(request.URL.Path)
		found, ok := r.blobs[digest]
		switch {
		case request.URL.Path == "/v2/":
			return
		case !ok:
			http.NotFound(w, request)
			return
		}
		w.Header().Set("Content-Type", found.mediaType)
		w.Header().Set("Docker-Content-Digest", digest)
		http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(found.content))
	}))
	authority, pair := serverPair(t, "127.0.0.1")
	certificate := must.Get(tls.X509KeyPair(pair.Cert, pair.Key))(t)
	r.authority, r.TLS = authority, &tls.Config{Certificates: []tls.Certificate{certificate}}
	r.StartTLS()
	t.Cleanup(r.Close)
	labels := map[string]string{}
	for _, label := range controlPlaneOperatorLabels {
		labels["io.openshift.hypershift."+label] = "true"
	}
	r.operator = r.add(t, labels, nil)
	return r
}

// controlPlaneOperatorLabels are the labels of the image of the control-plane operator at the version of the operator, without their prefix.
var controlPlaneOperatorLabels = []string{"control-plane-operator-subcommands", "control-plane-operator-skips-haproxy", "ignition-server-healthz-handler",
	"control-plane-operator-manages-ignition-server", "control-plane-operator-manages.cluster-machine-approver", "control-plane-operator-manages.cluster-autoscaler",
	"control-plane-operator-manages.decompress-decode-config", "control-plane-operator-creates-aws-sg", "control-plane-operator-applies-management-kas-network-policy-label",
	"restricted-psa", "control-plane-pki-operator-signs-csrs", "hosted-cluster-config-operator-reports-node-count", "control-plane-operator-supports-kas-custom-kubeconfig",
	"control-plane-operator.v2-isdefault"}

// add adds an image for two architectures with labels and with files, and returns its digest.
func (r *registry) add(t *testing.T, labels, files map[string]string) string {
	t.Helper()
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	for name, text := range files {
		must.Do(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		must.Get(archive.Write([]byte(text)))(t)
	}
	must.Do(t, archive.Close())
	store := func(mediaType string, content []byte) map[string]any {
		digest := fmt.Sprintf("sha256:%x", sha256.Sum256(content))
		r.blobs[digest] = blob{mediaType, content}
		return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(content)}
	}
	encode := func(value any) []byte {
		return must.Get(json.Marshal(value))(t)
	}
	var manifests []any
	for _, architecture := range []string{"amd64", "arm64"} {
		config := store(configType, encode(map[string]any{"architecture": architecture, "os": "linux", "config": map[string]any{"Labels": labels}}))
		manifest := store(manifestType, encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{store(layerType, layer.Bytes())}}))
		manifest["platform"] = map[string]any{"architecture": architecture, "os": "linux"}
		manifests = append(manifests, manifest)
	}
	return store(listType, encode(map[string]any{"schemaVersion": 2, "mediaType": listType, "manifests": manifests}))["digest"].(string)
}

// image returns the name of an image.
func (r *registry) image(repository, digest string) string {
	return r.Listener.Addr().String() + "/openshift/" + repository + "@" + digest
}

// release returns the image of a release, which it adds if it is the first with the version.
func (r *registry) release(t *testing.T, version string) string {
	t.Helper()
	if r.releases[version] == "" {
		var tags []any
		for _, component := range []string{"hypershift", "cluster-capi-controllers", "azure-cluster-api-controllers"} {
			tags = append(tags, map[string]any{"name": component, "from": map[string]any{"kind": "DockerImage", "name": r.image("hypershift", r.operator)}})
		}
		references := must.Get(json.Marshal(map[string]any{"apiVersion": "image.openshift.io/v1", "kind": "ImageStream", "metadata": map[string]any{"name": version}, "spec": map[string]any{"tags": tags}}))(t)
		known := must.Get(release.ParseVersion(version))(t)
		image := fmt.Sprintf(`{"rhel-coreos-extensions":{"marketplace":{"azure":{"no-purchase-plan":{"hyperVGen2":{"publisher":"azureopenshift","offer":"aro4","sku":"%d%d-v2","version":"9.6.20251015"}}}}}}`, known.Major, known.Minor)
		r.releases[version] = r.add(t, nil, map[string]string{"release-manifests/image-references": string(references),
			"release-manifests/0000_50_installer_coreos-bootimages.yaml": fmt.Sprintf("data:\n  stream: '{\"architectures\":{\"x86_64\":%s,\"aarch64\":%[1]s}}'\n", image)})
	}
	return r.image("release", r.releases[version])
}

// catalog returns the file of a catalogue with the releases.
func (r *registry) catalog(t *testing.T) string {
	t.Helper()
	text := "repository: " + r.Listener.Addr().String() + "/openshift/release\nreleases:\n"
	for version, digest := range r.releases {
		text += fmt.Sprintf("- {version: %s, digest: %q, kubelet: v1.33.5}\n", version, digest)
	}
	file := filepath.Join(t.TempDir(), "releases.yaml")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

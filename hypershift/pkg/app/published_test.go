//go:build nightly

package app

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// statedDifferences are the fields of HostedControlPlanes and their namespaces in which the operator and the runtime differ, with the reason.
// hypershift/docs/behaviour.md has the same list. The test fails if an entry does not exist any more.
var statedDifferences = map[string]string{
	"HostedControlPlane.annotations.hypershift.openshift.io/disable-aws-node-termination-handler": "the operator disables a component of AWS, which the runtime does not have",
	"HostedControlPlane.annotations.hypershift.openshift.io/disable-cluster-autoscaler":           "the operator disables the autoscaler if no pool needs it; the runtime has none",
	"HostedControlPlane.annotations.runtime.hcpmesh.io/fidelity":                                  "an annotation of the runtime",
	"HostedControlPlane.labels.cluster.x-k8s.io/cluster-name":                                     "Cluster API sets the label, and does not run in the test",
	"Namespace.annotations.hypershift.openshift.io/cluster":                                       "the runtime finds the HostedCluster of a changed namespace with it, and nothing else reads it",
	"Namespace.annotations.hypershift.openshift.io/default-security-context-uid":                  "the user of the operator's pods",
}

// providerRelease is the release from which the operator takes the provider of Cluster API for Azure if a cluster has 4.21 or newer.
const providerRelease = "quay.io/openshift-release-dev/ocp-release@sha256:7f183e9b5610a2c9f9aabfd5906b418adfbe659f441b019933426a19bf6a5962"

// TestPublishedOperator applies what Cluster Service renders to the published operator and to the runtime, one after the other on one management
// cluster. It compares their HostedControlPlanes, the keys for service-account tokens that they refuse, and shows the operator's deletion.
// A nightly run builds the operator. It has no access to a network: its registry is on loopback, and its proxy refuses connections.
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
	operator := m.startOperator(t, program, images)
	published := map[string]map[string]string{}
	for _, s := range samples {
		s.create(t)
		s.createCertificate(t)
	}
	for _, s := range samples {
		s.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
			return conditionsAreTrue(hc, hyperv1.ValidHostedClusterConfiguration, hyperv1.SupportedHostedCluster, hyperv1.ValidReleaseImage, hyperv1.ReconciliationSucceeded)
		})
		published[s.namespace] = s.fields(t)
	}
	testRefusedKeys(t, m, images)
	testPublishedDeletion(t, samples[0])
	deleteRenderings(t, samples[1:])
	operator.Kill()

	m.startRuntime(t, m.options(t.TempDir(), func(o *Options) { o.ReleaseCatalog = images.catalog(t) }))
	seen := map[string]bool{}
	for _, s := range samples {
		s.create(t)
	}
	for _, s := range samples {
		s.waitCluster(t, available)
		theirs, ours := published[s.namespace], s.fields(t)
		all := maps.Clone(theirs)
		maps.Copy(all, ours)
		for field := range all {
			if theirs[field] == ours[field] {
				continue
			}
			seen[field] = true
			if statedDifferences[field] == "" {
				t.Errorf("%s: %s is %s by the operator and %s by the runtime", s.namespace, field, theirs[field], ours[field])
			}
		}
	}
	deleteRenderings(t, samples)
	testRefusedKeys(t, m, images)
	for field := range statedDifferences {
		if !seen[field] {
			t.Errorf("no HostedControlPlane differs in %s: remove it from the table", field)
		}
	}
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

// fields returns the labels, the annotations and the spec of the HostedControlPlane, and the labels and annotations of its namespace, by path.
func (r *rendering) fields(t *testing.T) map[string]string {
	t.Helper()
	fields := map[string]string{}
	var add func(path string, value any)
	add = func(path string, value any) {
		if object, ok := value.(map[string]any); ok && len(object) > 0 {
			for key, value := range object {
				add(path+"."+key, value)
			}
			return
		}
		text := must.Get(json.Marshal(value))(t)
		fields[path] = string(text)
	}
	get := func(version, kind string, key client.ObjectKey) map[string]any {
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
	get("v1", "Namespace", client.ObjectKey{Name: r.controlPlane()})
	add("spec", get(hyperv1.GroupVersion.String(), "HostedControlPlane", client.ObjectKey{Namespace: r.controlPlane(), Name: r.name})["spec"])
	return fields
}

// conditionsAreTrue returns the first condition of a HostedCluster that is not True.
func conditionsAreTrue(hc *hyperv1.HostedCluster, kinds ...hyperv1.ConditionType) error {
	for _, kind := range kinds {
		if condition := meta.FindStatusCondition(hc.Status.Conditions, string(kind)); condition == nil || condition.Status != metav1.ConditionTrue {
			return fmt.Errorf("%s is %+v", kind, condition)
		}
	}
	return nil
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
		r.waitCluster(t, func(hc *hyperv1.HostedCluster) error {
			if condition := meta.FindStatusCondition(hc.Status.Conditions, string(hyperv1.ReconciliationSucceeded)); condition == nil || condition.Status != metav1.ConditionFalse {
				return fmt.Errorf("ReconciliationSucceeded is %+v", condition)
			}
			return refusesKey(hc)
		})
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
	capi := &unstructured.Unstructured{}
	capi.SetAPIVersion("cluster.x-k8s.io/v1beta1")
	capi.SetKind("Cluster")
	capi.SetNamespace(namespace)
	capi.SetName(r.hostedCluster(t).Spec.InfraID)
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
	must.Get(envtest.InstallCRDs(m.config, envtest.CRDInstallOptions{CRDs: others, ErrorIfPathMissing: true,
		Paths: []string{filepath.Join(folder, "cluster-api"), filepath.Join(folder, "cluster-api-provider-azure")}}))(t)
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

// add adds an image with labels and with files, and returns its digest.
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
	config := store(configType, encode(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{"Labels": labels}}))
	manifest := store(manifestType, encode(map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": config, "layers": []any{store(layerType, layer.Bytes())}}))
	return manifest["digest"].(string)
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
		r.releases[version] = r.add(t, nil, map[string]string{"release-manifests/image-references": string(references),
			"release-manifests/0000_50_installer_coreos-bootimages.yaml": "data:\n  stream: '{}'\n"})
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

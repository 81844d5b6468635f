package gather_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/gather"
)

const (
	clusterID  = "2a87oi0a79uqnn53giq0q3kdm5m6cqql"
	namespace  = "ocm-local-" + clusterID
	resourceID = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"
	// rendered holds manifests of a cluster as Cluster Service renders them.
	rendered = "../../../../cluster-service/pkg/render/testdata/plain.golden.yaml"
)

// managementCluster starts a kube-apiserver with the CRDs of HyperShift.
func managementCluster(t *testing.T) (mgmtClient dynamic.Interface, kubeconfig string) {
	t.Helper()
	thirdParty := must.Get(filepath.Abs("../../../../.build/third-party"))(t)
	programs := os.Getenv("KUBEBUILDER_ASSETS")
	if programs == "" {
		programs = filepath.Join(thirdParty, "bin")
	}
	if _, err := os.Stat(filepath.Join(programs, "kube-apiserver")); err != nil {
		kubeapitest.SkipUnlessCI(t, "kube-apiserver is not built; run tooling/third-party/build.sh")
	}
	crds := must.Get(filepath.Glob(filepath.Join(thirdParty, "crds/hypershift/hypershift-operator/zz_generated.crd-manifests/*-Default.crd.yaml")))(t)
	crds = slices.DeleteFunc(crds, func(path string) bool {
		return !strings.Contains(path, "hostedclusters-") && !strings.Contains(path, "nodepools-")
	})
	environment := &envtest.Environment{CRDDirectoryPaths: crds, ErrorIfCRDPathMissing: true, BinaryAssetsDirectory: programs}
	config := must.Get(environment.Start())(t)
	t.Cleanup(func() { _ = environment.Stop() })
	config.QPS = -1
	mgmtClient = must.Get(dynamic.NewForConfig(config))(t)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(kubeconfig, environment.KubeConfig, 0o600))
	return mgmtClient, kubeconfig
}

// plant returns a secret that the archive must not contain.
func plant(t *testing.T) string {
	t.Helper()
	random := make([]byte, 24)
	must.Get(rand.Read(random))(t)
	return "planted" + base64.RawURLEncoding.EncodeToString(random)
}

// forms returns the forms of a secret in a text: plain, and base64 with each of the three alignments.
func forms(secret string) []string {
	list := []string{secret}
	for shift := range 3 {
		shifted := []byte(strings.Repeat("x", shift) + secret)
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			// What its neighbours could change is left out at both ends.
			whole := encoding.EncodeToString(shifted)
			list = append(list, whole[4:len(whole)-4])
		}
	}
	return list
}

// files returns the files of an archive.
func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	plain := must.Get(gzip.NewReader(bytes.NewReader(archive)))(t)
	found := map[string]string{}
	for reader := tar.NewReader(plain); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content := must.Get(io.ReadAll(reader))(t)
		_, name, _ := strings.Cut(header.Name, "/")
		found[name] = string(content)
	}
}

// TestArchiveHasNoSecrets collects a cluster from a management cluster with secrets in all usual places, and searches the archive
// for each of them.
func TestArchiveHasNoSecrets(t *testing.T) {
	mgmtClient, kubeconfig := managementCluster(t)
	ctx := t.Context()
	secrets := map[string]string{}
	secret := func(where string) string {
		secrets[where] = plant(t)
		return secrets[where]
	}
	create := func(resource string, object map[string]any) {
		t.Helper()
		gv := must.Get(schema.ParseGroupVersion(object["apiVersion"].(string)))(t)
		o := &unstructured.Unstructured{Object: object}
		if _, err := mgmtClient.Resource(gv.WithResource(resource)).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

	// The manifests of Cluster Service, with values in their Secrets.
	text := must.Get(os.ReadFile(rendered))(t)
	var manifests []map[string]any
	for _, document := range regexp.MustCompile(`(?m)^---.*$`).Split(string(text), -1) {
		object := map[string]any{}
		must.Do(t, yaml.Unmarshal([]byte(document), &object))
		if len(object) == 0 {
			continue
		}
		kind := object["kind"].(string)
		if kind == "Secret" {
			if object["data"] == nil {
				// The work only reads this one, which HyperShift writes.
				object["data"] = map[string]any{"ca.key": ""}
			}
			for key := range object["data"].(map[string]any) {
				value := secret("rendered Secret " + key)
				if key == ".dockerconfigjson" {
					value = `{"auths":{"registry.example":{"auth":"` + encode("user:"+value) + `"}}}`
				}
				object["data"].(map[string]any)[key] = encode(value)
			}
		}
		manifests = append(manifests, object)
		create(map[string]string{"Namespace": "namespaces", "Secret": "secrets", "ConfigMap": "configmaps", "HostedCluster": "hostedclusters", "NodePool": "nodepools"}[kind], object)
	}

	// Objects of HyperShift in the namespace of the control plane, which the manifests contain, and objects of users.
	controlPlane := namespace + "-x8y5p7r4g6j9e3v"
	metadata := func(name string) map[string]any { return map[string]any{"name": name, "namespace": controlPlane} }
	config := func(where string) string {
		return "apiVersion: v1\nkind: Config\nclusters: []\nusers:\n- name: admin\n  user:\n    token: " + secret(where) + "\n"
	}
	key := secret("private key")
	create("secrets", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata("admin-kubeconfig"), "stringData": map[string]any{"kubeconfig": config("kubeconfig in a Secret")}})
	applied := metadata("applied")
	inAnnotation := secret("kubectl's annotation")
	applied["annotations"] = map[string]any{"kubectl.kubernetes.io/last-applied-configuration": `{"kind":"Secret","data":{"x":"` + encode(inAnnotation) + `"}}`}
	create("secrets", map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": applied, "stringData": map[string]any{"x": inAnnotation}})
	create("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("careless"), "data": map[string]any{
		"kubeconfig.yaml": config("kubeconfig in a ConfigMap"), "encoded": encode(config("encoded kubeconfig in a ConfigMap")),
		"tls.key": "-----BEGIN RSA PRIVATE KEY-----\n" + key + "\n-----END RSA PRIVATE KEY-----\n", "database": "postgres://admin:" + secret("database URL") + "@db/x",
		"adminPassword": secret("field called password"), "harmless": "this stays",
	}})
	create("pods", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata("etcd-0"), "spec": map[string]any{"containers": []any{map[string]any{
		"name": "etcd", "image": "etcd", "args": []any{"--password=" + secret("argument")}, "env": []any{map[string]any{"name": "ETCD_PASSWORD", "value": secret("environment")}}}}}})
	create("events", map[string]any{"apiVersion": "v1", "kind": "Event", "metadata": metadata("etcd-0.1"), "involvedObject": map[string]any{"kind": "Pod", "name": "etcd-0", "namespace": controlPlane},
		"reason": "FailedMount", "message": "the volume is not there; tried with Bearer " + secret("event")})
	// An object of another cluster.
	create("namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "ocm-local-other"}})
	create("configmaps", map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x", "namespace": "ocm-local-other"}, "data": map[string]any{"x": "of another cluster"}})

	logs := t.TempDir()
	line := func(text string) string {
		data := must.Get(json.Marshal(map[string]string{"msg": text, "resource_id": strings.ToUpper(resourceID)}))(t)
		return string(data) + "\n"
	}
	for name, content := range map[string]string{
		"frontend.log":   line("a request") + line("with password="+secret("log")) + `{"msg":"of another cluster"}` + "\n",
		"frontend.log.1": line("an older request"),
		"postgres.log":   "INSERT " + resourceID + "\n",
	} {
		must.Do(t, os.WriteFile(filepath.Join(logs, name), []byte(content), 0o600))
	}

	var out bytes.Buffer
	index := must.Get(gather.Run(ctx, gather.Options{
		Name: "demo", TakenAt: time.Date(2026, 11, 21, 3, 16, 7, 0, time.UTC), Explanation: "Cluster demo is ready.\n",
		Layers:      map[string]any{"maestro/bundle.yaml": manifests, "dump.json": map[string]any{"clientSecret": secret("dump"), "manifests": manifests}},
		Unavailable: map[string]string{"maestro": "connection refused"},
		Shard:       "mgmt-1", Kubeconfig: kubeconfig, Namespace: namespace, ClusterID: clusterID, LogDir: logs, Needles: []string{resourceID, clusterID},
		Versions: func(context.Context) (any, []error) {
			return map[string]string{"frontend": "v0.4.0"}, []error{errors.New("backend does not answer")}
		},
	}, &out))(t)
	for _, entry := range index.Entries {
		if entry.Error != "" && entry.From != "maestro" && entry.From != "versions" {
			t.Errorf("something could not be had: %+v", entry)
		}
	}
	found := files(t, out.Bytes())
	for where, planted := range secrets {
		for name, content := range found {
			for _, form := range forms(planted) {
				if strings.Contains(content, form) {
					t.Errorf("%s: the secret of the %s is inside", name, where)
				}
			}
		}
	}
	for name, parts := range map[string][]string{
		"explanation.txt": {"Cluster demo is ready."}, "versions.yaml": {"frontend: v0.4.0"}, "dump.json": {`"kind": "HostedCluster"`}, "maestro/bundle.yaml": {"kind: HostedCluster"},
		"index.json": {"connection refused", "backend does not answer", `"path": "dump.json"`},
		"management/cluster-scoped/namespaces.yaml":                                {"name: " + namespace, "name: " + controlPlane},
		"management/" + namespace + "/hostedclusters.hypershift.openshift.io.yaml": {"kind: HostedCluster", "clusterservice.hcpmesh.io/digest"},
		"management/" + namespace + "/nodepools.hypershift.openshift.io.yaml":      {"kind: NodePool"},
		"management/" + namespace + "/secrets.yaml":                                {"name: pull-secret", "name: sa-signing-key"},
		"management/" + controlPlane + "/secrets.yaml":                             {"name: admin-kubeconfig"},
		"management/" + controlPlane + "/configmaps.yaml":                          {"harmless: this stays"},
		"management/" + controlPlane + "/pods.yaml":                                {"name: ETCD_PASSWORD"},
		"management/" + controlPlane + "/events.yaml":                              {"the volume is not there"},
		"logs/frontend.log": {"a request", "an older request"},
	} {
		for _, part := range parts {
			if !strings.Contains(found[name], part) {
				t.Errorf("%s does not hold %q; there are %v", name, part, len(found))
			}
		}
	}
	for name, content := range found {
		if strings.Contains(content, "of another cluster") || strings.HasPrefix(name, "logs/postgres") {
			t.Errorf("%s holds what is another cluster's", name)
		}
	}
}

// TestCleaning cleans texts with and without secrets.
func TestCleaning(t *testing.T) {
	der := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	bytesOfKey := must.Get(x509.MarshalECPrivateKey(der))(t)
	key := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: bytesOfKey}))
	tests := map[string]struct {
		reason string
		value  any
		want   any
	}{
		"words":               {"what is no secret stays", map[string]any{"message": "the token was refused", "secretName": "pull-secret", "kubeconfig": map[string]any{"name": "admin"}}, map[string]any{"message": "the token was refused", "secretName": "pull-secret", "kubeconfig": map[string]any{"name": "admin"}}},
		"key in a text":       {"it ends with the key", "before " + key + "after", "before (removed: a private key)\nafter"},
		"key cut off":         {"the end is not there", "x " + key[:60], "x (removed: a private key)"},
		"key encoded":         {"base64 of it", base64.StdEncoding.EncodeToString([]byte(key)), nil},
		"certificate":         {"a certificate is public", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"},
		"token":               {"three parts", "got eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl for it", "got (removed: a token) for it"},
		"list of Secrets":     {"whatever is around it", map[string]any{"items": []any{map[string]any{"kind": "Secret", "data": map[string]any{"a": "eA=="}}}}, map[string]any{"items": []any{map[string]any{"kind": "Secret", "data": map[string]any{"a": "(removed: 4 characters)"}}}}},
		"Secret's data odd":   {"data that is no text", map[string]any{"kind": "Secret", "data": map[string]any{"a": []any{"eA=="}}}, map[string]any{"kind": "Secret", "data": map[string]any{"a": "(removed: 6 characters)"}}},
		"digest":              {"base64 of nothing secret", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
		"resource id":         {"stays", resourceID, resourceID},
		"escaped JSON in log": {"a field within a text", `{"msg":"{\"password\":\"hunter22\"}"}`, `{"msg":"{\"password\":\"(removed)\"}"}`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := gather.Clean(tc.value)
			if tc.want == nil {
				if !strings.HasPrefix(got.(string), "(removed") {
					t.Errorf("%s: got %q", tc.reason, got)
				}
				return
			}
			want := must.Get(json.Marshal(tc.want))(t)
			if have, err := json.Marshal(got); err != nil || string(have) != string(want) {
				t.Errorf("%s: got %s, want %s", tc.reason, have, want)
			}
		})
	}
}

// FuzzCleaning places a secret in arbitrary surroundings of the data of a Secret.
func FuzzCleaning(f *testing.F) {
	f.Add("kubeconfig", "before", "after")
	f.Add("", "-----BEGIN PRIVATE KEY-----", "\x00\xff{")
	f.Fuzz(func(t *testing.T, key, before, after string) {
		const planted = "Zm9vYmFyc2VjcmV0MTIzNDU2"
		if strings.Contains(key, planted) || strings.Contains(before, planted) || strings.Contains(after, planted) {
			return
		}
		data := must.Get(json.Marshal(gather.Clean(map[string]any{"kind": "List", key: before, "items": []any{map[string]any{"kind": "Secret", "data": map[string]any{key: planted}, "note": after}}})))(t)
		if key != "items" && strings.Contains(string(data), planted) {
			t.Errorf("the secret is inside: %s", data)
		}
	})
}

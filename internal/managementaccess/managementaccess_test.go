package managementaccess_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/managementaccess"
	"github.com/hcpmesh/hcpmesh/internal/readrules"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// shared is the management cluster of all tests. prepared is done when it has the objects of prepare.
var (
	shared   kubeapitest.Shared
	prepared sync.Once
)

func TestMain(m *testing.M) {
	code := m.Run()
	shared.Close()
	os.Exit(leaktest.Check(code))
}

// agentTests is the number of runs of TestAgent, each of which has a namespace of its own.
var agentTests atomic.Int32

// apiClient sends requests to an API server with the certificate of a kubeconfig.
type apiClient struct {
	http   *http.Client
	server string
}

func newAPIClient(t *testing.T, server, kubeconfig string) *apiClient {
	t.Helper()
	text := must.Get(os.ReadFile(kubeconfig))(t)
	var config struct {
		Clusters []struct {
			Cluster struct {
				CA string `yaml:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
				Key         string `yaml:"client-key-data"`
			}
		}
	}
	must.Do(t, yaml.Unmarshal(text, &config))
	decode := func(text string) []byte {
		return must.Get(base64.StdEncoding.DecodeString(text))(t)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decode(config.Clusters[0].Cluster.CA))
	certificate := must.Get(tls.X509KeyPair(decode(config.Users[0].User.Certificate), decode(config.Users[0].User.Key)))(t)
	tlsConfig := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	t.Cleanup(transport.CloseIdleConnections)
	return &apiClient{http: &http.Client{Transport: transport}, server: server}
}

// do sends a request and returns the status and the body.
func (c *apiClient) do(t *testing.T, method, path, contentType, body string) (int, string) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), method, c.server+path, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", contentType)
	response := must.Get(c.http.Do(request))(t)
	answer, err := io.ReadAll(response.Body)
	must.Do(t, errors.Join(err, response.Body.Close()))
	return response.StatusCode, string(answer)
}

const jsonType, mergeType = "application/json", "application/merge-patch+json"

// TestAgent sends requests as Maestro's agent. Cluster Service's tests apply everything that it renders with the same rights.
func TestAgent(t *testing.T) {
	cluster := withHostedCluster(t)
	agent := newAPIClient(t, cluster.Server, cluster.AgentKubeconfig(t))
	administrator := newAPIClient(t, cluster.Server, cluster.Kubeconfig())

	name := fmt.Sprintf("ocm-agent-%d", agentTests.Add(1))
	namespace := "/api/v1/namespaces/" + name
	deployments, services := "/apis/apps/v1/namespaces/"+name+"/deployments", namespace+"/services"
	hosted := "/apis/hypershift.openshift.io/v1beta1/namespaces/" + name + "/hostedclusters"
	container := `{"containers":[{"name":"c","image":"example.com/program"}]}`
	deployment := `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + container + `}}}`
	prepare := func(method, path, body string) {
		t.Helper()
		if status, answer := administrator.do(t, method, path, jsonType, body); status >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, status, answer)
		}
	}
	if status, answer := agent.do(t, http.MethodPost, "/api/v1/namespaces", jsonType, fmt.Sprintf(`{"metadata":{"name":%q}}`, name)); status != http.StatusCreated {
		t.Fatalf("creating a namespace: %d %s", status, answer)
	}
	prepare(http.MethodPost, deployments, deployment)
	service := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["a/b","c/d"]},"spec":{"ports":[{"port":80}]}}`, name)
	}
	prepare(http.MethodPost, services, service("deleted"))
	prepare(http.MethodPost, services, service("kept"))
	prepare(http.MethodDelete, services+"/deleted", "")
	prepare(http.MethodPost, hosted, `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"deleted","finalizers":["a/b"]}}`)
	prepare(http.MethodDelete, hosted+"/deleted", "")

	image := func(image string) string {
		return fmt.Sprintf(`{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"h"},"spec":{"release":{"image":%q}}}`, image)
	}
	const releases, operators = "quay.io/openshift-release-dev/ocp-release", "quay.io/hypershift/hypershift"
	digest := "@sha256:" + strings.Repeat("0a", 32)
	spec := func(fields string) string { return `{"spec":{` + fields + `}}` }
	annotation := func(name, value string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
	}
	operatorImage, imageOverrides := "hypershift.openshift.io/control-plane-operator-image", "hypershift.openshift.io/image-overrides"
	cases := []struct {
		reason, method, path, contentType, body string
		status                                  int
	}{
		{"what Cluster Service applies", http.MethodPost, namespace + "/secrets", jsonType, `{"metadata":{"name":"s"}}`, http.StatusCreated},
		{"and updates", http.MethodPatch, namespace + "/secrets/s", mergeType, `{"metadata":{"labels":{"api.openshift.com/name":"b"}}}`, http.StatusOK},
		{"and deletes", http.MethodDelete, namespace + "/secrets/s", jsonType, "", http.StatusOK},
		{"an image by digest", http.MethodPost, hosted, jsonType, image(releases + digest), http.StatusCreated},
		{"an image by tag", http.MethodPost, hosted, jsonType, strings.Replace(image(releases+":4.20"), `"h"`, `"t"`, 1), http.StatusForbidden},
		{"a change to a tag", http.MethodPatch, hosted + "/h", mergeType, spec(`"release":{"image":"` + releases + `:4.20"}`), http.StatusForbidden},
		{"a change to a tag and a digest", http.MethodPatch, hosted + "/h", mergeType, spec(`"release":{"image":"` + releases + `:4.20` + digest + `"}`), http.StatusForbidden},
		{"a foreign registry by digest", http.MethodPost, hosted, jsonType, strings.Replace(image("example.com/release"+digest), `"h"`, `"t"`, 1), http.StatusForbidden},
		{"a change to a foreign registry", http.MethodPatch, hosted + "/h", mergeType, spec(`"release":{"image":"example.com/release` + digest + `"}`), http.StatusForbidden},
		{"a repository whose name begins with that of the releases", http.MethodPatch, hosted + "/h", mergeType, spec(`"release":{"image":"` + releases + `-2` + digest + `"}`), http.StatusForbidden},
		{"a control plane of another release by tag", http.MethodPatch, hosted + "/h", mergeType, spec(`"controlPlaneRelease":{"image":"` + releases + `:4.20"}`), http.StatusForbidden},
		{"a control plane of another release by digest", http.MethodPatch, hosted + "/h", mergeType, spec(`"controlPlaneRelease":{"image":"example.com/release` + digest + `"}`), http.StatusForbidden},
		{"an operator of the region", http.MethodPatch, hosted + "/h", mergeType, annotation(operatorImage, operators+digest), http.StatusOK},
		{"an operator by tag", http.MethodPatch, hosted + "/h", mergeType, annotation(operatorImage, operators+":latest"), http.StatusForbidden},
		{"a foreign operator", http.MethodPatch, hosted + "/h", mergeType, annotation(operatorImage, "example.com/operator"+digest), http.StatusForbidden},
		{"other images of components", http.MethodPatch, hosted + "/h", mergeType, annotation(imageOverrides, "etcd=example.com/etcd"+digest), http.StatusForbidden},
		{"a foreign release in spite of warnings", http.MethodPatch, hosted + "/h", mergeType, annotation("hypershift.openshift.io/force-upgrade-to", "example.com/release"+digest), http.StatusForbidden},
		{"a finalizer", http.MethodPatch, hosted + "/h", mergeType, `{"metadata":{"finalizers":["a/b"]}}`, http.StatusForbidden},
		{"an owner that is not a work", http.MethodPatch, hosted + "/h", mergeType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"other","uid":"x"}]}}`, http.StatusForbidden},
		{"its work as owner", http.MethodPatch, hosted + "/h", mergeType,
			`{"metadata":{"ownerReferences":[{"apiVersion":"work.open-cluster-management.io/v1","kind":"AppliedManifestWork","name":"other","uid":"x"}]}}`, http.StatusOK},
		{"a file of a control plane", http.MethodPost, namespace + "/configmaps", jsonType, `{"metadata":{"name":"c"},"data":{"config.json":"{}"}}`, http.StatusForbidden},
		{"less security of a namespace", http.MethodPatch, namespace, mergeType, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`, http.StatusForbidden},
		{"an annotation together with a finalizer of an object that is being deleted", http.MethodPatch, hosted + "/deleted", mergeType,
			`{"metadata":{"finalizers":null,"annotations":{"` + imageOverrides + `":"etcd=example.com/etcd"}}}`, http.StatusForbidden},
		{"its own definitions are checked elsewhere; others are refused", http.MethodPatch, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/hostedclusters.hypershift.openshift.io", mergeType,
			`{"metadata":{"labels":{"a":"b"}}}`, http.StatusForbidden},
		{"a namespace that is not of a cluster", http.MethodPost, "/api/v1/namespaces", jsonType, `{"metadata":{"name":"other"}}`, http.StatusForbidden},
		{"a system namespace", http.MethodPatch, "/api/v1/namespaces/kube-system", mergeType, `{"metadata":{"labels":{"a":"b"}}}`, http.StatusForbidden},
		{"a secret in a system namespace", http.MethodPost, "/api/v1/namespaces/kube-system/secrets", jsonType, `{"metadata":{"name":"s"}}`, http.StatusForbidden},
		{"a program", http.MethodPost, namespace + "/pods", jsonType, `{"metadata":{"name":"p"},"spec":` + container + `}`, http.StatusForbidden},
		{"a program", http.MethodPost, deployments, jsonType, strings.Replace(deployment, `"d"`, `"e"`, 1), http.StatusForbidden},
		{"another program", http.MethodPatch, deployments + "/d", mergeType, `{"spec":{"replicas":2}}`, http.StatusForbidden},
		{"the number of its replicas", http.MethodPatch, deployments + "/d/scale", mergeType, `{"spec":{"replicas":0}}`, http.StatusForbidden},
		{"a right", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", jsonType,
			`{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"maestro-agent"}]}`, http.StatusForbidden},
		{"its own role", http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/maestro-agent", mergeType, `{"rules":[]}`, http.StatusForbidden},
		{"its own policy", http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/maestro-agent", jsonType, "", http.StatusForbidden},
		{"the end of its own policy", http.MethodPatch, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/maestro-agent", mergeType, `{"spec":{"failurePolicy":"Ignore"}}`, http.StatusForbidden},
		{"a token of a service account", http.MethodPost, namespace + "/serviceaccounts/default/token", jsonType, `{}`, http.StatusForbidden},
		{"a finalizer of an object that is not being deleted", http.MethodPatch, services + "/kept", mergeType, `{"metadata":{"finalizers":["a/b"]}}`, http.StatusForbidden},
		{"another change of an object that is being deleted", http.MethodPatch, services + "/deleted", mergeType, `{"metadata":{"finalizers":["a/b"]},"spec":{"externalName":"x"}}`, http.StatusForbidden},
		{"a finalizer of an object that is being deleted", http.MethodPatch, services + "/deleted", mergeType, `{"metadata":{"finalizers":["a/b"]}}`, http.StatusOK},
	}
	for _, c := range cases {
		if status, answer := agent.do(t, c.method, c.path, c.contentType, c.body); status != c.status {
			t.Errorf("%s: %s %s: %d, want %d: %s", c.reason, c.method, c.path, status, c.status, answer)
		}
	}
	impersonation := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, cluster.Server+"/api/v1/namespaces", http.NoBody))(t)
	impersonation.Header.Set("Impersonate-User", "admin")
	impersonation.Header.Set("Impersonate-Group", "system:masters")
	response := must.Get(agent.http.Do(impersonation))(t)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusForbidden {
		t.Errorf("impersonation: %s", response.Status)
	}
}

// attempt is a request of a limited user and its expected status.
type attempt struct {
	reason, method, path, body string
	status                     int
}

const (
	testNamespace = "/api/v1/namespaces/ocm-test-1"
	hosted        = "/apis/hypershift.openshift.io/v1beta1/namespaces/ocm-test-1/hostedclusters"
)

// withHostedCluster returns the management cluster, which has a HostedCluster.
func withHostedCluster(t *testing.T) *kubeapitest.Cluster {
	t.Helper()
	cluster := shared.Cluster(t)
	prepared.Do(func() { prepare(t, cluster) })
	return cluster
}

// prepare creates a HostedCluster and its objects.
func prepare(t *testing.T, cluster *kubeapitest.Cluster) {
	t.Helper()
	administrator := newAPIClient(t, cluster.Server, cluster.Kubeconfig())
	for _, object := range []struct{ path, body string }{
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kubeapitest.HostedClusters},
		{"/api/v1/namespaces", `{"metadata":{"name":"ocm-test-1"}}`},
		{testNamespace + "/secrets", `{"metadata":{"name":"root-ca"}}`},
		{testNamespace + "/configmaps", `{"metadata":{"name":"root-ca"}}`},
		{testNamespace + "/configmaps", `{"metadata":{"name":"other"}}`},
		{testNamespace + "/services", `{"metadata":{"name":"kube-apiserver"},"spec":{"ports":[{"port":6443}]}}`},
	} {
		if status, answer := administrator.do(t, http.MethodPost, object.path, jsonType, object.body); status >= 300 {
			t.Fatalf("%s: %d %s", object.path, status, answer)
		}
	}
	eventually.Soon(t, "the API server serves HostedClusters", func() error {
		status, answer := administrator.do(t, http.MethodPost, hosted, jsonType,
			`{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"h","annotations":{"a":"b"},"labels":{"c":"d"}},"spec":{"release":{"image":"r"}}}`)
		if status != http.StatusCreated && status != http.StatusConflict {
			return fmt.Errorf("%d %s", status, answer)
		}
		return nil
	})
}

// try sends the attempts, and those that no program with an annotation of its own may make.
func (c *apiClient) try(t *testing.T, user string, attempts ...attempt) {
	t.Helper()
	forbidden := func(reason, method, path, body string) {
		attempts = append(attempts, attempt{reason, method, path, body, http.StatusForbidden})
	}
	forbidden("an annotation of nobody", http.MethodPatch, hosted+"/h", `{"metadata":{"annotations":{"runtime.hcpmesh.io/faults":"x"}}}`)
	forbidden("a changed annotation", http.MethodPatch, hosted+"/h", `{"metadata":{"annotations":{"a":"c"}}}`)
	forbidden("a removed annotation", http.MethodPatch, hosted+"/h", `{"metadata":{"annotations":{"a":null}}}`)
	forbidden("all annotations removed", http.MethodPatch, hosted+"/h", `{"metadata":{"annotations":null}}`)
	forbidden("a label", http.MethodPatch, hosted+"/h", `{"metadata":{"labels":{"c":"e"}}}`)
	forbidden("all labels removed", http.MethodPatch, hosted+"/h", `{"metadata":{"labels":null}}`)
	forbidden("a finalizer", http.MethodPatch, hosted+"/h", `{"metadata":{"finalizers":["a/b"]}}`)
	forbidden("an owner", http.MethodPatch, hosted+"/h", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"other","uid":"x"}]}}`)
	forbidden("the specification", http.MethodPatch, hosted+"/h", `{"spec":{"release":{"image":"s"}}}`)
	forbidden("a new field", http.MethodPatch, hosted+"/h", `{"status":{"x":"y"}}`)
	forbidden("a HostedCluster", http.MethodPost, hosted, `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"i"}}`)
	forbidden("a deletion", http.MethodDelete, hosted+"/h", "")
	forbidden("the Secret of the authority", http.MethodGet, testNamespace+"/secrets/root-ca", "")
	forbidden("Secrets", http.MethodGet, "/api/v1/secrets", "")
	forbidden("all Services", http.MethodGet, "/api/v1/services", "")
	forbidden("all ConfigMaps", http.MethodGet, "/api/v1/configmaps", "")
	forbidden("another ConfigMap", http.MethodGet, testNamespace+"/configmaps/other", "")
	forbidden("a new ConfigMap", http.MethodPost, testNamespace+"/configmaps", `{"metadata":{"name":"c"}}`)
	forbidden("its own role", http.MethodPatch, "/apis/rbac.authorization.k8s.io/v1/clusterroles/"+user, `{"rules":[]}`)
	forbidden("its own policy", http.MethodDelete, "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/"+user, "")
	for _, a := range attempts {
		kind := jsonType
		if a.method == http.MethodPatch {
			kind = mergeType
		}
		if status, answer := c.do(t, a.method, a.path, kind, a.body); status != a.status {
			t.Errorf("%s: %s %s: %d, want %d: %s", a.reason, a.method, a.path, status, a.status, answer)
		}
	}
}

// annotate returns the body of a patch with an annotation.
func annotate(name, value string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, name, value)
}

// TestProber sends requests as monitor's prober.
func TestProber(t *testing.T) {
	cluster := withHostedCluster(t)
	newAPIClient(t, cluster.Server, cluster.ProberKubeconfig(t)).try(t, "monitor-inside",
		attempt{"its report", http.MethodPatch, hosted + "/h", annotate(hostedreport.InsideAnnotation, `"{}"`), http.StatusOK},
		attempt{"another report", http.MethodPatch, hosted + "/h", annotate(hostedreport.InsideAnnotation, `"{ }"`), http.StatusOK},
		attempt{"the report of the log forwarder", http.MethodPatch, hosted + "/h", annotate(hostedreport.LogAnnotation, `"{}"`), http.StatusForbidden},
		attempt{"the HostedClusters", http.MethodGet, "/apis/hypershift.openshift.io/v1beta1/hostedclusters", "", http.StatusOK},
		attempt{"the Services of API servers", http.MethodGet, "/api/v1/services?fieldSelector=metadata.name%3Dkube-apiserver", "", http.StatusOK},
		attempt{"the authorities", http.MethodGet, "/api/v1/configmaps?fieldSelector=metadata.name%3Droot-ca", "", http.StatusOK},
		attempt{"the namespaces", http.MethodGet, "/api/v1/namespaces", "", http.StatusForbidden})
}

// TestForwarder sends requests as the log forwarder.
func TestForwarder(t *testing.T) {
	cluster := withHostedCluster(t)
	newAPIClient(t, cluster.Server, cluster.ForwarderKubeconfig(t)).try(t, "log-forwarder",
		attempt{"its report", http.MethodPatch, hosted + "/h", annotate(hostedreport.LogAnnotation, `"{}"`), http.StatusOK},
		attempt{"another report", http.MethodPatch, hosted + "/h", annotate(hostedreport.LogAnnotation, `"{ }"`), http.StatusOK},
		attempt{"the report of the prober", http.MethodPatch, hosted + "/h", annotate(hostedreport.InsideAnnotation, `"{}"`), http.StatusForbidden},
		attempt{"a HostedCluster to read", http.MethodGet, hosted + "/h", "", http.StatusOK},
		attempt{"all HostedClusters", http.MethodGet, "/apis/hypershift.openshift.io/v1beta1/hostedclusters", "", http.StatusOK},
		attempt{"the namespaces", http.MethodGet, "/api/v1/namespaces", "", http.StatusOK},
		attempt{"a namespace to change", http.MethodPatch, "/api/v1/namespaces/ocm-test-1", `{"metadata":{"labels":{"a":"b"}}}`, http.StatusForbidden})
}

// TestEgress sends requests as the egress proxy.
func TestEgress(t *testing.T) {
	cluster := withHostedCluster(t)
	newAPIClient(t, cluster.Server, cluster.EgressKubeconfig(t)).try(t, "egress-proxy",
		attempt{"its report", http.MethodPatch, hosted + "/h", annotate(hostedreport.EgressAnnotation, `"{}"`), http.StatusOK},
		attempt{"the end of its report", http.MethodPatch, hosted + "/h", annotate(hostedreport.EgressAnnotation, `null`), http.StatusOK},
		attempt{"the report of the prober", http.MethodPatch, hosted + "/h", annotate(hostedreport.InsideAnnotation, `"{}"`), http.StatusForbidden},
		attempt{"a HostedCluster to read", http.MethodGet, hosted + "/h", "", http.StatusOK},
		attempt{"all HostedClusters", http.MethodGet, "/apis/hypershift.openshift.io/v1beta1/hostedclusters", "", http.StatusForbidden},
		attempt{"the control planes of a namespace, which are not defined here", http.MethodGet, strings.Replace(hosted, "hostedclusters", "hostedcontrolplanes", 1), "", http.StatusNotFound},
		attempt{"the namespaces", http.MethodGet, "/api/v1/namespaces", "", http.StatusForbidden})
}

// TestTunnel sends requests as the agent of tunnels.
func TestTunnel(t *testing.T) {
	cluster := withHostedCluster(t)
	newAPIClient(t, cluster.Server, cluster.TunnelKubeconfig(t)).try(t, "gateway-tunnel",
		attempt{"the HostedCluster of an ID", http.MethodGet, "/apis/hypershift.openshift.io/v1beta1/hostedclusters?labelSelector=api.openshift.com%2Fid%3D1", "", http.StatusOK},
		attempt{"the report of the prober", http.MethodPatch, hosted + "/h", annotate(hostedreport.InsideAnnotation, `"{}"`), http.StatusForbidden},
		attempt{"a token of the mode read", http.MethodPost, "/api/v1/namespaces/gateway-tunnel/serviceaccounts/access-reader/token", `{}`, http.StatusCreated},
		attempt{"a token of the mode admin", http.MethodPost, "/api/v1/namespaces/gateway-tunnel/serviceaccounts/access-admin/token", `{}`, http.StatusCreated},
		attempt{"a token of another account", http.MethodPost, "/api/v1/namespaces/gateway-tunnel/serviceaccounts/default/token", `{}`, http.StatusForbidden},
		attempt{"a token of another namespace", http.MethodPost, "/api/v1/namespaces/kube-system/serviceaccounts/access-admin/token", `{}`, http.StatusForbidden},
		attempt{"an account", http.MethodPost, "/api/v1/namespaces/gateway-tunnel/serviceaccounts", `{"metadata":{"name":"s"}}`, http.StatusForbidden},
		attempt{"a right", http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/namespaces/gateway-tunnel/rolebindings", `{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[]}`, http.StatusForbidden},
		attempt{"all Services of API servers", http.MethodGet, "/api/v1/services?fieldSelector=metadata.name%3Dkube-apiserver", "", http.StatusForbidden},
		attempt{"the namespaces", http.MethodGet, "/api/v1/namespaces", "", http.StatusForbidden})
}

// TestExpressionsAreShort checks what maxTerms is for: a long expression takes an API server on a busy machine longer than a request may take.
func TestExpressionsAreShort(t *testing.T) {
	objects := must.Get(managementaccess.Objects(managementaccess.Agent, "example.com/releases"))(t)
	var policy struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	must.Do(t, yaml.Unmarshal(objects["3-policy.yaml"], &policy))
	for _, variable := range policy.Spec.Variables {
		if length := len(variable.Expression); length > 6000 {
			t.Errorf("the expression of %s has %d bytes", variable.Name, length)
		}
	}
}

// TestReaderRoleIsCurrent compares the role of sessions of the mode read with package readrules, which the session gateway enforces.
func TestReaderRoleIsCurrent(t *testing.T) {
	text := must.Get(os.ReadFile("objects/gateway-tunnel/5-access-reader-role.yaml"))(t)
	var role struct {
		Rules []struct {
			APIGroups       []string `yaml:"apiGroups"`
			Resources       []string `yaml:"resources"`
			Verbs           []string `yaml:"verbs"`
			NonResourceURLs []string `yaml:"nonResourceURLs"`
		}
	}
	must.Do(t, yaml.Unmarshal(text, &role))
	granted := map[string][]string{}
	for _, rule := range role.Rules {
		if rule.NonResourceURLs == nil && !slices.Equal(rule.Verbs, readrules.Verbs()) {
			t.Errorf("the verbs of %v are %v", rule.APIGroups, rule.Verbs)
		}
		for _, group := range rule.APIGroups {
			granted[group] = rule.Resources
		}
	}
	permitted := map[string][]string{}
	for _, rule := range readrules.ManagementCluster() {
		permitted[rule.Group] = rule.Resources
	}
	if diff := cmp.Diff(permitted, granted); diff != "" {
		t.Errorf("(-permitted +granted):\n%s", diff)
	}
}

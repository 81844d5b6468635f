package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
)

var (
	bodyNow = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	bodyEnd = bodyNow.Add(15 * time.Minute)
)

// The parts of the bodies in the tests. All that is called hidden must not be recorded.
const (
	hiddenMetadata = `"metadata": {"name": "a", "annotations": {"hidden": "hidden"}, "labels": {"hidden": "hidden"}}`
	testSpec       = `{"serviceAccountName": "default", "volumes": [{"name": "hidden"}], "containers": [{"name": "main", "image": "busybox", "command": ["sh"], "args": ["-c", "id"],
		"env": [{"name": "A", "value": "b"}], "workingDir": "/hidden", "lifecycle": {"postStart": {"exec": {"command": ["id"]}, "httpGet": {"host": "hidden"}}},
		"livenessProbe": {"exec": {"command": ["true"]}, "httpGet": {"httpHeaders": [{"name": "hidden"}]}}}]}`
	keptSpec = `{"serviceAccountName": "default", "containers": [{"name": "main", "image": "busybox", "command": ["sh"], "args": ["-c", "id"], "env": [{"name": "A", "value": "b"}],
		"lifecycle": {"postStart": {"exec": {"command": ["id"]}}}, "livenessProbe": {"exec": {"command": ["true"]}}}]}`
)

// inspected is a case of TestBodiesAreRead.
type inspected struct {
	path, body string
	// want are the fields besides metadata that are recorded; empty if nothing is. refusal is a part of the error.
	want, refusal string
}

// TestBodiesAreRead has a case for each resource whose body is read.
func TestBodiesAreRead(t *testing.T) {
	const apps, rbac, openshift = "/apis/apps/v1/namespaces/n/", "/apis/rbac.authorization.k8s.io/v1/", "/apis/authorization.openshift.io/v1/"
	const csr = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	const bound = `"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}, "subjects": [{"kind": "ServiceAccount", "name": "x", "namespace": "n"}]`
	const rules = `"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]`
	spec := func(format string) inspected {
		return inspected{body: fmt.Sprintf(format, testSpec), want: fmt.Sprintf(format, keptSpec)}
	}
	at := func(path string, c inspected) inspected { c.path = path; return c }
	cases := map[string]inspected{
		"pods":                                at("/api/v1/namespaces/n/pods", spec(`"spec": %s`)),
		"pods/ephemeralcontainers":            {"/api/v1/namespaces/n/pods/a/ephemeralcontainers", `"spec": {"ephemeralContainers": [{"image": "i", "command": ["sh"], "targetContainerName": "hidden"}]}`, `"spec": {"ephemeralContainers": [{"image": "i", "command": ["sh"]}]}`, ""},
		"podtemplates":                        at("/api/v1/namespaces/n/podtemplates", spec(`"template": {"spec": %s}`)),
		"replicationcontrollers":              at("/api/v1/namespaces/n/replicationcontrollers", spec(`"spec": {"template": {"spec": %s}}`)),
		"deployments.apps":                    at(apps+"deployments", spec(`"spec": {"template": {"spec": %s}}`)),
		"daemonsets.apps":                     at(apps+"daemonsets", spec(`"spec": {"template": {"spec": %s}}`)),
		"statefulsets.apps":                   at(apps+"statefulsets", spec(`"spec": {"template": {"spec": %s}}`)),
		"replicasets.apps":                    at(apps+"replicasets", spec(`"spec": {"template": {"spec": %s}}`)),
		"controllerrevisions.apps":            at(apps+"controllerrevisions", spec(`"data": {"spec": {"template": {"spec": %s}}}`)),
		"jobs.batch":                          at("/apis/batch/v1/namespaces/n/jobs", spec(`"spec": {"template": {"spec": %s}}`)),
		"cronjobs.batch":                      at("/apis/batch/v1/namespaces/n/cronjobs", spec(`"spec": {"jobTemplate": {"spec": {"template": {"spec": %s}}}}`)),
		"deploymentconfigs.apps.openshift.io": at("/apis/apps.openshift.io/v1/namespaces/n/deploymentconfigs", spec(`"spec": {"template": {"spec": %s}}`)),

		"serviceaccounts":                                           {"/api/v1/namespaces/n/serviceaccounts", `"secrets": [{"name": "s"}]`, `"secrets": [{"name": "s"}]`, ""},
		"serviceaccounts/token":                                     {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": 900}, "status": {"token": "hidden"}`, `"spec": {"expirationSeconds": 900}`, ""},
		"serviceaccounts/token for a day":                           {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": 86400}`, "", "must not outlive the session, which ends at 2026-03-01T12:15:00Z: set spec.expirationSeconds to 600 to 900"},
		"serviceaccounts/token for a second too long":               {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": 901}`, "", "must not outlive"},
		"serviceaccounts/token for the default":                     {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {}`, "", "not 3600"},
		"serviceaccounts/token for null":                            {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": null}`, "", "not 3600"},
		"serviceaccounts/token in another spelling":                 {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"ExpirationSeconds": 600}`, "", "not 3600"},
		"serviceaccounts/token with two values":                     {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": 86400, "expirationSeconds": 600}`, "", "a field twice"},
		"serviceaccounts/token with a text":                         {"/api/v1/namespaces/n/serviceaccounts/a/token", `"spec": {"expirationSeconds": "600"}`, "", "not a whole number"},
		"secrets":                                                   {"/api/v1/namespaces/n/secrets", `"data": {"hidden": "aGlkZGVu"}`, "", ""},
		"secrets with a token":                                      {"/api/v1/namespaces/n/secrets", `"type": "kubernetes.io/service-account-token"`, "", "does not permit Secrets of the type kubernetes.io/service-account-token"},
		"secrets with a token for nodes":                            {"/api/v1/namespaces/n/secrets", `"type": "bootstrap.kubernetes.io/token"`, "", "does not permit Secrets of the type bootstrap.kubernetes.io/token"},
		"certificatesigningrequests.certificates.k8s.io":            {csr, `"spec": {"signerName": "s", "expirationSeconds": 600}`, `"spec": {"signerName": "s", "expirationSeconds": 600}`, ""},
		"certificatesigningrequests.certificates.k8s.io for a year": {csr, `"spec": {"signerName": "s"}`, "", "The certificate must not outlive the session"},
		"certificatesigningrequests.certificates.k8s.io/approval":   {csr + "/a/approval", `"status": {"conditions": [{"type": "Approved"}]}`, `"status": {"conditions": [{"type": "Approved"}]}`, ""},
		"certificatesigningrequests.certificates.k8s.io/status":     {csr + "/a/status", `"status": {"certificate": "cHVibGlj"}`, `"status": {"certificate": "cHVibGlj"}`, ""},
		"roles.rbac.authorization.k8s.io":                           {rbac + "namespaces/n/roles", rules, rules, ""},
		"clusterroles.rbac.authorization.k8s.io":                    {rbac + "clusterroles", rules, rules, ""},
		"rolebindings.rbac.authorization.k8s.io":                    {rbac + "namespaces/n/rolebindings", bound, bound, ""},
		"clusterrolebindings.rbac.authorization.k8s.io":             {rbac + "clusterrolebindings", bound, bound, ""},
		"roles.authorization.openshift.io":                          {openshift + "namespaces/n/roles", rules, rules, ""},
		"clusterroles.authorization.openshift.io":                   {openshift + "clusterroles", rules, rules, ""},
		"rolebindings.authorization.openshift.io":                   {openshift + "namespaces/n/rolebindings", bound, bound, ""},
		"clusterrolebindings.authorization.openshift.io":            {openshift + "clusterrolebindings", `"userNames": ["x"], ` + bound, `"userNames": ["x"], ` + bound, ""},
		"groups.user.openshift.io":                                  {"/apis/user.openshift.io/v1/groups", `"users": ["x"]`, `"users": ["x"]`, ""},
		"oauthaccesstokens.oauth.openshift.io":                      {"/apis/oauth.openshift.io/v1/oauthaccesstokens", `"userName": "x"`, "", "would not end with the session"},
		"oauthauthorizetokens.oauth.openshift.io":                   {"/apis/oauth.openshift.io/v1/oauthauthorizetokens", `"userName": "x"`, "", "would not end with the session"},
	}
	for kind := range bodies {
		if _, found := cases[kind]; !found {
			t.Errorf("no case for %s", kind)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := parse(t, http.MethodPost, c.path)
			if kind, _, _ := strings.Cut(name, " "); !r.ReadsBody() || r.Kind() != kind {
				t.Fatalf("the body of %s is read: %t", r.Kind(), r.ReadsBody())
			}
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodDelete} {
				if parse(t, method, c.path).ReadsBody() {
					t.Errorf("the body of %s is read", method)
				}
			}
			got, err := ReadBody(r, []string{"application/json"}, []byte("{"+hiddenMetadata+", "+c.body+"}"), bodyNow, bodyEnd)
			if text := fmt.Sprint(err); (err != nil) != (c.refusal != "") || !strings.Contains(text, c.refusal) {
				t.Fatalf("%v, want %q", err, c.refusal)
			}
			if (got != nil) != (c.want != "") {
				t.Fatalf("recorded: %+v, want %q", got, c.want)
			}
			if got == nil {
				return
			}
			text, err := got.Text()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "hidden") || got.Name != "a" {
				t.Errorf("recorded: %s", text)
			}
			if diff := cmp.Diff(asJSON(t, `{"metadata": {"name": "a"}, `+c.want+"}"), asJSON(t, string(text))["body"]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func asJSON(t testing.TB, text string) (value map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// TestPatchesAreRead reads bodies in each media type, and refuses those that the gateway cannot read as the API server does.
func TestPatchesAreRead(t *testing.T) {
	const path = "/apis/apps/v1/namespaces/n/deployments/a"
	const merged = `{"metadata":{"annotations":{"hidden":"hidden"}},"spec":{"template":{"spec":{"containers":[{"name":"m","args":["id"],"command":null,"workingDir":"/hidden"}]}}}}`
	const kept = `{"metadata":{},"spec":{"template":{"spec":{"containers":[{"args":["id"],"command":null,"name":"m"}]}}}}`
	for name, c := range map[string]struct {
		method, media, body, want, refusal string
	}{
		"a strategic merge patch": {"PATCH", "application/strategic-merge-patch+json", merged, kept, ""},
		"a merge patch":           {"PATCH", "application/merge-patch+json; charset=utf-8", merged, kept, ""},
		"an apply patch":          {"PATCH", "application/apply-patch+yaml", "spec: {template: {spec: {containers: [{name: m, image: &i x, args: [*i]}]}}}", `{"spec":{"template":{"spec":{"containers":[{"args":["x"],"image":"x","name":"m"}]}}}}`, ""},
		"YAML":                    {"PUT", "application/yaml", "spec: {template: {spec: {containers: [{command: [id]}]}}}", `{"spec":{"template":{"spec":{"containers":[{"command":["id"]}]}}}}`, ""},
		"no type":                 {"PUT", "", `{"spec":{"replicas":1}}`, `{"spec":{}}`, ""},
		"a JSON patch": {"PATCH", "application/json-patch+json", `[{"op":"test","path":"/metadata/annotations/x","value":"hidden"},{"op":"replace","path":"/spec/template/spec/containers/0/args/-1","value":"id"},
			{"op":"add","path":"/spec/template/spec/containers/-","value":{"image":"i","tty":"hidden"}},{"op":"add","path":"/spec/template","value":{"metadata":{"labels":{"a":"hidden"}},"spec":{"containers":[{"image":"j"}]}}},
			{"op":"remove","path":"/spec/template/spec/containers/0/command"},{"op":"replace","path":"","value":{"data":"hidden"}}]`,
			`[{"op":"test","path":"/metadata/annotations/x"},{"op":"replace","path":"/spec/template/spec/containers/0/args/-1","value":"id"},{"op":"add","path":"/spec/template/spec/containers/-","value":{"image":"i"}},` +
				`{"op":"add","path":"/spec/template","value":{"spec":{"containers":[{"image":"j"}]}}},{"op":"remove","path":"/spec/template/spec/containers/0/command"},{"op":"replace","path":"","value":{}}]`, ""},
		"a copy in a JSON patch":  {"PATCH", "application/json-patch+json", `[{"op":"copy","from":"/metadata/annotations/x","path":"/spec/template/spec/containers/0/command/0"}]`, "", "op must be add, replace, remove or test"},
		"a relative path":         {"PATCH", "application/json-patch+json", `[{"op":"add","path":"x/spec/template/spec/containers/0/image","value":"i"}]`, "", "begin with a slash"},
		"no list":                 {"PATCH", "application/json-patch+json", `{}`, "", "not a list"},
		"a field twice":           {"PATCH", "application/merge-patch+json", `{"spec":{"template":1,"template":2}}`, "", "a field twice"},
		"a field twice in YAML":   {"PUT", "application/yaml", "spec: 1\nspec: 2\n", "", "has a field twice"},
		"two values":              {"PUT", "application/json", `{} {}`, "", "not JSON"},
		"a list":                  {"PUT", "application/json", `[]`, "", "not an object"},
		"protobuf":                {"PUT", "application/vnd.kubernetes.protobuf", inProtobuf(t), `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"args":["id"],"image":"i","name":""}]}}}}`, ""},
		"invalid protobuf":        {"PUT", "application/vnd.kubernetes.protobuf", "k8s\x00hidden", "", "not an object of Kubernetes"},
		"CBOR":                    {"PUT", "application/cbor", "\xd9\xd9\xf7\xa0", "", "cannot read the Content-Type"},
		"an apply patch in CBOR":  {"PATCH", "application/apply-patch+cbor", "\xa0", "", "cannot read the Content-Type"},
		"a patch without a type":  {"PATCH", "", `{}`, "", "cannot read the Content-Type"},
		"a patch of another type": {"PATCH", "application/json", `{}`, "", "cannot read the Content-Type"},
		"an invalid type":         {"PUT", "application/json;;", `{}`, "", "not a media type"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadBody(parse(t, c.method, path), []string{c.media}, []byte(c.body), bodyNow, bodyEnd)
			if text := fmt.Sprint(err); (err != nil) != (c.refusal != "") || !strings.Contains(text, c.refusal) || strings.Contains(text, "hidden") {
				t.Fatalf("%v, want %q", err, c.refusal)
			}
			if err != nil {
				return
			}
			if text, err := json.Marshal(got.Body); err != nil || string(text) != c.want {
				t.Errorf("%s, want %s: %v", text, c.want, err)
			}
		})
	}
	if _, err := ReadBody(parse(t, "PUT", path), []string{"application/json", "application/yaml"}, []byte("{}"), bodyNow, bodyEnd); err == nil {
		t.Error("two media types are accepted")
	}
	// Server-side apply creates what does not exist.
	for path, body := range map[string]string{"/api/v1/namespaces/n/secrets/a": `{"type": "kubernetes.io/service-account-token"}`, "/apis/certificates.k8s.io/v1/certificatesigningrequests/a": `{"spec": {"signerName": "s"}}`} {
		if _, err := ReadBody(parse(t, "PATCH", path), []string{"application/apply-patch+yaml"}, []byte(body), bodyNow, bodyEnd); err == nil {
			t.Errorf("applying %s is permitted", path)
		}
	}
}

// TestLifetimeNeedsTimeOfSession requests a token when less than the minimum is left.
func TestLifetimeNeedsTimeOfSession(t *testing.T) {
	for _, end := range []time.Time{{}, bodyNow.Add(minLifetime*time.Second - 1)} {
		_, err := ReadBody(parse(t, "POST", "/api/v1/namespaces/n/serviceaccounts/a/token"), nil, []byte(`{"spec": {"expirationSeconds": 600}}`), bodyNow, end)
		if err == nil || !strings.Contains(err.Error(), "no spec.expirationSeconds is possible. Open another session") {
			t.Errorf("%v", err)
		}
	}
}

// FuzzRecordedPods sends arbitrary bodies. Each image and each part of a command in the Pod that an API server decodes is recorded.
func FuzzRecordedPods(f *testing.F) {
	for _, seed := range []string{`{"spec":` + testSpec + `}`, `{"spec":{"containers":[{"image":"a"}],"containers":[]}}`, `{"Spec":{"containers":[{"image":"a"}]}}`, `{"spec":{"containers":[{"command":["\ud800\u00e9<"]}]}}`, `null`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		got, err := ReadBody(parse(t, "POST", "/api/v1/namespaces/n/pods"), nil, content, bodyNow, bodyEnd)
		if err != nil {
			return
		}
		var pod corev1.Pod
		if kjson.UnmarshalCaseSensitivePreserveInts(content, &pod) != nil {
			return
		}
		text, err := got.Text()
		if err != nil {
			t.Fatal(err)
		}
		var recorded struct {
			Body corev1.Pod `json:"body"`
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &recorded); err != nil {
			t.Fatal(err)
		}
		if want, got := whatRuns(&pod), whatRuns(&recorded.Body); !slices.Equal(want, got) {
			t.Fatalf("recorded %q of %q", got, want)
		}
	})
}

func whatRuns(pod *corev1.Pod) (texts []string) {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		texts = append(append(append(texts, c.Image), c.Command...), c.Args...)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		texts = append(append(append(texts, c.Image), c.Command...), c.Args...)
	}
	return texts
}

// inProtobuf returns a Deployment as kubectl encodes it.
func inProtobuf(t *testing.T) string {
	t.Helper()
	object := &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"hidden": "hidden"}}}
	object.Spec.Template.Spec.Containers = []corev1.Container{{Image: "i", Args: []string{"id"}, WorkingDir: "/hidden"}}
	var content bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &content); err != nil {
		t.Fatal(err)
	}
	return content.String()
}

package infrastructure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/azuretest"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

const (
	checkout = "../../../.."
	westus3  = "public/prod/westus3"
)

func configuration(t *testing.T, dir string) *deployment.Configuration {
	t.Helper()
	return must.Get(deployment.Open(dir))(t)
}

// request returns the request of a step for a target.
func request(step, target string, with map[string]any) action.Request {
	return action.Request{Step: step, Target: strings.Split(target, "/"), With: with, Outputs: []string{Result, ClientIDs, ObjectIDs}, Log: io.Discard}
}

// TestApply applies two scopes to the emulator of Azure with OpenTofu, and refuses a plan that replaces data. It then deletes one of them.
func TestApply(t *testing.T) {
	programs := azuretest.Programs(t)
	azure := azuretest.Start(t, 0)
	a := Infrastructure{Configuration: configuration(t, checkout+"/config"), Allowed: map[string][]string{},
		Options: tofu.ScopeOptions{Templates: checkout + "/dev-infrastructure/azure", Programs: programs, Dir: t.TempDir(), Env: azure.Env}}
	global := must.Get(a.Run(t.Context(), request("global/infrastructure", "public/prod", map[string]any{"scope": "global"})))(t)
	region := request("region/infrastructure", westus3, map[string]any{"scope": "region", "outer": map[string]string{"global": global[Result]}})
	var first bytes.Buffer
	if err := a.Preview(t.Context(), region, &first); err != nil || !strings.Contains(first.String(), "create azapi_resource.cosmos\n") {
		t.Errorf("the preview is %s: %v", &first, err)
	}
	outputs := must.Get(a.Run(t.Context(), region))(t)
	for name, output := range outputs { // a rollout stores outputs, and refuses those with the form of a secret
		if schema.LooksLikeSecret(output) {
			t.Errorf("the output %s has the form of a secret", name)
		}
	}
	var clients, objects map[string]string
	must.Do(t, errors.Join(json.Unmarshal([]byte(outputs[ClientIDs]), &clients), json.Unmarshal([]byte(outputs[ObjectIDs]), &objects)))
	rendered := must.Get(a.Configuration.Render(region.Target))(t)
	for _, program := range []string{"frontend", "backend", "admin", "gatewayAccess", "gatewayEgress", "monitor", "clusterService", "maestro", "ingress"} {
		for _, identity := range values.Identities(rendered.Get(program)) {
			if clients[identity] == "" || objects[identity] == "" || clients[identity] == objects[identity] { // the chart of the program needs both
				t.Errorf("%s has the client ID %q and the object ID %q", identity, clients[identity], objects[identity])
			}
		}
	}
	again, err := a.Run(t.Context(), region)
	if err != nil || again[ClientIDs] != outputs[ClientIDs] || again[ObjectIDs] != outputs[ObjectIDs] {
		t.Errorf("the second run: %v, %v", again, err)
	}

	// Another name of the account would replace the data.
	dir := t.TempDir()
	must.Do(t, os.CopyFS(dir, os.DirFS(checkout+"/config")))
	file := must.Get(os.OpenFile(dir+"/clouds/public/prod/westus3.yaml", os.O_APPEND|os.O_WRONLY, 0))(t)
	if _, err = file.WriteString("\ncosmos: {account: hcpm-other}\n"); err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	a.Configuration = configuration(t, dir)
	var loss *LossError
	if _, err := a.Run(t.Context(), region); !errors.As(err, &loss) || !slices.Contains(loss.Addresses, "azapi_resource.cosmos") || !strings.Contains(err.Error(), "--allow-deletion 'region/infrastructure:azapi_resource.cosmos'") {
		t.Fatalf("got %v", err)
	}
	a.Allowed["region/infrastructure"] = loss.Addresses
	if _, err := a.Run(t.Context(), region); err != nil {
		t.Errorf("with the deletions allowed: %v", err)
	}

	delete(a.Allowed, "region/infrastructure")
	if err := a.Delete(t.Context(), region); !errors.As(err, &loss) || !slices.Contains(loss.Addresses, "azapi_resource.cosmos") {
		t.Fatalf("a deletion that nobody allowed: %v", err)
	}
	var preview bytes.Buffer
	a.Allowed["region/infrastructure"] = loss.Addresses
	if err := a.PreviewDeletion(t.Context(), region, &preview); err != nil || !strings.Contains(preview.String(), "delete azapi_resource.cosmos\n") {
		t.Errorf("the preview of the deletion is %s: %v", &preview, err)
	}
	if err := a.Delete(t.Context(), region); err != nil {
		t.Errorf("the deletion: %v", err)
	}
	preview.Reset()
	if err := errors.Join(a.PreviewDeletion(t.Context(), region, &preview), a.Delete(t.Context(), region)); err != nil || preview.Len() > 0 {
		t.Errorf("the second deletion would delete %s: %v", &preview, err)
	}
}

// TestContent expects a hash that changes with the configuration, and the same hash for an environment without a region in the target.
func TestContent(t *testing.T) {
	a := Infrastructure{Configuration: configuration(t, checkout+"/config")}
	hashes := map[string]bool{}
	for _, r := range []action.Request{
		request("global/infrastructure", "public/prod", map[string]any{"scope": "global"}),
		request("region/infrastructure", westus3, map[string]any{"scope": "region"}),
		request("region/infrastructure", "public/prod/uksouth", map[string]any{"scope": "region"}),
		request("management-cluster@1/infrastructure", westus3+"/1", map[string]any{"scope": "management-cluster"}),
	} {
		content := must.Get(a.Content(r))(t)
		again, err := a.Content(r)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(content) {
			t.Errorf("%s: %v and %v: %v", r.Step, content, again, err)
		}
		hashes[fmt.Sprint(content)] = true
	}
	if len(hashes) < 3 {
		t.Errorf("targets have the same content: %v", hashes)
	}
}

func TestMistakes(t *testing.T) {
	a := Infrastructure{Configuration: configuration(t, checkout+"/config"), Options: tofu.ScopeOptions{Programs: t.TempDir(), Dir: t.TempDir()}}
	for reason, c := range map[string]struct {
		target string
		with   map[string]any
		want   string
	}{
		"an unknown scope":            {westus3, map[string]any{"scope": "geography"}, `scope "geography" does not exist`},
		"a scope of another target":   {westus3, map[string]any{"scope": "management-cluster"}, "is not a target of the scope management-cluster"},
		"an outer scope is missing":   {westus3, map[string]any{"scope": "region"}, "needs the outputs of global"},
		"an outer scope without JSON": {westus3, map[string]any{"scope": "region", "outer": map[string]string{"global": "{"}}, "outer.global: is not JSON"},
		"OpenTofu is not built":       {"public/prod", map[string]any{"scope": "global"}, "tooling/third-party/build.sh opentofu"},
	} {
		if _, err := a.Run(t.Context(), request("a/b", c.target, c.with)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

func TestIDsOfIdentities(t *testing.T) {
	result := json.RawMessage(`{"identities": {"a": {"name": "n1", "clientId": "c1", "principalId": "p1"}}, "agent": {"name": "n2", "clientId": "c2"}, "zone": {"name": "n3"}}`)
	for key, want := range map[string]string{"clientId": `{"n1":"c1","n2":"c2"}`, "principalId": `{"n1":"p1"}`} {
		if got, err := identities(result, key); err != nil || got != want {
			t.Errorf("%s: %s, %v", key, got, err)
		}
	}
}

func TestEgressAddressesOfResult(t *testing.T) {
	for result, want := range map[string]string{
		`{"egressAddresses": ["198.51.100.2", "198.51.100.3"]}`: `["198.51.100.2","198.51.100.3"]`,
		`{"zone": {"name": "n3"}}`:                              `[]`,
		"":                                                      `[]`,
	} {
		if got, err := egressAddresses(json.RawMessage(result)); err != nil || got != want {
			t.Errorf("%s: %s, %v", result, got, err)
		}
	}
	if _, err := egressAddresses(json.RawMessage(`{"egressAddresses": "198.51.100.2"}`)); err == nil {
		t.Error("a text is accepted as a list of addresses")
	}
}

// TestErrorsHaveClasses uses errors as the provider prints them.
func TestErrorsHaveClasses(t *testing.T) {
	for text, want := range map[string]action.Class{
		"RESPONSE 409: 409 Conflict\nERROR CODE: AnotherOperationInProgress": action.Conflict,
		"RESPONSE 429: 429 Too Many Requests":                                action.Throttled,
		"RESPONSE 503: a\nRESPONSE 500: b":                                   action.Unavailable,
		"RESPONSE 503: a\nRESPONSE 403: 403 Forbidden":                       action.ClassFailed,
		"Error: Invalid reference":                                           action.ClassFailed,
	} {
		if class := action.ClassOf(classified(t.Context(), errors.New(text))); class != want {
			t.Errorf("%q has the class %s, not %s", text, class, want)
		}
	}
}

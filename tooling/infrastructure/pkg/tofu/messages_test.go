package tofu

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestMessages checks that errors of `tofu apply -json` are kept, and that resources which exist are separate from other failures.
func TestMessages(t *testing.T) {
	plan, err := ReadPlan(strings.NewReader(`{"resource_changes": [{"address": "azapi_resource.a", "change": {"actions": ["create"], "after": {"type": "Microsoft.KeyVault/vaults@2023-07-01"}}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	m := &messages{to: &log}
	for _, part := range []string{
		`{"@message":"azapi_resource.a: Creating..."}` + "\n" + `{"@message":"Error: Resource already exists","diagnostic":{"severity":"error","summary":"Resource already exists",`,
		`"detail":"A resource with the ID \"/subscriptions/s/a\" already exists - to be managed","address":"azapi_resource.a"}}` + "\nnot JSON\n",
		`{"@message":"Warning","diagnostic":{"severity":"warning","summary":"w"}}` + "\n",
		`{"@message":"Error: Failed","diagnostic":{"severity":"error","summary":"Failed","detail":"403","address":"azapi_resource.b"}}` + "\n",
	} {
		must.Get(m.Write([]byte(part)))(t)
	}
	err = m.err(plan)
	var exists *ExistsError
	if !errors.As(err, &exists) || len(exists.Resources) != 1 || exists.Resources[0] != (Existing{"azapi_resource.a", "/subscriptions/s/a", "2023-07-01"}) {
		t.Errorf("existing resources are %+v", exists)
	}
	if !strings.Contains(err.Error(), "azapi_resource.b: Failed: 403") || strings.Contains(err.Error(), "w:") {
		t.Errorf("the error is %v", err)
	}
	if want := "azapi_resource.a: Creating...\nError: Resource already exists\nnot JSON\nWarning\nError: Failed\n"; log.String() != want {
		t.Errorf("the log is %q, want %q", log.String(), want)
	}
}

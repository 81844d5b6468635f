package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/node"
)

// TestLifeOfAClusterByNpm has the published Azure SDK for JavaScript do the main job; its steps and what they assert are in
// clients/npm/drive.mjs.
func TestLifeOfAClusterByNpm(t *testing.T) {
	needsRegion(t)
	ctx := patience(t, 5*time.Minute)
	const dir = "../clients/npm"
	if err := node.Prepare(ctx, dir); errors.Is(err, node.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000003", "npm")

	endpoints := region.Endpoints()
	credentials, err := os.ReadFile(endpoints.CredentialsFile)
	if err != nil {
		t.Fatal(err)
	}
	var clients []json.RawMessage
	if err := json.Unmarshal(credentials, &clients); err != nil || len(clients) == 0 {
		t.Fatalf("%s holds no client: %v", endpoints.CredentialsFile, err)
	}
	type resource struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Body any    `json:"body"`
	}
	task, err := json.Marshal(map[string]any{
		"arm": endpoints.ARM, "client": clients[0], "location": endpoints.Location, "apiVersion": customer.APIVersion,
		"subscription": c.Subscription, "resourceGroup": "npm",
		"cluster":  resource{c.ClusterID("scripted"), "scripted", c.ClusterBody("scripted")},
		"nodePool": resource{c.NodePoolID("scripted", "workers"), "workers", c.NodePoolBody(2)},
	})
	if err != nil {
		t.Fatal(err)
	}

	drive := node.Command(ctx, dir, "drive.mjs")
	drive.Stdin = bytes.NewReader(task)
	drive.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+endpoints.CAFile)
	output, err := drive.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
	nothingIsLeft(t, ctx, c)
}

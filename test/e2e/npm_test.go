package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/node"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// TestLifeOfAClusterByNpm has the published Azure SDK for JavaScript do the main job, at every api-version; its steps and
// what they assert are in clients/npm/drive.mjs.
func TestLifeOfAClusterByNpm(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	if err := node.Prepare(patience(t, 10*time.Minute), npmDir); errors.Is(err, node.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	atOnce.enter()
	var customers []*customer.Customer
	defer func() { atOnce.leave(t, customers...) }()
	t.Run("at", func(t *testing.T) {
		for i, version := range []string{"2024-06-10-preview", "2025-12-23-preview", "2026-06-30-preview", customer.APIVersion} {
			ctx := patience(t, 10*time.Minute)
			c := newCustomer(t, ctx, fmt.Sprintf("11111111-0000-0000-0001-%012d", i), "npm")
			customers = append(customers, c)
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				liveByNpm(t, ctx, c, version)
			})
		}
	})
}

// npmDir is where the program is that drives the client.
const npmDir = "../clients/npm"

func liveByNpm(t *testing.T, ctx context.Context, c *customer.Customer, version string) {
	endpoints := region.Endpoints()
	credentials, err := os.ReadFile(endpoints.CredentialsFile)
	if err != nil {
		t.Fatal(err)
	}
	var clients []json.RawMessage
	if err := json.Unmarshal(credentials, &clients); err != nil || len(clients) == 0 {
		t.Fatalf("%s holds no client: %v", endpoints.CredentialsFile, err)
	}
	access := map[string]any{} // older api-versions have the service make the key
	if version == customer.APIVersion {
		key, signing, err := credential.Request()
		if err != nil {
			t.Fatal(err)
		}
		access["key"], access["request"] = string(key), string(signing)
	}
	type resource struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Body any    `json:"body"`
	}
	task, err := json.Marshal(map[string]any{
		"arm": endpoints.ARM, "client": clients[0], "location": endpoints.Location, "apiVersion": version,
		"subscription": c.Subscription, "resourceGroup": "npm",
		"cluster":      resource{c.ClusterID("scripted"), "scripted", c.ClusterBody("scripted")},
		"nodePool":     resource{c.NodePoolID("scripted", "workers"), "workers", c.NodePoolBody(2)},
		"externalAuth": resource{c.ExternalAuthID("scripted", "entra"), "entra", c.ExternalAuthBody()},
		"credential":   access,
	})
	if err != nil {
		t.Fatal(err)
	}

	drive := node.Command(ctx, npmDir, "drive.mjs")
	drive.Stdin = bytes.NewReader(task)
	drive.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+endpoints.CAFile)
	output, err := drive.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
}

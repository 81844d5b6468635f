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

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/node"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// TestClusterLifecycleByNpm runs the life cycle of a cluster with the published Azure SDK for JavaScript, at every api-version. The
// steps and their assertions are in clients/npm/drive.mjs.
func TestClusterLifecycleByNpm(t *testing.T) {
	nightly.Only(t)
	needsAnyRegion(t)
	t.Parallel()
	if err := node.Prepare(withTimeout(t, 10*time.Minute), npmDir); errors.Is(err, node.ErrMissing) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	parallel.enter()
	var customers []*customer.Customer
	defer func() { parallel.leave(t, customers...) }()
	t.Run("at", func(t *testing.T) {
		for i, version := range []string{"2024-06-10-preview", "2025-12-23-preview", "2026-06-30-preview", customer.APIVersion} {
			ctx := withTimeout(t, 10*time.Minute)
			c := newCustomer(t, ctx, fmt.Sprintf("11111111-0000-0000-0001-%012d", i), "npm")
			customers = append(customers, c)
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				runByNpm(t, ctx, c, version)
			})
		}
	})
}

// npmDir is the folder of the program that uses the client.
const npmDir = "../clients/npm"

func runByNpm(t *testing.T, ctx context.Context, c *customer.Customer, version string) {
	credentials := must.Get(os.ReadFile(regionEndpoints.CredentialsFile))(t)
	var clients []json.RawMessage
	if err := json.Unmarshal(credentials, &clients); err != nil || len(clients) == 0 {
		t.Fatalf("%s contains no client: %v", regionEndpoints.CredentialsFile, err)
	}
	access := map[string]any{} // at older api-versions, the service generates the key
	if version == customer.APIVersion {
		key, signing, err := credential.Request()
		if err != nil {
			t.Fatal(err)
		}
		access["key"], access["request"] = string(key), string(signing)
	}
	cluster := c.ClusterBody("scripted")
	if version == "2024-06-10-preview" {
		cluster = c.ClusterBodyOf2024("scripted")
	}
	type resource struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		Body any    `json:"body"`
	}
	task := must.Get(json.Marshal(map[string]any{
		"arm": regionEndpoints.ARM, "proxy": regionEndpoints.Proxy, "client": clients[0], "location": regionEndpoints.Location, "apiVersion": version,
		"subscription": c.Subscription, "resourceGroup": "npm",
		"cluster":      resource{c.ClusterID("scripted"), "scripted", cluster},
		"nodePool":     resource{c.NodePoolID("scripted", "workers"), "workers", c.NodePoolBody(2)},
		"externalAuth": resource{c.ExternalAuthID("scripted", "entra"), "entra", c.ExternalAuthBody()},
		"credential":   access,
	}))(t)

	drive := node.Command(ctx, npmDir, "drive.mjs")
	drive.Stdin = bytes.NewReader(task)
	drive.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+regionEndpoints.CAFile)
	output, err := drive.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
}

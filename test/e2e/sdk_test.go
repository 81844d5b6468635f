package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// sdks is the folder into which `make sdks` generates the typed clients. Other runs skip them, because generation takes minutes.
var sdks = flag.String("sdks", "", "`folder` of the typed clients that test/clients/sdk generates; without it they are not driven")

// TestTypedClients uses the typed clients that are generated from our documents, for each language and api-version. The steps and
// their assertions are in clients/sdk.
func TestTypedClients(t *testing.T) {
	needsRegion(t)
	if *sdks == "" {
		t.Skip("needs the generated clients: make sdks")
	}
	drivers := generated(t)
	for number, language := range slices.Sorted(maps.Keys(drivers)) {
		t.Run(language, func(t *testing.T) {
			var customers []*customer.Customer
			t.Run("at", func(t *testing.T) {
				for i, version := range slices.Sorted(maps.Keys(drivers[language])) {
					ctx := withTimeout(t, 15*time.Minute)
					c := newCustomer(t, ctx, fmt.Sprintf("11111111-0000-0000-0002-%011d%d", number, i), "typed")
					customers = append(customers, c)
					t.Run(version, func(t *testing.T) {
						t.Parallel()
						runTyped(t, ctx, c, version, drivers[language][version])
					})
				}
			})
			nothingIsLeft(t, withTimeout(t, 5*time.Minute), customers...)
		})
	}
}

// generated returns the commands that run each client, by language and api-version.
func generated(t *testing.T) map[string]map[string][]string {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join(*sdks, "drivers.json")))(t)
	var drivers map[string]map[string][]string
	must.Do(t, json.Unmarshal(content, &drivers))
	return drivers
}

func runTyped(t *testing.T, ctx context.Context, c *customer.Customer, version string, command []string) {
	endpoints := region.Endpoints()
	credentials := must.Get(os.ReadFile(endpoints.CredentialsFile))(t)
	var clients []json.RawMessage
	if err := json.Unmarshal(credentials, &clients); err != nil || len(clients) == 0 {
		t.Fatalf("%s contains no client: %v", endpoints.CredentialsFile, err)
	}
	_, signing, err := credential.Request()
	if err != nil {
		t.Fatal(err)
	}
	clusters := map[string]any{}
	for _, name := range []string{"typed", "resumed", "short-lived"} {
		clusters[name] = c.ClusterBody(name)
	}
	task := must.Get(json.Marshal(map[string]any{
		"arm": endpoints.ARM, "authority": endpoints.CAFile, "client": clients[0], "location": endpoints.Location, "apiVersion": version,
		"subscription": c.Subscription, "resourceGroup": "typed",
		"clusters": clusters, "nodePool": c.NodePoolBody(1), "externalAuth": c.ExternalAuthBody(), "signingRequest": string(signing),
	}))(t)
	drive := exec.CommandContext(ctx, command[0], command[1:]...)
	drive.Stdin = bytes.NewReader(task)
	drive.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+endpoints.CAFile)
	output, err := drive.CombinedOutput()
	t.Logf("%s", output)
	if err != nil {
		t.Fatal(err)
	}
}

package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// region is a running region with a customer.
type region struct {
	*fault.Region
	customer *customer.Customer
	// ready is when the clusters were ready.
	ready time.Time
}

// The customer's clusters. Faults of hosted API servers are injected into one of them or into all. The API of closed does not admit monitor.
const (
	first  = "first"
	second = "second"
	third  = "third"
	closed = "closed"
)

// capacity is the capacity of a management cluster that these clusters fill.
const capacity = "4"

// The subscription and the resource group of the clusters. The customer may create storage accounts in the subscription.
const (
	subscription  = "11111111-1111-1111-1111-111111111111"
	resourceGroup = "drills"
)

// resourceID returns the resource ID of a cluster.
func resourceID(name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/" + resourceGroup + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

// pools are the node pools of the first cluster that one drill deletes together, and single is the one that another deletes.
var pools = []string{"pool-1", "pool-2", "pool-3"}

const single = "pool-4"

// use creates the clusters, and makes requests of the customer and of an engineer until the test ends.
func (r *region) use(t *testing.T, ctx context.Context) {
	t.Helper()
	r.customer = must.Get(customer.New(ctx, r.Endpoints(), subscription, resourceGroup))(t)
	t.Cleanup(func() { _ = r.customer.Close() })
	var created errgroup.Group
	for _, name := range []string{first, second, third, closed} {
		created.Go(func() error {
			body := r.customer.ClusterBody(name)
			if name == closed {
				body.Properties.(map[string]any)["api"] = map[string]any{"authorizedCidrs": []string{"203.0.113.0/24"}}
			}
			_, err := r.customer.Put(ctx, r.customer.ClusterID(name), body)
			return err
		})
	}
	must.Do(t, created.Wait())
	for _, name := range append(pools, single) {
		created.Go(func() error {
			_, err := r.customer.Put(ctx, r.customer.NodePoolID(first, name), r.customer.NodePoolBody(1))
			return err
		})
	}
	must.Do(t, created.Wait())
	r.ready = time.Now()
	must.Do(t, r.collectLogs(ctx))
	r.load(t, ctx)
}

// The number of clients of the customer, and the pause between two requests of one of them.
const (
	clients = 3
	pause   = 300 * time.Millisecond
)

// load reads a cluster, deletes one that does not exist and reads everything about a cluster as an engineer, until the test ends. The answers
// are counted by the services.
func (r *region) load(t *testing.T, ctx context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var work errgroup.Group
	repeat := func(request func(context.Context)) {
		work.Go(func() error {
			for ctx.Err() == nil {
				limited, end := context.WithTimeout(ctx, 10*time.Second)
				request(limited)
				end()
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
			return nil
		})
	}
	for range clients {
		repeat(func(ctx context.Context) { r.request(ctx, http.MethodGet, r.customer.ClusterID(first)) })
		repeat(func(ctx context.Context) { r.request(ctx, http.MethodDelete, r.customer.ClusterID("missing")) })
	}
	repeat(func(ctx context.Context) {
		_ = r.hcpctl(ctx, "cluster", "dump", r.customer.ClusterID(first))
	})
	t.Cleanup(func() {
		cancel()
		_ = work.Wait()
	})
}

// request makes a request of the customer without repeating it.
func (r *region) request(ctx context.Context, method, id string) {
	token, err := r.customer.Credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{"https://management.azure.com/.default"}})
	if err != nil {
		return
	}
	request, err := http.NewRequestWithContext(ctx, method, r.Endpoints().ARM+id+"?api-version="+customer.APIVersion, nil)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+token.Token)
	client, err := customer.NewHTTPClient(r.Endpoints().CAFile)
	if err != nil {
		return
	}
	defer client.CloseIdleConnections()
	if response, err := client.Do(request); err == nil {
		_ = response.Body.Close()
	}
}

// hcpctl runs a command of hcpctl and returns its error with its output.
func (r *region) hcpctl(ctx context.Context, arguments ...string) error {
	_, err := r.hcpctlOutput(ctx, arguments...)
	return err
}

// hcpctlOutput runs a command of hcpctl and returns its output.
func (r *region) hcpctlOutput(ctx context.Context, arguments ...string) (string, error) {
	var output bytes.Buffer
	run := command.New(&output, &output)
	run.SetArgs(append(arguments, "--state-dir="+r.Dir))
	if err := run.ExecuteContext(ctx); err != nil {
		return "", fmt.Errorf("hcpctl %s: %w\n%s", strings.Join(arguments, " "), err, output.String())
	}
	return output.String(), nil
}

// mustHcpctl runs a command of hcpctl that must succeed, as soon as admin answers.
func (r *region) mustHcpctl(t *testing.T, ctx context.Context, arguments ...string) string {
	t.Helper()
	output := ""
	eventually.Soon(t, "hcpctl "+arguments[0], func() error {
		var err error
		output, err = r.hcpctlOutput(ctx, arguments...)
		return err
	})

	return output
}

// lookUp returns a cluster of the customer, as admin finds it.
func (r *region) lookUp(t *testing.T, ctx context.Context, name string) adminv1.Cluster {
	t.Helper()
	var found []adminv1.Cluster
	eventually.Soon(t, "admin finds the cluster "+name, func() error {
		text, err := r.hcpctlOutput(ctx, "cluster", "find", r.customer.ClusterID(name), "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			return err
		}
		if len(found) != 1 || found[0].Namespace == "" {
			return fmt.Errorf("it finds %s", text)
		}
		return nil
	})

	return found[0]
}

// hold kills processes, and does not restart them until the drill ends.
func hold(processes ...string) func(*testing.T, context.Context, *region) func() {
	return func(t *testing.T, ctx context.Context, r *region) func() {
		return r.KillProcesses(t, ctx, processes...)
	}
}

// cosmosFault adds a rule to the faults of the Cosmos DB emulator.
func cosmosFault(rule map[string]any) func(*testing.T, context.Context, *region) func() {
	return func(t *testing.T, ctx context.Context, r *region) func() {
		return r.Emulator(t, ctx, r.Endpoints().Cosmos, rule)
	}
}

// restart stops a process and starts it again.
func (r *region) restart(t *testing.T, ctx context.Context, process string) {
	t.Helper()
	if err := r.Restart(ctx, process); err != nil {
		t.Error(err)
	}
}

// killHosted kills the API servers of clusters, and keeps them from being restarted until end.
func (r *region) killHosted(t *testing.T, ctx context.Context, clusters ...string) (end func()) {
	t.Helper()
	var found []adminv1.Cluster
	for _, name := range clusters {
		found = append(found, r.lookUp(t, ctx, name))
	}
	return r.KillAPIs(t, found...)
}

package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/test/hosted"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// region is a running region with a customer.
type region struct {
	*local.Region
	dir      string
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
	var err error
	if r.customer, err = customer.New(ctx, r.Endpoints(), subscription, resourceGroup); err != nil {
		t.Fatal(err)
	}
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
	if err := created.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(pools, single) {
		created.Go(func() error {
			_, err := r.customer.Put(ctx, r.customer.NodePoolID(first, name), r.customer.NodePoolBody(1))
			return err
		})
	}
	if err := created.Wait(); err != nil {
		t.Fatal(err)
	}
	r.ready = time.Now()
	if err := r.collectLogs(ctx); err != nil {
		t.Fatal(err)
	}
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
	run.SetArgs(append(arguments, "--state-dir="+r.dir))
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
		t.Helper()
		var releases []func()
		for _, process := range processes {
			release, err := r.Hold(ctx, process)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(release)
			releases = append(releases, release)
		}
		return func() {
			for _, release := range releases {
				release()
			}
		}
	}
}

// cosmosFault adds a rule to the faults of the Cosmos DB emulator.
func cosmosFault(rule map[string]any) func(*testing.T, context.Context, *region) func() {
	return emulatorFault(func(e *local.Endpoints) string { return e.Cosmos }, rule)
}

// azureFault adds a rule to the faults of the Azure emulator.
func azureFault(rule map[string]any) func(*testing.T, context.Context, *region) func() {
	return emulatorFault(func(e *local.Endpoints) string { return e.Azure }, rule)
}

// emulatorFault adds a rule to the faults of an emulator, and removes all rules of it at the end.
func emulatorFault(emulator func(*local.Endpoints) string, rule map[string]any) func(*testing.T, context.Context, *region) func() {
	return func(t *testing.T, ctx context.Context, r *region) func() {
		t.Helper()
		endpoints := r.Endpoints()
		faults := emulator(&endpoints) + "/_emulator/faults"
		// The drill before may have held the emulator.
		eventually.Soon(t, "the emulator accepts a fault", func() error { return r.control(ctx, http.MethodPost, faults, rule) })
		return func() {
			if err := r.control(ctx, http.MethodDelete, faults, nil); err != nil {
				t.Error(err)
			}
		}
	}
}

// control sends a request to the control endpoint of an emulator.
func (r *region) control(ctx context.Context, method, url string, body any) error {
	return r.send(ctx, method, url, "", body)
}

// send sends a request with a token, or with none if it is empty, and returns an error for a status that is none of success.
func (r *region) send(ctx context.Context, method, url, token string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client, err := customer.NewHTTPClient(r.Endpoints().CAFile)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s: %s: %s", method, url, response.Status, text)
	}
	return nil
}

// restart stops a process and starts it again.
func (r *region) restart(t *testing.T, ctx context.Context, process string) {
	t.Helper()
	if err := r.Restart(ctx, process); err != nil {
		t.Error(err)
	}
}

// aside renames a file or folder and puts a file with other content in its place, or a folder if content is nil. The returned function undoes
// that.
func (r *region) aside(t *testing.T, pattern string, content []byte) (undo func()) {
	t.Helper()
	file := r.find(t, pattern)
	if err := os.Rename(file, file+".aside"); err != nil {
		t.Fatal(err)
	}
	put := func() error { return os.WriteFile(file, content, 0o600) }
	if content == nil {
		put = func() error { return os.Mkdir(file, 0o700) }
	}
	if err := put(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.RemoveAll(file), os.Rename(file+".aside", file)); err != nil {
			t.Error(err)
		}
	}
}

// find returns the first file of the region that matches a pattern.
func (r *region) find(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	return files[0]
}

// killHosted kills the API servers of clusters, and keeps them from being restarted until end.
func (r *region) killHosted(t *testing.T, ctx context.Context, clusters ...string) (end func()) {
	t.Helper()
	var undo []func() error
	for _, name := range clusters {
		server, err := hosted.Find(r.Endpoints(), r.dir, r.lookUp(t, ctx, name))
		if err != nil {
			t.Fatal(err)
		}
		repair, err := server.Kill()
		if err != nil {
			t.Fatal(err)
		}
		undo = append(undo, repair)
	}
	return func() {
		for _, each := range undo {
			if err := each(); err != nil {
				t.Error(err)
			}
		}
	}
}

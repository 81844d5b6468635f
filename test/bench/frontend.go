package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/cpuprofile"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// measureFrontend measures the cost of validation and the CPU time of the frontend per request.
func measureFrontend(ctx context.Context, region *local.Region, o options, report *report) error {
	endpoints := region.Endpoints()
	c, err := customer.New(ctx, endpoints, "22222222-0000-0000-0000-000000000005", "frontend")
	if err != nil {
		return err
	}
	if err := measureValidation(ctx, report); err != nil {
		return err
	}
	identity, err := mesh.LoadIdentity(endpoints.Identities[string(mesh.ARMFrontDoor)])
	if err != nil {
		return err
	}
	token, err := c.ARMToken(ctx)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: identity.ClientTLS(mesh.Frontend), MaxIdleConnsPerHost: loadClients}
	defer transport.CloseIdleConnections()
	arm := &armClient{client: &http.Client{Transport: transport}, token: token, tenant: endpoints.TenantID, frontend: "https://" + endpoints.Frontend}

	if _, err := c.Put(ctx, c.ClusterID("readme"), c.ClusterBody("readme")); err != nil {
		return err
	}
	pid := 0
	for _, process := range region.Status().Processes {
		if process.Name == "frontend" {
			pid = process.Pid
		}
	}
	if pid == 0 {
		return fmt.Errorf("the region has no process called frontend")
	}
	perRequest := func(what, against string, do func(ctx context.Context, n int64) error) error {
		before := procfs.CPUTime(pid)
		_, samples, err := load(ctx, loadClients, do)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		used := procfs.CPUTime(pid) - before
		report.line(fmt.Sprintf("%s: CPU of the frontend (%d requests)", what, len(samples)), (used / time.Duration(max(len(samples), 1))).Round(time.Microsecond).String(), against)
		return nil
	}
	if err := perRequest("GET of a cluster", "goal: 300µs", func(ctx context.Context, _ int64) error {
		return arm.do(ctx, http.MethodGet, c.ClusterID("readme"), nil, http.StatusOK)
	}); err != nil {
		return err
	}
	invalid := c.ClusterBody("invalid")
	invalid.Properties.(map[string]any)["network"] = map[string]any{"hostPrefix": 30}
	if err := perRequest("PUT of an invalid cluster", "goal: 1ms", func(ctx context.Context, _ int64) error {
		return arm.do(ctx, http.MethodPut, c.ClusterID("invalid"), invalid, http.StatusBadRequest)
	}); err != nil {
		return err
	}
	server, err := profileServerOf(region, "frontend")
	if err != nil {
		return err
	}
	if err := measurePuts(ctx, c, arm, pid, server, o.runs, report); err != nil {
		return err
	}
	failed := everyCluster(o.runs, "put", func(_ int, name string) error { return c.EnsureGone(ctx, c.ClusterID(name)) })
	if len(failed) > 0 {
		return fmt.Errorf("%d deletions failed, the first one: %w", len(failed), failed[0])
	}
	return nil
}

// Patterns of the functions that a PUT uses outside the frontend's own code: the Cosmos DB client, including the loops of its
// HTTP connections, and the dispatch to Cluster Service.
const (
	cosmosClient = `internal/database\.|azcosmos|net/http\.\(\*(persistConn|Transport)\)`
	dispatch     = `frontend/pkg/dispatch\.|google\.golang\.org/grpc|internal/clusterservice\.`
	// The Go runtime uses its own stacks for scheduling and garbage collection.
	goRuntime = `^runtime\.(mcall|mstart|mstart1|gcBgMarkWorker|bgsweep|bgscavenge)$`
)

// putProfileTime is the duration of the CPU profile of creating PUTs.
const putProfileTime = 3 * time.Second

// measurePuts measures the CPU time of the frontend per creating PUT, and its distribution by CPU profile.
func measurePuts(ctx context.Context, c *customer.Customer, arm *armClient, pid int, server profileServer, runs int, report *report) error {
	var each time.Duration
	path := filepath.Join(os.TempDir(), fmt.Sprintf("hcpmesh-bench-%d.pprof", os.Getpid()))
	err := profile(ctx, map[string]profileServer{path: server}, putProfileTime, func() error {
		before := procfs.CPUTime(pid)
		for i := range runs {
			name := fmt.Sprintf("put-%04d", i)
			if err := arm.do(ctx, http.MethodPut, c.ClusterID(name), c.ClusterBody(name), http.StatusCreated); err != nil {
				return err
			}
		}
		each = (procfs.CPUTime(pid) - before) / time.Duration(runs)
		return nil
	})
	defer func() { _ = os.Remove(path) }()
	if err != nil {
		return err
	}
	store, err := cpuprofile.Share(ctx, path, cosmosClient, "")
	if err != nil {
		return err
	}
	dispatched, err := cpuprofile.Share(ctx, path, dispatch, cosmosClient)
	if err != nil {
		return err
	}
	scheduled, err := cpuprofile.Share(ctx, path, goRuntime, cosmosClient+"|"+dispatch)
	if err != nil {
		return err
	}
	part := func(share float64) string {
		return time.Duration(share * float64(each)).Round(10 * time.Microsecond).String()
	}
	report.line(fmt.Sprintf("PUT that creates a cluster: CPU of the frontend (%d requests)", runs), each.Round(time.Microsecond).String(), "by CPU profile:")
	report.line("  Cosmos DB client", part(store), "")
	report.line("  dispatch to Cluster Service", part(dispatched), "")
	report.line("  Go scheduler and garbage collector", part(scheduled), "")
	report.line("  own code, HTTP and TLS", part(1-store-dispatched-scheduled), "goal: 1ms")
	return nil
}

// benchmarkLine matches the result line of `go test -bench`.
var benchmarkLine = regexp.MustCompile(`(?m)^BenchmarkFullCluster\S*\s+\d+\s+([0-9.]+) ns/op\s+(\d+) B/op`)

// measureValidation runs the benchmark of package validation for a cluster with all properties.
func measureValidation(ctx context.Context, report *report) error {
	command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkFullCluster$", "-benchmem",
		"github.com/hcpmesh/hcpmesh/frontend/pkg/validation")
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("running the validation benchmark: %w", err)
	}
	found := benchmarkLine.FindSubmatch(output)
	if found == nil {
		return fmt.Errorf("no result in the output of the validation benchmark: %s", output)
	}
	nanoseconds, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return err
	}
	allocated, err := strconv.Atoi(string(found[2]))
	if err != nil {
		return err
	}
	report.line("validation of a full cluster body", fmt.Sprintf("%s, %.1f KiB allocated",
		time.Duration(nanoseconds).Round(100*time.Nanosecond), float64(allocated)/1024), "goal: 100µs, 64 KiB")
	return nil
}

// armClient sends requests to the frontend as ARM does.
type armClient struct {
	client                  *http.Client
	token, tenant, frontend string
}

func (a *armClient) do(ctx context.Context, method, id string, body any, want int) error {
	var content []byte
	if body != nil {
		var err error
		if content, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.frontend+id+"?api-version="+customer.APIVersion, bytes.NewReader(content))
	if err != nil {
		return err
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + a.token, "Content-Type": "application/json", armheader.IdentityURL: "https://identity.example",
		armheader.HomeTenantID: a.tenant, armheader.ClientObjectID: "33333333-0000-0000-0000-000000000001",
	} {
		request.Header.Set(name, value)
	}
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err = io.ReadAll(response.Body)
	if err == nil && response.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, id, response.Status, bytes.TrimSpace(content))
	}
	return err
}

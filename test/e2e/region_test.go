// Package e2e tests a whole region through ARM with the published client, and checks the result in every layer. The package
// starts one region on free ports with all processes that `make run` starts.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// region is shared by the tests, because starting one takes longer than most of them. It is nil with -region.
var region *local.Region

// regionDir is the folder of the region's state.
var regionDir string

// runningRegion is the folder of the state of a region that runs already.
var runningRegion = flag.String("region", "", "state `folder` of a running region, of processes or on Kubernetes; only tests that need nothing but ARM, kubectl and hcpctl run, and use it")

// regionEndpoints are those of the region that the tests use.
var regionEndpoints local.Endpoints

// TestMain runs the tests. kubectl calls this program as hcpctl, because the tests run hcpctl's commands in this process.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && (os.Args[1] == "break-glass" || os.Args[1] == "access") {
		if err := command.New(os.Stdout, os.Stderr).Execute(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if *runningRegion != "" {
		regionDir = *runningRegion
		described, err := local.Describe(regionDir)
		if err != nil {
			fmt.Fprintf(os.Stderr, "-region: %v\n", err)
			return 1
		}
		regionEndpoints = described
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "hcpmesh-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// PostgreSQL runs as another user.
	if err := os.Chmod(dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	regionDir = dir
	timeScale, freePorts := 0.002, 0
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	region, err = local.Start(ctx, local.Config{
		StateDir:           dir,
		BasePort:           &freePorts,
		ManagementClusters: nightly.Choose(1, 2), // the second one uses a third of the processor time
		TimeScale:          &timeScale,
		Build:              test.BuildRegion(),
		Faults:             true,
		Throwaway:          true,
		With:               []string{local.WithTraces},
		OnNote:             func(note string) { fmt.Fprintln(os.Stderr, note) },
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "starting the region: %v\nits logs are in %s\n", err, filepath.Join(dir, "logs"))
		return 1
	}
	regionEndpoints = region.Endpoints()
	watched := watchSeries(regionEndpoints.Ops)
	code := m.Run()
	watched.end()
	region.Close()
	// Only all tests together cause all series that alerts and dashboards select.
	if err := watched.check(); err != nil && code == 0 && nightly.Run() {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if races := region.Races(); races != "" {
		fmt.Fprint(os.Stderr, races)
		code = 1
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "the region's logs are in %s\n", filepath.Join(dir, "logs"))
		return code
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// needsRegion skips a test if this package started no region.
func needsRegion(t testing.TB) {
	t.Helper()
	test.DependOnCode(t)
	if region == nil {
		t.Skip("needs a region of processes that the tests started; run without -region")
	}
}

// needsAnyRegion skips a test if there is no region. The test may use a running one, which has no local processes.
func needsAnyRegion(t testing.TB) {
	t.Helper()
	if *runningRegion == "" {
		needsRegion(t)
	}
}

// newCustomer returns a customer with its own subscription.
func newCustomer(t testing.TB, ctx context.Context, subscription, resourceGroup string) *customer.Customer {
	t.Helper()
	c := must.Get(customer.New(ctx, regionEndpoints, subscription, resourceGroup))(t)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// withTimeout returns a context that bounds asynchronous work on a machine under load.
func withTimeout(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

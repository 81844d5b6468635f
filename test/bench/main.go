// Command bench measures a whole region on this machine and prints a table: the time from a customer's request to the
// HostedCluster and to Succeeded, the same of a node pool's size, reads through the frontend, what requests cost it, the Cosmos DB emulator, five
// hundred clusters at once, their upgrade by policy, what the region costs when nothing happens, and hosted control planes that are real processes. Each figure stands beside its
// goal or beside a baseline that was measured in the same run.
//
//	bench [-runs 200] [-clusters 500] [-only create,scaling,read,frontend,store,fleet,process]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// options are the flags.
type options struct {
	runs     int
	clusters int
	only     []string
	// catalogue is the file of the region's releases.
	catalogue string
}

func main() {
	var o options
	only := flag.String("only", "create,scaling,read,frontend,store,fleet,process", "comma-separated `parts` to measure")
	flag.IntVar(&o.runs, "runs", 200, "`number` of creates that are measured one by one")
	flag.IntVar(&o.clusters, "clusters", 500, "`number` of clusters that are created at once")
	flag.Parse()
	o.only = strings.Split(*only, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// The pace at which garbage is collected here: that of the services whose clients the loads stand for.
const (
	gcPercent   = 800
	memoryLimit = 1 << 30
)

func run(ctx context.Context, o options) error {
	process.PaceCollector(gcPercent, memoryLimit)
	fmt.Printf("machine: %d cores, %s/%s, %s\n\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	figures := newReport(os.Stdout)
	measured := func(part string) bool { return slices.Contains(o.only, part) }
	if measured("create") || measured("scaling") || measured("read") || measured("frontend") || measured("store") || measured("fleet") {
		err := withRegion(ctx, local.FidelityStatus, func(region *local.Region, catalogue string) error {
			o.catalogue = catalogue
			parts := []struct {
				name    string
				measure func(context.Context, *local.Region, options, *report) error
			}{{"store", measureStore}, {"create", measureCreates}, {"scaling", measureScaling}, {"read", measureReads}, {"frontend", measureFrontend}, {"fleet", measureFleet}}
			for _, part := range parts {
				if !measured(part.name) {
					continue
				}
				if err := part.measure(ctx, region, o, figures); err != nil {
					return fmt.Errorf("%s: %w", part.name, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if measured("process") {
		return withRegion(ctx, local.FidelityProcess, func(region *local.Region, _ string) error {
			return measureProcesses(ctx, region, figures)
		})
	}
	return nil
}

// withRegion runs measure with a region of its own, durable as a real one, whose control planes take no time of their own.
func withRegion(ctx context.Context, fidelity local.Fidelity, measure func(region *local.Region, catalogue string) error) error {
	dir, err := os.MkdirTemp("", "hcpmesh-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL's user must be able to pass through
		return err
	}
	catalogue := filepath.Join(dir, "releases.yaml")
	if err := writeCatalogue(catalogue, laterReleases...); err != nil {
		return err
	}
	asFastAsItGoes, freePorts := 0.0, 0
	region, err := local.Start(ctx, local.Config{
		StateDir: dir, BasePort: &freePorts, TimeScale: &asFastAsItGoes, Fidelity: fidelity, Build: true, LogLevel: "warn", ReleaseCatalog: catalogue,
	})
	if err != nil {
		return fmt.Errorf("starting the region: %w", err)
	}
	defer region.Close()
	return measure(region, catalogue)
}

// Command bench measures a whole region on this machine and prints a table. It measures creations, scaling of node pools,
// reads through the frontend, the frontend's cost per request, the Cosmos DB emulator, a fleet of 500 clusters (creation,
// idle cost, upgrade by policy, deletion), and hosted control planes that are real processes. The table shows each figure
// with its goal or with a baseline of the same run.
//
// With -profiles, it creates and deletes further clusters, writes CPU profiles of the processes that use most CPU time meanwhile into a folder, and
// prints the functions that use most of it. With -record, it adds the figures to a file. With -compare, it measures another commit and this checkout alternately and prints the ratios.
//
//	bench [-runs 200] [-clusters 500] [-only create,scaling,read,frontend,store,fleet,process] [-profiles DIR] [-record FILE | -compare COMMIT [-rounds 3] [-limit 1.15]]
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// options holds the flags.
type options struct {
	runs     int
	clusters int
	only     []string
	// catalogue is the release catalogue file of the region.
	catalogue string
	// profiles is the folder for CPU profiles; empty records none.
	profiles string
}

func main() {
	var o options
	only := flag.String("only", "create,scaling,read,frontend,store,fleet,process", "comma-separated `parts` to measure")
	flag.IntVar(&o.runs, "runs", 200, "`number` of creations to measure one by one")
	flag.IntVar(&o.clusters, "clusters", 500, "`number` of clusters to create at once")
	flag.StringVar(&o.profiles, "profiles", "", "the `folder` to write CPU profiles of creations and deletions to; empty records none")
	ref := flag.String("compare", "", "the `commit` to compare this checkout with")
	file := flag.String("record", "", "the `file` to add the figures of this checkout to")
	limit := flag.Float64("limit", 0, "with -compare, the `ratio` by which no figure may be worse in every round; 0 accepts all")
	rounds := flag.Int("rounds", 3, "`number` of measurements of each with -compare")
	flag.Parse()
	o.only = strings.Split(*only, ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	measure := func() error { return run(ctx, o, os.Stdout) }
	switch {
	case *ref != "":
		arguments := []string{"-only", *only, "-runs", strconv.Itoa(o.runs), "-clusters", strconv.Itoa(o.clusters)}
		measure = func() error { return compare(ctx, *ref, *rounds, *limit, arguments, os.Stdout) }
	case *file != "":
		measure = func() error {
			return record(ctx, *file, func(table io.Writer) error { return run(ctx, o, io.MultiWriter(os.Stdout, table)) })
		}
	}
	if err := measure(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// The garbage collector settings of this process equal those of the services.
const (
	gcPercent   = 800
	memoryLimit = 1 << 30
)

func run(ctx context.Context, o options, out io.Writer) error {
	process.PaceCollector(gcPercent, memoryLimit)
	fmt.Fprintf(out, machine+"%d cores, %s/%s, %s\n\n", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
	figures := newReport(out)
	if err := measureMachine(figures); err != nil {
		return fmt.Errorf("measuring the machine: %w", err)
	}
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

// withRegion runs measure with a new region. Its stores are durable, and its control planes have no simulated delays.
func withRegion(ctx context.Context, fidelity local.Fidelity, measure func(region *local.Region, catalogue string) error) error {
	dir, err := os.MkdirTemp("", "hcpmesh-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
		return err
	}
	catalogue := filepath.Join(dir, "releases.yaml")
	if err := writeCatalogue(catalogue, laterReleases...); err != nil {
		return err
	}
	noDelays, freePorts := 0.0, 0
	region, err := local.Start(ctx, local.Config{
		StateDir: dir, BasePort: &freePorts, TimeScale: &noDelays, Fidelity: fidelity, Build: true, LogLevel: "warn", ReleaseCatalog: catalogue, Profiling: true,
	})
	if err != nil {
		return fmt.Errorf("starting the region: %w", err)
	}
	defer region.Close()
	return measure(region, catalogue)
}

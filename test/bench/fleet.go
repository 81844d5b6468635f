package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// idleTime is the duration of the measurement without load.
const idleTime = 30 * time.Second

// measureFleet creates many clusters at once, measures their idle cost, upgrades them by a policy and deletes them.
func measureFleet(ctx context.Context, region *local.Region, o options, report *report) error {
	c, err := customer.New(ctx, region.Endpoints(), "22222222-0000-0000-0000-000000000004", "fleet")
	if err != nil {
		return err
	}

	began, before := time.Now(), cpuTimes(region)
	if failed := everyCluster(o.clusters, "fleet", func(_ int, name string) error { return c.Ensure(ctx, c.ClusterID(name), c.ClusterBody(name)) }); len(failed) > 0 {
		return fmt.Errorf("%d of %d creations failed, the first one: %w", len(failed), o.clusters, failed[0])
	}
	report.line(fmt.Sprintf("%d clusters created at once, all Succeeded", o.clusters), "after "+round(time.Since(began)), "")
	reportCPU(report, "created at once", before, cpuTimes(region), o.clusters)
	for _, line := range memory(region) {
		report.line("  memory of "+line.name, fmt.Sprintf("%d MiB", line.bytes>>20), "")
	}

	if err := measureExplain(ctx, region, o, report); err != nil {
		return err
	}

	ours, others, err := idleShare(ctx, region)
	if err != nil {
		return err
	}
	report.line(fmt.Sprintf("idle with %d clusters, our services together", o.clusters), fmt.Sprintf("%.1f %% of one core", 100*ours), "goal: under 5 %")
	report.line("  PostgreSQL, etcd and Kubernetes", fmt.Sprintf("%.1f %% of one core", 100*others), "")

	if err := measureUpgrades(ctx, region, o, report); err != nil {
		return fmt.Errorf("upgrading the fleet: %w", err)
	}
	began, before = time.Now(), cpuTimes(region)
	if failed := everyCluster(o.clusters, "fleet", func(_ int, name string) error { return c.EnsureGone(ctx, c.ClusterID(name)) }); len(failed) > 0 {
		return fmt.Errorf("%d of %d deletions failed, the first one: %w", len(failed), o.clusters, failed[0])
	}
	report.line(fmt.Sprintf("%d clusters deleted at once", o.clusters), "after "+round(time.Since(began)), "")
	reportCPU(report, "deleted at once", before, cpuTimes(region), o.clusters)
	return nil
}

// everyCluster calls do for many clusters at once and returns the errors.
func everyCluster(count int, prefix string, do func(i int, name string) error) (failed []error) {
	var mu sync.Mutex
	var work sync.WaitGroup
	for i := range count {
		work.Go(func() {
			if err := do(i, fmt.Sprintf("%s-%04d", prefix, i)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	work.Wait()
	return failed
}

// thirdParty reports whether a process of the region is a third-party program.
func thirdParty(name string) bool {
	return name == "postgres" || name == "etcd" || strings.Contains(name, "kube-")
}

// idleShare returns the share of one core that the processes of the region use without load.
func idleShare(ctx context.Context, region *local.Region) (ours, others float64, err error) {
	before := cpuTimes(region)
	began := time.Now()
	select {
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	case <-time.After(idleTime):
	}
	elapsed := time.Since(began)
	for name, after := range cpuTimes(region) {
		share := (after - before[name]).Seconds() / elapsed.Seconds()
		if thirdParty(name) {
			others += share
		} else {
			ours += share
		}
	}
	return ours, others, nil
}

// topProcesses is the number of processes that busiest returns.
const topProcesses = 5

// reportCPU prints the CPU time per cluster between two measurements, and the processes that used most of it.
func reportCPU(report *report, what string, before, after map[string]time.Duration, clusters int) {
	var total time.Duration
	spent := func(name string) time.Duration { return (after[name] - before[name]) / time.Duration(clusters) }
	for name := range after {
		total += spent(name)
	}
	report.line("  CPU of all processes, per cluster "+what, total.Round(time.Millisecond).String(), "")
	for _, name := range busiest(before, after) {
		report.line("    "+name+", "+what, spent(name).Round(time.Millisecond).String(), "")
	}
}

// busiest returns the topProcesses that used most CPU time between two measurements.
func busiest(before, after map[string]time.Duration) []string {
	spent := func(name string) time.Duration { return after[name] - before[name] }
	names := slices.SortedFunc(maps.Keys(after), func(a, b string) int { return cmp.Compare(spent(b), spent(a)) })
	return names[:min(topProcesses, len(names))]
}

// usage is the memory of one process.
type usage struct {
	name  string
	bytes int64
}

// memory returns the resident memory of every process of the region, largest first.
func memory(region *local.Region) []usage {
	var all []usage
	for _, process := range region.Status().Processes {
		if bytes := procfs.Resident(process.Pid); bytes > 0 {
			all = append(all, usage{process.Name, bytes})
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].bytes > all[j].bytes })
	return all
}

func cpuTimes(region *local.Region) map[string]time.Duration {
	times := map[string]time.Duration{}
	for _, process := range region.Status().Processes {
		times[process.Name] = procfs.CPUTime(process.Pid)
	}
	return times
}

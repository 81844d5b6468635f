package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/cpuprofile"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// profileTime is the duration of CPU profiles of creations and of deletions, and topFunctions the number of functions that are printed of each.
const (
	profileTime  = 15 * time.Second
	topFunctions = 8
)

// measureCreates creates clusters one after the other and deletes them at the end. All times begin when the request is sent,
// before it is accepted.
func measureCreates(ctx context.Context, region *local.Region, o options, report *report) error {
	c, err := customer.New(ctx, region.Endpoints(), "22222222-0000-0000-0000-000000000001", "create")
	if err != nil {
		return err
	}
	c.FastPolling = true
	observed, err := watchHostedClusters(ctx, region.Endpoints())
	if err != nil {
		return err
	}
	defer observed.stop()
	cpu := cpuTimes(region)
	requests, err := managementRequests(ctx, region.Endpoints())
	if err != nil {
		return err
	}
	var appeared, succeeded []time.Duration
	for i := range o.runs {
		name := fmt.Sprintf("bench-%04d", i)
		exists := observed.expect(c.ClusterID(name))
		sent := time.Now()
		if _, err := c.Put(ctx, c.ClusterID(name), c.ClusterBody(name)); err != nil {
			return err
		}
		succeeded = append(succeeded, time.Since(sent))
		select {
		case at := <-exists:
			appeared = append(appeared, at.Sub(sent))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	used := cpuTimes(region)
	answered, err := managementRequests(ctx, region.Endpoints())
	if err != nil {
		return err
	}
	// A deletion waits twice for the namespace controller of Kubernetes, so all clusters are deleted at once.
	c.FastPolling = false // many fast pollers would slow each other down
	deleted := make([]time.Duration, o.runs)
	failed := everyCluster(o.runs, "bench", func(i int, name string) error {
		sent := time.Now()
		defer func() { deleted[i] = time.Since(sent) }()
		return c.EnsureGone(ctx, c.ClusterID(name))
	})
	if len(failed) > 0 {
		return fmt.Errorf("%d deletions failed, the first one: %w", len(failed), failed[0])
	}
	report.durations("PUT sent to HostedCluster exists", appeared, "goal: p50 150ms, p99 500ms")
	report.durations("PUT sent to operation Succeeded", succeeded, "goal: p50 600ms")
	reportCPU(report, "created one by one", cpu, used, o.runs)
	reportRequests(report, "created", requests, answered, o.runs)
	report.durations("DELETE sent to deleted, all at once", deleted, "")
	usedAtEnd := cpuTimes(region)
	reportCPU(report, "deleted at once", used, usedAtEnd, o.runs)
	left, err := managementRequests(ctx, region.Endpoints())
	if err != nil {
		return err
	}
	reportRequests(report, "deleted", answered, left, o.runs)
	if o.profiles == "" {
		return nil
	}
	return profileClusters(ctx, region, c, busiest(cpu, used), busiest(used, usedAtEnd), o.profiles, report)
}

// profileClusters creates clusters one after the other and deletes them at once. It writes CPU profiles into a folder: of the processes that creating
// names during the creations, and of those that deleting names during the deletions.
func profileClusters(ctx context.Context, region *local.Region, c *customer.Customer, creating, deleting []string, dir string, report *report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.FastPolling = true
	created := 0
	err := profileProcesses(ctx, region, creating, filepath.Join(dir, "create"), report, func() error {
		for began := time.Now(); time.Since(began) < profileTime; created++ {
			name := fmt.Sprintf("profiled-%04d", created)
			if _, err := c.Put(ctx, c.ClusterID(name), c.ClusterBody(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.FastPolling = false
	return profileProcesses(ctx, region, deleting, filepath.Join(dir, "delete"), report, func() error {
		return errors.Join(everyCluster(created, "profiled", func(_ int, name string) error { return c.EnsureGone(ctx, c.ClusterID(name)) })...)
	})
}

// profileProcesses writes a CPU profile of each process that serves one, to files with the given prefix, while during runs. It prints the functions
// that use most CPU time.
func profileProcesses(ctx context.Context, region *local.Region, processes []string, prefix string, report *report, during func() error) error {
	servers := map[string]profileServer{}
	for _, process := range processes {
		server, err := profileServerOf(region, process)
		if err != nil {
			return err
		}
		if server.client != nil {
			servers[prefix+"-"+process+".pprof"] = server
		}
	}
	if err := profile(ctx, servers, profileTime, during); err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(servers)) {
		functions, err := cpuprofile.Top(ctx, path, topFunctions)
		if err != nil {
			return err
		}
		report.line("  functions in "+filepath.Base(path), "", "share of the CPU time, with callees")
		for _, function := range functions {
			report.line(fmt.Sprintf("    %.*s", nameWidth-4, function.Name), "", fmt.Sprintf("%.1f %%, %.1f %%", 100*function.Own, 100*function.Total))
		}
	}
	return nil
}

// hostedClusters observes when HostedClusters appear on the management clusters.
type hostedClusters struct {
	stop context.CancelFunc

	mu sync.Mutex
	// existing and serving hold the awaited clusters by lower-case resource ID.
	existing, serving map[string]chan time.Time
}

// expect returns a channel that receives the time at which the HostedCluster of an ARM resource appears.
func (h *hostedClusters) expect(id string) <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make(chan time.Time, 1)
	h.existing[strings.ToLower(id)] = at
	return at
}

// expectServing returns a channel that receives the time at which the hosted API server of an ARM resource is available.
func (h *hostedClusters) expectServing(id string) <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make(chan time.Time, 1)
	h.serving[strings.ToLower(id)] = at
	return at
}

func (h *hostedClusters) observe(object *unstructured.Unstructured) {
	now := time.Now()
	id := strings.ToLower(object.GetAnnotations()[managementcluster.AnnotationClusterResourceID])
	h.mu.Lock()
	defer h.mu.Unlock()
	if at, ok := h.existing[id]; ok {
		at <- now
		delete(h.existing, id)
	}
	if at, ok := h.serving[id]; ok && isTrue(object, "KubeAPIServerAvailable") {
		at <- now
		delete(h.serving, id)
	}
}

// isTrue reports whether a condition of an object is True.
func isTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == kind {
			return condition["status"] == "True"
		}
	}
	return false
}

// watchHostedClusters watches the HostedClusters of all management clusters.
func watchHostedClusters(ctx context.Context, endpoints local.Endpoints) (*hostedClusters, error) {
	h := &hostedClusters{existing: map[string]chan time.Time{}, serving: map[string]chan time.Time{}}
	stop, err := watchObjects(ctx, endpoints, "hostedclusters", h.observe)
	h.stop = stop
	return h, err
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
	"github.com/hcpmesh/hcpmesh/test/customer"
)

// hostedControlPlanes is the number of real control planes that are created, one after the other.
const hostedControlPlanes = 5

// measureProcesses measures hosted control planes that are real API servers.
func measureProcesses(ctx context.Context, region *local.Region, report *report) error {
	c, err := customer.New(ctx, region.Endpoints(), "22222222-0000-0000-0000-000000000005", "process")
	if err != nil {
		return err
	}
	c.FastPolling = true
	observed, err := watchHostedClusters(ctx, region.Endpoints())
	if err != nil {
		return err
	}
	defer observed.stop()
	var ready, succeeded []time.Duration
	for i := range hostedControlPlanes {
		name := fmt.Sprintf("real-%d", i)
		exists, serving := observed.expect(c.ClusterID(name)), observed.expectServing(c.ClusterID(name))
		if _, err := c.Put(ctx, c.ClusterID(name), c.ClusterBody(name)); err != nil {
			return err
		}
		began := <-exists
		succeeded = append(succeeded, time.Since(began))
		ready = append(ready, (<-serving).Sub(began))
	}
	report.durations("HostedCluster exists to its API server available", ready, "goal: 3s")
	report.durations("HostedCluster exists to Succeeded, process fidelity", succeeded, "")
	var largest int64
	for _, process := range procfs.HostedAPIServers(region.Endpoints().Etcd) {
		largest = max(largest, procfs.Resident(process.PID))
	}
	report.line("  memory of the largest hosted API server", fmt.Sprintf("%d MiB", largest>>20), "goal: 300 MiB")
	if err := measureAccess(ctx, c, c.ClusterID("real-0"), report); err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	for i := range hostedControlPlanes {
		if err := c.Delete(ctx, c.ClusterID(fmt.Sprintf("real-%d", i))); err != nil {
			return err
		}
	}
	return nil
}

package e2e

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// engineer returns an admin client for one of the region's engineers.
func engineer(t *testing.T, name string) *adminclient.Client {
	t.Helper()
	return must.Get(customer.NewEngineer(region.Endpoints(), name))(t)
}

// minorOf returns the first two parts of a version.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// TestEngineerPausesCluster checks that a cluster is listed by its version, and that pausing needs a role and an elevation, survives a kill of the backend, takes effect on the
// management cluster and is audited. It does not run in parallel: other tests elevate the same engineer, who could then pause the
// cluster without this test's elevation.
func TestEngineerPausesCluster(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	ctx := withTimeout(t, 5*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-0000000000ad", "admin")
	parallel.enter()
	defer func() { parallel.leave(t, c) }()
	id := c.ClusterID("paused")
	must.Get(c.Put(ctx, id, c.ClusterBody("paused")))(t)
	reader, oncall := engineer(t, "reader"), engineer(t, "oncall")
	dump, err := adminclient.Get(ctx, reader, adminv1.ReadDump, nil, "paused")
	if err != nil {
		t.Fatal(err)
	}
	content := must.Get(json.Marshal(dump))(t)
	if dump.ARM == nil || dump.ClusterService == nil || dump.Maestro == nil || len(dump.Maestro.Bundles) < 2 || strings.Contains(string(content), "PRIVATE KEY") {
		t.Errorf("the dump is %.2000s", content)
	}
	for version, listed := range map[string]bool{dump.Cluster.Version: true, minorOf(dump.Cluster.Version): true, "3.11": false} {
		clusters, _, err := adminclient.List(ctx, reader, adminv1.ReadClusters, adminclient.Query{"version": version}, 500)
		if found := slices.ContainsFunc(clusters, func(c adminv1.Cluster) bool { return strings.EqualFold(c.ResourceID, id) }); err != nil || found != listed {
			t.Errorf("the cluster is listed with version %s: %v, want %v, %v", version, found, listed, err)
		}
	}
	var invalid *adminclient.Error
	if _, _, err := adminclient.List(ctx, reader, adminv1.ReadClusters, adminclient.Query{"version": "newest"}, 500); !errors.As(err, &invalid) || invalid.Status != http.StatusBadRequest || invalid.Detail.Target != "version" {
		t.Errorf("an invalid version: %v", err)
	}
	pause := func(client *adminclient.Client) (*adminv1.Operation, error) {
		return client.Act(ctx, adminv1.ActionClusterPause, adminv1.PauseRequest{Duration: "1h"}, id)
	}
	for who, client := range map[string]*adminclient.Client{"a reader": reader, "somebody who has not elevated": oncall} {
		var refused *adminclient.Error
		if _, err := pause(client); !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
			t.Errorf("%s may not pause a cluster: %v", who, err)
		}
	}
	elevation := must.Get(oncall.Elevate(ctx, adminv1.ElevationRequest{Class: adminv1.Operate, Reason: "debugging its control plane", Ticket: "INC-7", Duration: "10m"}))(t)
	operation := must.Get(pause(oncall))(t)
	must.Do(t, region.Kill(ctx, "backend"))
	if operation, err = oncall.Await(ctx, operation); err != nil {
		t.Fatalf("%+v: %v", operation, err)
	}
	mgmt := hosting(t, ctx, id)
	active := `{.items[*].status.conditions[?(@.type=="ReconciliationActive")].status}`
	mgmt.await(ctx, "hostedclusters", active, equals("False"))
	operation = must.Get(oncall.Act(ctx, adminv1.ActionClusterResume, nil, id))(t)
	must.Get(oncall.Await(ctx, operation))(t)
	mgmt.await(ctx, "hostedclusters", active, equals("True"))
	must.Get(oncall.EndElevation(ctx, elevation.ID))(t)
	if _, err := pause(oncall); err == nil {
		t.Error("an elevation is valid after its end")
	}
	entries, _, err := adminclient.List(ctx, reader, adminv1.ReadAudit, nil, 100)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, entry := range entries {
		if o := entry.Operation; o != nil && o.Actor.Reason == "debugging its control plane" && o.Actor.Ticket == "INC-7" && o.State == adminv1.Succeeded {
			seen[o.Action] = true
		}
		if entry.Elevation != nil && entry.Elevation.ID == elevation.ID {
			seen["elevation"] = true
		}
	}
	if !seen["elevation"] || !seen[adminv1.ActionClusterPause] || !seen[adminv1.ActionClusterResume] {
		t.Errorf("the audit records contain %v", seen)
	}
	awaitAudit(t, "the sink has the audit records", func(records map[string][]audit.Record) error {
		cluster := strings.ToLower(dump.ARM.Cluster.UID)
		executed := func(service string) error {
			return wasExecuted(records[service], cluster, "oncall@hcpmesh.local", adminv1.ActionClusterPause, adminv1.ActionClusterResume)
		}
		return errors.Join(executed("backend"), executed("cluster-service"), hasOutcomes(records["admin"], cluster, map[string]string{
			"clusters.dump":             "succeeded by reader@hcpmesh.local for ; ",
			adminv1.ActionClusterPause:  "accepted by oncall@hcpmesh.local for INC-7; ",
			adminv1.ActionClusterResume: "accepted by oncall@hcpmesh.local for INC-7; ",
		}))
	})
	checkTimeline(t, ctx, c, reader, id)
	must.Do(t, c.Delete(ctx, id))
}

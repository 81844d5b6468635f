package skew

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
)

// The subscription and resource group of the captured clusters.
const (
	subscription  = "11111111-0000-0000-0000-0000000005e3"
	resourceGroup = "skew"
)

// The captured clusters, by their state. Only the operations of settled have ended.
const (
	settled   = "settled"
	upgrading = "upgrading"
	creating  = "creating"
	deleting  = "deleting"
	deleted   = "deleted"
)

// apiVersions are the published api-versions of both releases.
var apiVersions = []string{"2024-06-10-preview", "2025-12-23-preview", "2026-06-30-preview", "2026-09-01-preview"}

// resourcesFile has the captured views of resources without operations, by api-version and resource ID.
const resourcesFile = "resources.json"

// views are representations of resources, by api-version and resource ID.
type views map[string]map[string]any

func newCustomer(t *testing.T, ctx context.Context, endpoints local.Endpoints) *customer.Customer {
	t.Helper()
	c := must.Get(customer.New(ctx, endpoints, subscription, resourceGroup))(t)
	c.FastPolling = true
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// settledResources returns the IDs of the resources that no test changes.
func settledResources(c *customer.Customer) []string {
	return []string{c.ClusterID(settled), c.NodePoolID(settled, "workers"), c.ExternalAuthID(settled, "entra")}
}

// read returns what customers see of resources at all api-versions, without their status, which can change at any time.
func read(ctx context.Context, c *customer.Customer, ids []string) (views, error) {
	all := views{}
	for _, version := range apiVersions {
		all[version] = map[string]any{}
		for _, id := range ids {
			got, err := c.Resources.GetByID(ctx, id, version, nil)
			if err != nil {
				return nil, fmt.Errorf("%s at %s: %w", id, version, err)
			}
			text, err := json.Marshal(got.GenericResource)
			if err != nil {
				return nil, err
			}
			var view map[string]any
			if err := json.Unmarshal(text, &view); err != nil {
				return nil, err
			}
			if properties, ok := view["properties"].(map[string]any); ok {
				delete(properties, "status")
			}
			all[version][id] = view
		}
	}
	return all, nil
}

func capturedViews(t *testing.T, r *region) views {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(r.config.SourceDir, filepath.FromSlash(r.release.Data), resourcesFile)))(t)
	var captured views
	must.Do(t, json.Unmarshal(text, &captured))
	if len(captured) != len(apiVersions) {
		t.Fatalf("captured are the api-versions %v", slices.Sorted(maps.Keys(captured)))
	}
	return captured
}

// requireViews checks that customers see what they saw when the data was captured.
func requireViews(t *testing.T, ctx context.Context, c *customer.Customer, want views) {
	t.Helper()
	got := must.Get(read(ctx, c, settledResources(c)))(t)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("customers see a change (-before +now):\n%s", diff)
	}
}

// awaitCaptured waits until the captured operations have ended, and checks how.
func awaitCaptured(t *testing.T, ctx context.Context, c *customer.Customer) {
	t.Helper()
	for name, want := range map[string]string{settled: "Succeeded", upgrading: "Succeeded", creating: "Succeeded", deleting: "", deleted: ""} {
		got, err := c.AwaitTerminal(ctx, c.ClusterID(name))
		if err != nil || got != want {
			t.Errorf("the cluster %s is %q (%v), want %q", name, got, err, want)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	got := must.Get(c.Resources.GetByID(ctx, c.ClusterID(upgrading), customer.APIVersion, nil))(t)
	if version := property(got.GenericResource, "version", "id"); version != upgradedVersion {
		t.Errorf("the upgraded cluster has the version %v", version)
	}
}

// upgradedVersion is the version to which the captured cluster is being upgraded.
const upgradedVersion = "4.22"

// createFleet creates the captured clusters. When it returns, operations are in progress that only the HyperShift runtime can end, which is
// not started again.
func createFleet(t *testing.T, ctx context.Context, c *customer.Customer, r *region) {
	t.Helper()
	create := func(name string) {
		t.Helper()
		must.Get(c.Put(ctx, c.ClusterID(name), c.ClusterBody(name)))(t)
	}
	for _, name := range []string{settled, upgrading, deleting, deleted} {
		create(name)
	}
	must.Get(c.Put(ctx, c.NodePoolID(settled, "workers"), c.NodePoolBody(2)))(t)
	must.Get(c.Put(ctx, c.NodePoolID(upgrading, "workers"), c.NodePoolBody(1)))(t)
	must.Get(c.Put(ctx, c.ExternalAuthID(settled, "entra"), c.ExternalAuthBody()))(t)
	for _, name := range []string{settled, upgrading} {
		must.Do(t, requestCredential(ctx, c, name))
	}
	must.Do(t, c.Act(ctx, c.ClusterID(upgrading), "revokeCredentials", nil, nil))
	must.Do(t, c.Delete(ctx, c.ClusterID(deleted)))
	must.Get(r.Hold(ctx, "mgmt-1-hypershift-runtime"))(t)
	must.Get(c.Resources.BeginUpdateByID(ctx, c.ClusterID(upgrading), customer.APIVersion, armresources.GenericResource{Properties: map[string]any{"version": map[string]any{"id": upgradedVersion}}}, nil))(t)
	must.Get(c.Resources.BeginCreateOrUpdateByID(ctx, c.ClusterID(creating), customer.APIVersion, c.ClusterBody(creating), nil))(t)
	must.Get(c.Resources.BeginDeleteByID(ctx, c.ClusterID(deleting), customer.APIVersion, nil))(t)
	for name, want := range map[string]string{upgrading: "Updating", creating: "Provisioning", deleting: "Deleting"} {
		eventually.Before(ctx, t, "the operation of the cluster "+name+" is in progress", func() error {
			got, err := c.Resources.GetByID(ctx, c.ClusterID(name), customer.APIVersion, nil)
			if err == nil && property(got.GenericResource, "provisioningState") != want {
				err = fmt.Errorf("its state is %v", property(got.GenericResource, "provisioningState"))
			}
			return err
		})
	}
}

// requestCredential requests a credential of a cluster.
func requestCredential(ctx context.Context, c *customer.Customer, name string) error {
	_, signing, err := credential.Request()
	if err != nil {
		return err
	}
	return c.Act(ctx, c.ClusterID(name), "requestAdminCredential", map[string]string{"certificateSigningRequest": string(signing)}, nil)
}

// removeFleet deletes all captured clusters, and checks that none is left.
func removeFleet(t *testing.T, ctx context.Context, c *customer.Customer) {
	t.Helper()
	names := must.Get(c.List(ctx, "/subscriptions/"+subscription+"/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters"))(t)
	slices.Sort(names)
	if diff := cmp.Diff([]string{creating, settled, upgrading}, names); diff != "" {
		t.Errorf("clusters of the customer (-want +got):\n%s", diff)
	}
	for _, name := range names {
		if err := c.Delete(ctx, c.ClusterID(name)); err != nil {
			t.Error(err)
		}
		if _, err := c.Resources.GetByID(ctx, c.ClusterID(name), customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
			t.Errorf("GET after the deletion returned %v", err)
		}
	}
}

// tags returns a change of a cluster's tags.
func tags(value string) armresources.GenericResource {
	return armresources.GenericResource{Tags: map[string]*string{"round": to.Ptr(value)}}
}

// property returns the value at a path below properties, or nil if it is absent.
func property(resource armresources.GenericResource, path ...string) any {
	var value any = resource.Properties
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	return value
}

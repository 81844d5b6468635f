package azure_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestOwnershipIsProved changes the tags of a cluster's resources, as policies of customers do, or replaces its resource group, and deletes the cluster.
// What managedBy proves is deleted, what belongs to somebody else is kept, and a contradiction stops the deletion with its reason.
func TestOwnershipIsProved(t *testing.T) {
	const tag, uid = "hcpmesh-cluster", "6d5f0a3e-0000-4000-8000-000000000001"
	for name, tc := range map[string]struct {
		tags map[string]*string
		// replaced creates the group again without managedBy.
		replaced, kept bool
		reason         string
	}{
		"no tags":                             {tags: map[string]*string{}},
		"other tags":                          {tags: map[string]*string{"cost-center": to.Ptr("17")}},
		"another cluster of this ID":          {tags: map[string]*string{tag: to.Ptr("7d5f0a3e-0000-4000-8000-000000000001")}, kept: true},
		"group of somebody else":              {tags: map[string]*string{}, replaced: true, kept: true},
		"group of somebody else with our tag": {tags: map[string]*string{tag: to.Ptr(uid)}, replaced: true, kept: true, reason: `has the tag hcpmesh-cluster of this cluster, but managedBy is ""`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRegion(t, emulator.Options{})
			cluster := w.cluster("192.0.2.1")
			w.settle(cluster)
			groups := must.Get(armresources.NewResourceGroupsClient(customer, w.azure.Tokens, w.azure.Options()))(t)
			zones := must.Get(armdns.NewZonesClient(customer, w.azure.Tokens, w.azure.Options()))(t)
			group, zoneName := armresources.ResourceGroup{Location: to.Ptr("westus3"), Tags: tc.tags}, "aro.p."+zone
			if tc.replaced {
				deletion, err := groups.BeginDelete(t.Context(), "managed", nil)
				if err == nil {
					_, err = deletion.PollUntilDone(t.Context(), nil)
				}
				if err != nil {
					t.Fatal(err)
				}
			} else {
				group.ManagedBy = to.Ptr(cluster.Cluster.ResourceID)
				must.Get(zones.CreateOrUpdate(t.Context(), "managed", zoneName, armdns.Zone{Location: to.Ptr("global"), Tags: tc.tags}, nil))(t)
			}
			must.Get(groups.CreateOrUpdate(t.Context(), "managed", group, nil))(t)
			if tc.reason != "" {
				cluster.Cluster.DeleteTime = w.now
				cluster.Works = slices.DeleteFunc(cluster.Works, func(work *fleet.Work) bool { return work.Kind == fleet.HostedCluster })
				must.Do(t, w.steps.Region.Settle(w.now, cluster, nil))
				if o := w.steps.Try(t.Context(), cluster, cluster.Azure.Step(fleet.AzureResourceGroup)); o.Done || !strings.Contains(o.Error, tc.reason) {
					t.Errorf("the outcome is %+v", o)
				}
			} else {
				w.remove(cluster)
			}
			if _, err := groups.Get(t.Context(), "managed", nil); (err == nil) != tc.kept {
				t.Errorf("the group: %v", err)
			}
		})
	}
}

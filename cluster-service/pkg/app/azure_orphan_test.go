package app_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
)

// TestAzureOrphans creates the managed resource groups of a deleted and of a lost cluster again, among more groups than a page of Azure
// has. Cluster Service reports them after the second search. It reports neither the group of a cluster nor groups of others.
func TestAzureOrphans(t *testing.T) {
	t.Parallel()
	r := newRegion(t).withAzure(emulator.Options{Seed: serviceRights()})
	r.play()
	service := r.start(nil)
	ctx := t.Context()
	deleted, living := azureRequest("deleted"), azureRequest("living")
	for _, request := range []*csv1.ApplyClusterRequest{deleted, living} {
		if _, err := service.ApplyCluster(ctx, request); err != nil {
			t.Fatal(err)
		}
		service.awaitCluster(t, request.Uid, clusterReady(1))
	}
	if _, err := service.DeleteCluster(ctx, &csv1.DeleteClusterRequest{Uid: deleted.Uid}); err != nil {
		t.Fatal(err)
	}
	service.awaitCluster(t, deleted.Uid, clusterDeleted)

	groups, err := armresources.NewResourceGroupsClient(customerSubscription, r.azure.Tokens, r.azure.Options())
	if err != nil {
		t.Fatal(err)
	}
	create := func(name, location, managedBy, uid string) string {
		t.Helper()
		group := armresources.ResourceGroup{Location: to.Ptr(location), Tags: map[string]*string{"hcpmesh-cluster": to.Ptr(uid)}}
		if managedBy != "" {
			group.ManagedBy = to.Ptr(managedBy)
		}
		created, err := groups.CreateOrUpdate(ctx, name, group, nil)
		if err != nil {
			t.Fatal(err)
		}
		return *created.ID
	}
	for i := range 100 {
		create(fmt.Sprintf("a-group-of-the-customer-%d", i), "westus3", "", "")
	}
	create("of-another-region", "eastus", deleted.ResourceId, deleted.Uid)
	left, lost := create("managed-deleted", "westus3", deleted.ResourceId, deleted.Uid), create("managed-lost", "westus3", resourceID("lost"), uuid.NewString())

	// await advances the clock to the next search, and waits until the orphans with and without a proof are listed.
	await := func(proven, unproven []string) {
		t.Helper()
		r.clock.advance(10 * time.Hour)
		eventually.Soon(t, "the orphans are listed", func() error {
			response, err := service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{})
			if err != nil {
				return err
			}
			var gotProven, gotUnproven []string
			for _, o := range response.GetOrphans() {
				if o.GetProof() != "" {
					gotProven = append(gotProven, o.GetAzureId())
				} else {
					gotUnproven = append(gotUnproven, o.GetAzureId())
				}
			}
			if count := r.metric("cluster_service_azure_orphans", "resource-group"); !slices.Equal(gotProven, proven) || !slices.Equal(gotUnproven, unproven) || int(count) != len(proven)+len(unproven) {
				return fmt.Errorf("counted %v: %v", count, response.GetOrphans())
			}
			return nil
		})
	}
	r.clock.advance(10 * time.Hour)
	database, err := store.Open(store.Options{URL: r.url, Now: r.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	defer database.Close()
	eventually.Soon(t, "the first search has ended", func() error {
		if found, err := database.ListAzureOrphans(ctx, "", 0, 10); err != nil || len(found) != 2 {
			return fmt.Errorf("found %+v, %w", found, err)
		}
		return nil
	})
	if list, err := service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{}); err != nil || len(list.GetOrphans()) > 0 {
		t.Errorf("after one search: %v, %v", list, err)
	}
	await([]string{left}, []string{lost})
	if list, err := service.ListAzureOrphans(ctx, &csv1.ListAzureOrphansRequest{}); err != nil || list.GetOrphans()[0].GetClusterResourceId() == "" || !list.GetOrphans()[0].GetLastTime().AsTime().After(list.GetOrphans()[0].GetFirstTime().AsTime().Add(time.Hour)) {
		t.Errorf("listed %v, %v", list, err)
	}

	deletion, err := groups.BeginDelete(ctx, "managed-lost", nil)
	if err == nil {
		_, err = deletion.PollUntilDone(ctx, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	await([]string{left}, nil)
}

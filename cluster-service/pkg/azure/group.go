package azure

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
)

func (a *attempt) managedGroup() (ResourceGroups, string, error) {
	platform := a.cluster.Spec.GetPlatform()
	groups, err := a.Clients.ResourceGroups(platform.GetSubscriptionId())
	return groups, platform.GetManagedResourceGroup(), err
}

// owner returns the UID in the tag of a resource, or "". Customers and their policies change tags, so that a missing one proves nothing.
func owner(tags map[string]*string) string {
	if uid := tags[ownerTag]; uid != nil {
		return *uid
	}
	return ""
}

// ownsGroup reports whether a resource group belongs to this cluster. managedBy proves it, because Azure never changes it; the tag tells the clusters
// apart that had the same resource ID. It returns an error if both contradict each other.
func (a *attempt) ownsGroup(g *armresources.ResourceGroup) (bool, error) {
	manager, uid := "", owner(g.Tags)
	if g.ManagedBy != nil {
		manager = *g.ManagedBy
	}
	managed := strings.EqualFold(manager, a.cluster.ResourceID)
	if !managed && uid == a.cluster.UID {
		return false, fmt.Errorf("the resource group %s has the tag %s of this cluster, but managedBy is %q: delete the group if it belonged to the cluster, else remove the tag",
			a.cluster.Spec.GetPlatform().GetManagedResourceGroup(), ownerTag, manager)
	}
	return managed && (uid == "" || uid == a.cluster.UID), nil
}

// createGroup creates the managed resource group, which only this service may change.
func (a *attempt) createGroup(ctx context.Context) error {
	groups, name, err := a.managedGroup()
	if err != nil {
		return err
	}
	found, err := groups.Get(ctx, name, nil)
	owned := false
	if err == nil {
		owned, err = a.ownsGroup(&found.ResourceGroup)
	}
	switch {
	case err == nil && !owned:
		return fmt.Errorf("the managed resource group %s exists and does not belong to this cluster: delete it, or create the cluster with another managed resource group", name)
	case err == nil && provisioning(found.Properties) == "Succeeded":
		a.done()
		return nil
	case err == nil:
		a.await("the managed resource group, whose provisioning state is "+provisioning(found.Properties), nil)
		return nil
	case !isNotFound(err):
		return err
	}
	_, err = groups.CreateOrUpdate(ctx, name, armresources.ResourceGroup{Location: to.Ptr(a.cluster.Spec.GetLocation()), ManagedBy: to.Ptr(a.cluster.ResourceID),
		Tags: map[string]*string{ownerTag: to.Ptr(a.cluster.UID)}}, nil)
	return a.finish(err)
}

func provisioning(p *armresources.ResourceGroupProperties) string {
	if p == nil || p.ProvisioningState == nil {
		return ""
	}
	return *p.ProvisioningState
}

// groupExists reports whether the managed resource group exists and belongs to this cluster.
func (a *attempt) groupExists(ctx context.Context, groups ResourceGroups, name string) (bool, error) {
	found, err := groups.Get(ctx, name, nil)
	switch {
	case isNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return a.ownsGroup(&found.ResourceGroup)
}

// removeGroup deletes the managed resource group with all resources in it.
func (a *attempt) removeGroup(ctx context.Context) error {
	groups, name, err := a.managedGroup()
	if err != nil {
		return err
	}
	owned, err := a.groupExists(ctx, groups, name)
	if err != nil {
		return err
	}
	if !owned {
		a.done()
		return nil
	}
	response, err := beginGroupDeletion(ctx, groups, name)
	switch {
	case isNotFound(err):
		a.done()
		return nil
	case err != nil:
		return err
	case isAccepted(response):
		a.await("Azure to delete the managed resource group "+name, response)
		return nil
	}
	a.done()
	return nil
}

func beginGroupDeletion(ctx context.Context, groups ResourceGroups, name string) (*http.Response, error) {
	return withResponse(ctx, func(ctx context.Context) (*runtime.Poller[armresources.ResourceGroupsClientDeleteResponse], error) {
		return groups.BeginDelete(ctx, name, nil)
	})
}

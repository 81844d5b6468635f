package azure

import (
	"context"
	"fmt"
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

// owns reports whether a resource group belongs to this cluster.
func (a *attempt) owns(g *armresources.ResourceGroup) bool {
	owner := g.Tags[ownerTag]
	return owner != nil && *owner == a.cluster.UID && g.ManagedBy != nil && strings.EqualFold(*g.ManagedBy, a.cluster.ResourceID)
}

// createGroup creates the managed resource group, which only this service may change.
func (a *attempt) createGroup(ctx context.Context) error {
	groups, name, err := a.managedGroup()
	if err != nil {
		return err
	}
	found, err := groups.Get(ctx, name, nil)
	switch {
	case err == nil && !a.owns(&found.ResourceGroup):
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
	if err == nil {
		a.done()
	}
	return err
}

func provisioning(p *armresources.ResourceGroupProperties) string {
	if p == nil || p.ProvisioningState == nil {
		return ""
	}
	return *p.ProvisioningState
}

// removeGroup deletes the managed resource group with all resources in it.
func (a *attempt) removeGroup(ctx context.Context) error {
	groups, name, err := a.managedGroup()
	if err != nil {
		return err
	}
	found, err := groups.Get(ctx, name, nil)
	if isNotFound(err) || err == nil && !a.owns(&found.ResourceGroup) {
		a.done()
		return nil
	}
	if err != nil {
		return err
	}
	response, err := withResponse(ctx, func(ctx context.Context) (*runtime.Poller[armresources.ResourceGroupsClientDeleteResponse], error) {
		return groups.BeginDelete(ctx, name, nil)
	})
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

//go:build nightly

// The published client for networks compiles for half a minute of CPU time, so only `make nightly` builds this file, with the tag nightly.

package emulator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/authorization/armauthorization/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/msi/armmsi"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// TestOneNetworkOperationAtATime checks that a network with an operation in progress rejects the next one.
func TestOneNetworkOperationAtATime(t *testing.T) {
	azure, ctx := start(t, emulator.Options{OperationDelay: time.Hour}), t.Context()
	networks := must.Get(armnetwork.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t).NewVirtualNetworksClient()
	network := armnetwork.VirtualNetwork{Location: to.Ptr("westus3"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
		AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{to.Ptr("10.0.0.0/16")}}}}
	_, err := networks.BeginCreateOrUpdate(ctx, "region", "vnet", network, nil)
	must.Do(t, err)
	_, err = networks.BeginCreateOrUpdate(ctx, "region", "vnet", network, nil)
	wantError(t, err, http.StatusConflict, "AnotherOperationInProgress")
}

func TestNetwork(t *testing.T) {
	withAndWithoutDelay(t, func(t *testing.T, azure *emulatortest.Azure) {
		ctx := t.Context()
		factory := must.Get(armnetwork.NewClientFactory(emulatortest.Subscription, azure.Tokens, azure.Options()))(t)
		networks, subnets, securityGroups := factory.NewVirtualNetworksClient(), factory.NewSubnetsClient(), factory.NewSecurityGroupsClient()
		network, err := networks.BeginCreateOrUpdate(ctx, "region", "vnet", armnetwork.VirtualNetwork{Location: to.Ptr("westus3"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
			AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{to.Ptr("10.0.0.0/16")}},
			Subnets:      []*armnetwork.Subnet{{Name: to.Ptr("workers"), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: to.Ptr("10.0.0.0/24")}}},
		}}, nil)
		vnet, err := must.Get(network, err)(t).PollUntilDone(ctx, pollFast)
		if must.Do(t, err); len(vnet.Properties.Subnets) != 1 || *vnet.Properties.ProvisioningState != "Succeeded" {
			t.Errorf("network %+v", vnet.Properties)
		}
		subnet, err := subnets.Get(ctx, "region", "vnet", "workers", nil)
		must.Do(t, err)
		id := emulatortest.Group + "/providers/Microsoft.Network/networkSecurityGroups/nsg"
		subnet.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &id}
		_, err = subnets.BeginCreateOrUpdate(ctx, "region", "vnet", "workers", subnet.Subnet, nil)
		wantError(t, err, http.StatusBadRequest, "InvalidResourceReference")
		group, err := securityGroups.BeginCreateOrUpdate(ctx, "region", "nsg", armnetwork.SecurityGroup{Location: to.Ptr("westus3")}, nil)
		_, err = must.Get(group, err)(t).PollUntilDone(ctx, pollFast)
		must.Do(t, err)
		poller, err := subnets.BeginCreateOrUpdate(ctx, "region", "vnet", "workers", subnet.Subnet, nil)
		associated, err := must.Get(poller, err)(t).PollUntilDone(ctx, pollFast)
		if must.Do(t, err); *associated.Properties.NetworkSecurityGroup.ID != id {
			t.Errorf("subnet %+v", associated.Properties)
		}
		_, err = securityGroups.BeginDelete(ctx, "region", "nsg", nil)
		wantError(t, err, http.StatusBadRequest, "InUseNetworkSecurityGroupCannotBeDeleted")
		shown, err := securityGroups.Get(ctx, "region", "nsg", nil)
		if must.Do(t, err); len(shown.Properties.Subnets) != 1 {
			t.Errorf("security group %+v", shown.Properties)
		}
		_, err = subnets.Get(ctx, "region", "vnet", "none", nil)
		wantError(t, err, http.StatusNotFound, "ResourceNotFound")
	})
}

// TestAssumeCustomers reads resources that were not created.
func TestAssumeCustomers(t *testing.T) {
	azure, ctx := start(t, emulator.Options{AssumeCustomers: true}), t.Context()
	subnets := must.Get(armnetwork.NewSubnetsClient(subscription, azure.Tokens, azure.Options()))(t)
	subnet := must.Get(subnets.Get(ctx, "customer", "vnet", "workers", nil))(t)
	nsg := "/subscriptions/" + subscription + "/resourceGroups/customer/providers/Microsoft.Network/networkSecurityGroups/nsg"
	subnet.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &nsg}
	_, err := subnets.BeginCreateOrUpdate(ctx, "customer", "vnet", "workers", subnet.Subnet, nil)
	must.Do(t, err)
	identities := must.Get(armmsi.NewUserAssignedIdentitiesClient(subscription, azure.Tokens, azure.Options()))(t)
	identity := must.Get(identities.Get(ctx, "customer", "registry", nil))(t)
	assignments := must.Get(armauthorization.NewRoleAssignmentsClient(subscription, azure.Tokens, azure.Options()))(t)
	page := must.Get(assignments.NewListForScopePager(nsg, &armauthorization.RoleAssignmentsClientListForScopeOptions{
		Filter: to.Ptr("assignedTo('" + *identity.Properties.PrincipalID + "')")}).NextPage(ctx))(t)
	if len(page.Value) != 1 {
		t.Errorf("an assumed identity has %d role assignments, want 1", len(page.Value))
	}
	if _, err := groupsClient(t, azure, azure.Tokens).Get(ctx, "managed", nil); true {
		wantError(t, err, http.StatusNotFound, "ResourceGroupNotFound")
	}
	leftovers := must.Get(azure.Leftovers())(t)
	if want := []string{*subnet.ID + " with " + nsg}; !cmp.Equal(leftovers, want) {
		t.Errorf("leftovers %v, want only the association: %v", leftovers, want)
	}
}

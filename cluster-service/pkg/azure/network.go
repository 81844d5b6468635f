package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v6"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// Whose the association of the subnet with the network security group is.
const (
	factAssociation = fleet.AzureAssociation
	byService       = fleet.AzureAssociatedByService
	byCustomer      = "customer"
)

// subnet is the customer's, as it stands.
type subnet struct {
	client               Subnets
	group, network, name string
	armnetwork.SubnetsClientGetResponse
}

func (a *attempt) subnet(ctx context.Context) (*subnet, error) {
	id, err := arm.ParseResourceID(a.cluster.Spec.GetPlatform().GetSubnetId())
	if err != nil || id.Parent == nil {
		return nil, fmt.Errorf("the subnet id %q is malformed", a.cluster.Spec.GetPlatform().GetSubnetId())
	}
	client, err := a.Clients.Subnets(id.SubscriptionID)
	if err != nil {
		return nil, err
	}
	s := &subnet{client: client, group: id.ResourceGroupName, network: id.Parent.Name, name: id.Name}
	s.SubnetsClientGetResponse, err = client.Get(ctx, s.group, s.network, s.name, nil)
	if err == nil && s.Properties == nil {
		s.Properties = &armnetwork.SubnetPropertiesFormat{}
	}
	return s, err
}

// securityGroup is the id of the network security group that the subnet is associated with.
func (s *subnet) securityGroup() string {
	if g := s.Properties.NetworkSecurityGroup; g != nil && g.ID != nil {
		return *g.ID
	}
	return ""
}

// moving says that Azure is at the subnet.
func (s *subnet) moving() bool {
	return s.Properties.ProvisioningState != nil && *s.Properties.ProvisioningState == armnetwork.ProvisioningStateUpdating
}

func (a *attempt) associate(ctx context.Context) error {
	s, err := a.subnet(ctx)
	if gone(err) {
		return fmt.Errorf("the customer's subnet %s is not there", a.cluster.Spec.GetPlatform().GetSubnetId())
	}
	if err != nil {
		return err
	}
	wanted := a.cluster.Spec.GetPlatform().GetNetworkSecurityGroupId()
	has, decided := s.securityGroup(), a.step.Facts[factAssociation]
	switch {
	case s.moving():
		a.await("Azure to update the subnet "+s.name, nil)
	case strings.EqualFold(has, wanted):
		if decided == "" {
			a.decide(factAssociation, byCustomer)
		}
		a.done()
	case has != "":
		return fmt.Errorf("the subnet %s is associated with another network security group, %s: the customer must associate it with %s", s.name, has, wanted)
	case decided != byService:
		a.decide(factAssociation, byService)
	default:
		s.Properties.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &wanted}
		return a.put(ctx, s, false)
	}
	return nil
}

// dissociate takes back an association that the service made.
func (a *attempt) dissociate(ctx context.Context) error {
	if a.step.Facts[factAssociation] != byService {
		a.done()
		return nil
	}
	s, err := a.subnet(ctx)
	switch {
	case gone(err):
		a.done()
	case err != nil:
		return err
	case s.moving():
		a.await("Azure to update the subnet "+s.name, nil)
	case !strings.EqualFold(s.securityGroup(), a.cluster.Spec.GetPlatform().GetNetworkSecurityGroupId()):
		a.done()
	default:
		s.Properties.NetworkSecurityGroup = nil
		return a.put(ctx, s, true)
	}
	return nil
}

func (a *attempt) put(ctx context.Context, s *subnet, removing bool) error {
	response, err := captured(ctx, func(ctx context.Context) (*runtime.Poller[armnetwork.SubnetsClientCreateOrUpdateResponse], error) {
		return s.client.BeginCreateOrUpdate(ctx, s.group, s.network, s.name, s.Subnet, nil)
	})
	if gone(err) && removing {
		a.done()
		return nil
	}
	if err != nil {
		return err
	}
	if response != nil && response.Header.Get("Azure-AsyncOperation") != "" {
		a.await("Azure to update the subnet "+s.name, response)
		return nil
	}
	a.done()
	return nil
}

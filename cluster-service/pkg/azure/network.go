package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
)

// Values of the fact that records who associated the subnet with the network security group.
const (
	factAssociation = fleet.AzureAssociation
	byService       = fleet.AzureAssociatedByService
	byCustomer      = "customer"
)

// subnetAPIVersion is the api-version of Microsoft.Network for requests of subnets.
const subnetAPIVersion = "2024-05-01"

// subnet is the customer's subnet as Azure returned it. All properties are kept, also those that are not known here, because
// an update replaces the subnet.
type subnet struct {
	client     Resources
	id, name   string
	properties map[string]any
}

func (a *attempt) subnet(ctx context.Context) (*subnet, error) {
	id, err := arm.ParseResourceID(a.cluster.Spec.GetPlatform().GetSubnetId())
	if err != nil || id.Parent == nil {
		return nil, fmt.Errorf("the resource ID %q of the subnet is malformed", a.cluster.Spec.GetPlatform().GetSubnetId())
	}
	client, err := a.Clients.Resources(id.SubscriptionID)
	if err != nil {
		return nil, err
	}
	response, err := client.GetByID(ctx, id.String(), subnetAPIVersion, nil)
	if err != nil {
		return nil, err
	}
	s := &subnet{client: client, id: id.String(), name: id.Name}
	if s.properties, _ = response.Properties.(map[string]any); s.properties == nil {
		s.properties = map[string]any{}
	}
	return s, nil
}

// securityGroup returns the ID of the network security group with which the subnet is associated; "" if there is none.
func (s *subnet) securityGroup() string {
	group, _ := s.properties["networkSecurityGroup"].(map[string]any)
	id, _ := group["id"].(string)
	return id
}

// updating reports whether Azure is updating the subnet.
func (s *subnet) updating() bool { return s.properties["provisioningState"] == "Updating" }

func (a *attempt) associate(ctx context.Context) error {
	s, err := a.subnet(ctx)
	if isNotFound(err) {
		return fmt.Errorf("the customer's subnet %s does not exist", a.cluster.Spec.GetPlatform().GetSubnetId())
	}
	if err != nil {
		return err
	}
	wanted := a.cluster.Spec.GetPlatform().GetNetworkSecurityGroupId()
	has, decided := s.securityGroup(), a.step.Facts[factAssociation]
	switch {
	case s.updating():
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
		s.properties["networkSecurityGroup"] = map[string]any{"id": wanted}
		return a.put(ctx, s, false)
	}
	return nil
}

// dissociate removes the association if the service made it.
func (a *attempt) dissociate(ctx context.Context) error {
	if a.step.Facts[factAssociation] != byService {
		a.done()
		return nil
	}
	s, err := a.subnet(ctx)
	switch {
	case isNotFound(err):
		a.done()
	case err != nil:
		return err
	case s.updating():
		a.await("Azure to update the subnet "+s.name, nil)
	case !strings.EqualFold(s.securityGroup(), a.cluster.Spec.GetPlatform().GetNetworkSecurityGroupId()):
		a.done()
	default:
		delete(s.properties, "networkSecurityGroup")
		return a.put(ctx, s, true)
	}
	return nil
}

func (a *attempt) put(ctx context.Context, s *subnet, removing bool) error {
	response, err := withResponse(ctx, func(ctx context.Context) (*runtime.Poller[armresources.ClientCreateOrUpdateByIDResponse], error) {
		return s.client.BeginCreateOrUpdateByID(ctx, s.id, subnetAPIVersion, armresources.GenericResource{Properties: s.properties}, nil)
	})
	if isNotFound(err) && removing {
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

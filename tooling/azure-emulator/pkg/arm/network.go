package arm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	vnetType   = "Microsoft.Network/virtualNetworks"
	subnetType = "Microsoft.Network/virtualNetworks/subnets"
	nsgType    = "Microsoft.Network/networkSecurityGroups"
)

// networkTypes returns the types of virtual networks.
func networkTypes() []*resourceType {
	versions := []string{"2024-05-01", "2024-03-01", "2023-11-01"}
	return []*resourceType{
		{name: vnetType, versions: versions, tracked: true, longPut: true, longDelete: true, assumable: true, put: putNetwork, complete: completeNetwork},
		{name: subnetType, versions: versions, longPut: true, longDelete: true, assumable: true, put: putSubnet},
		{name: nsgType, versions: versions, tracked: true, longPut: true, longDelete: true, assumable: true, put: putSecurityGroup, complete: completeSecurityGroup, canDelete: canDeleteSecurityGroup},
	}
}

// parsePrefixes returns the address ranges in the properties of a network or of a subnet, which use different fields.
func parsePrefixes(properties map[string]any) ([]netip.Prefix, error) {
	text, err := json.Marshal(properties)
	if err != nil {
		return nil, err
	}
	var p struct {
		Space struct {
			Prefixes []string `json:"addressPrefixes"`
		} `json:"addressSpace"`
		Prefix   string   `json:"addressPrefix"`
		Prefixes []string `json:"addressPrefixes"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, badRequest("InvalidRequestFormat", "Cannot parse the request: %v", err)
	}
	all := append(p.Space.Prefixes, p.Prefixes...)
	if p.Prefix != "" {
		all = append(all, p.Prefix)
	}
	var out []netip.Prefix
	for _, s := range all {
		prefix, err := netip.ParsePrefix(s)
		if err != nil || prefix != prefix.Masked() {
			return nil, badRequest("InvalidAddressPrefixFormat", "Address prefix %s is not formatted correctly.", s)
		}
		out = append(out, prefix)
	}
	if len(out) == 0 {
		return nil, badRequest("InvalidRequestFormat", "An address prefix is required.")
	}
	return out, nil
}

// putNetwork validates a network and replaces all of its subnets by those of the request.
func putNetwork(c *call, _, wanted *Resource) error {
	if _, err := parsePrefixes(wanted.Properties); err != nil {
		return err
	}
	text, err := json.Marshal(wanted.Properties["subnets"])
	if err != nil {
		return err
	}
	var subnets []*Resource
	if err := decode(text, &subnets); err != nil {
		return err
	}
	delete(wanted.Properties, "subnets")
	old, err := store.All[Resource](c.tx, resources, strings.ToLower(wanted.ID)+"/subnets/")
	if err != nil {
		return err
	}
	for _, s := range old {
		if err := c.removeTree(s.ID); err != nil {
			return err
		}
	}
	for _, s := range subnets {
		s.ID, s.Type, s.ETag, s.Location, s.Operation = wanted.ID+"/subnets/"+s.Name, subnetType, uuid.NewString(), "", ""
		if s.Properties == nil {
			s.Properties = map[string]any{}
		}
		if err := c.checkSubnet(wanted, s); err != nil {
			return err
		}
		s.Properties["provisioningState"] = "Succeeded"
		if err := c.save(s); err != nil {
			return err
		}
	}
	return nil
}

// completeNetwork adds the subnets of a network.
func completeNetwork(c *call, r *Resource) error {
	subnets, err := store.All[Resource](c.tx, resources, strings.ToLower(r.ID)+"/subnets/")
	list := []any{}
	for _, s := range subnets {
		list = append(list, s.public())
	}
	r.Properties["subnets"] = list
	return err
}

// putSubnet validates a subnet. It returns an error while another operation on the network is in progress.
func putSubnet(c *call, _, wanted *Resource) error {
	network, err := c.find(c.path.parentID())
	if err != nil {
		return err
	}
	if network == nil {
		return parentNotFound(c.path, "virtualNetworks/"+c.path.names[0])
	}
	siblings, err := store.All[Resource](c.tx, resources, strings.ToLower(network.ID))
	if err != nil {
		return err
	}
	for _, s := range siblings {
		if s.Operation != "" && (s.ID == network.ID || strings.HasPrefix(strings.ToLower(s.ID), strings.ToLower(network.ID)+"/")) {
			return inProgress(s)
		}
	}
	wanted.Location, wanted.Tags = "", nil
	return c.checkSubnet(network, wanted)
}

// checkSubnet returns an error if the subnet is not within the network's address space, or if its security group does not
// exist.
func (c *call) checkSubnet(network, subnet *Resource) error {
	ranges, err := parsePrefixes(subnet.Properties)
	if err != nil {
		return err
	}
	space, err := parsePrefixes(network.Properties)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		inside := false
		for _, s := range space {
			inside = inside || s.Contains(r.Addr()) && s.Bits() <= r.Bits()
		}
		if !inside {
			return badRequest("NetcfgInvalidSubnet", "Subnet '%s' is not valid in virtual network '%s'.", subnet.Name, network.Name)
		}
	}
	id := securityGroupOf(subnet)
	if id == "" {
		return nil
	}
	if err := c.authorize(rbac.Action{Name: nsgType + "/join/action"}, id); err != nil {
		return err
	}
	group, err := c.find(id)
	if err != nil {
		return err
	}
	if group == nil && c.assumes() {
		group, err = c.assumeID(id, nsgType)
		if err != nil {
			return err
		}
	}
	if group == nil {
		return badRequest("InvalidResourceReference", "Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", id, subnet.ID)
	}
	return nil
}

// securityGroupOf returns the ID of the network security group of a subnet, or "".
func securityGroupOf(subnet *Resource) string {
	reference, _ := subnet.Properties["networkSecurityGroup"].(map[string]any)
	id, _ := reference["id"].(string)
	return id
}

// putSecurityGroup sets the default rules of a network security group.
func putSecurityGroup(_ *call, _, wanted *Resource) error {
	delete(wanted.Properties, "subnets")
	if wanted.Properties["securityRules"] == nil {
		wanted.Properties["securityRules"] = []any{}
	}
	return nil
}

// associatedSubnets returns references to the subnets of a network security group.
func (c *call) associatedSubnets(group *Resource) ([]any, error) {
	subnets := []any{}
	err := c.tx.Scan(resources, "/subscriptions/"+strings.ToLower(c.path.subscription)+"/", func(key string, decode func(any) error) error {
		if !strings.Contains(key, "/subnets/") {
			return nil
		}
		var s Resource
		if err := decode(&s); err != nil {
			return err
		}
		if strings.EqualFold(securityGroupOf(&s), group.ID) {
			subnets = append(subnets, map[string]string{"id": s.ID})
		}
		return nil
	})
	return subnets, err
}

// completeSecurityGroup adds the associated subnets.
func completeSecurityGroup(c *call, r *Resource) error {
	subnets, err := c.associatedSubnets(r)
	if len(subnets) > 0 {
		r.Properties["subnets"] = subnets
	}
	return err
}

// canDeleteSecurityGroup returns an error if a subnet uses the network security group.
func canDeleteSecurityGroup(c *call, r *Resource) error {
	subnets, err := c.associatedSubnets(r)
	if err != nil {
		return err
	}
	if len(subnets) > 0 {
		return &Error{Status: http.StatusBadRequest, Code: "InUseNetworkSecurityGroupCannotBeDeleted", Message: fmt.Sprintf(
			"Network security group %s cannot be deleted because it is in use by the following resources: %s.", r.ID, subnets[0].(map[string]string)["id"])}
	}
	return nil
}

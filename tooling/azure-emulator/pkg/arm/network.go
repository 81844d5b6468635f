package arm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

const (
	vnetType   = "Microsoft.Network/virtualNetworks"
	subnetType = "Microsoft.Network/virtualNetworks/subnets"
	nsgType    = "Microsoft.Network/networkSecurityGroups"
)

func networkKinds() []*kind {
	versions := []string{"2024-05-01", "2024-03-01", "2023-11-01"}
	return []*kind{
		{name: vnetType, versions: versions, tracked: true, longPut: true, longDelete: true, assumable: true, put: putNetwork, show: showNetwork},
		{name: subnetType, versions: versions, longPut: true, longDelete: true, assumable: true, put: putSubnet},
		{name: nsgType, versions: versions, tracked: true, longPut: true, longDelete: true, assumable: true, put: putSecurityGroup, show: showSecurityGroup, remove: removeSecurityGroup},
	}
}

// prefixes reads the address ranges of a network or a subnet, each of which has its own way to write them.
func prefixes(properties map[string]any) ([]netip.Prefix, error) {
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

// putNetwork takes the subnets in the body for all that there shall be.
func putNetwork(c *call, _, wanted *Resource) error {
	if _, err := prefixes(wanted.Properties); err != nil {
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

func showNetwork(c *call, r *Resource) error {
	subnets, err := store.All[Resource](c.tx, resources, strings.ToLower(r.ID)+"/subnets/")
	shown := []any{}
	for _, s := range subnets {
		shown = append(shown, s.public())
	}
	r.Properties["subnets"] = shown
	return err
}

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

func (c *call) checkSubnet(network, subnet *Resource) error {
	ranges, err := prefixes(subnet.Properties)
	if err != nil {
		return err
	}
	space, err := prefixes(network.Properties)
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
	group, err := c.find(id)
	if err != nil {
		return err
	}
	if group == nil && c.AssumeCustomers {
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

// securityGroupOf is the id of the network security group that a subnet is associated with.
func securityGroupOf(subnet *Resource) string {
	reference, _ := subnet.Properties["networkSecurityGroup"].(map[string]any)
	id, _ := reference["id"].(string)
	return id
}

func putSecurityGroup(_ *call, _, wanted *Resource) error {
	delete(wanted.Properties, "subnets")
	if wanted.Properties["securityRules"] == nil {
		wanted.Properties["securityRules"] = []any{}
	}
	return nil
}

// associated are the subnets of a network security group.
func (c *call) associated(group *Resource) ([]any, error) {
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

func showSecurityGroup(c *call, r *Resource) error {
	subnets, err := c.associated(r)
	if len(subnets) > 0 {
		r.Properties["subnets"] = subnets
	}
	return err
}

func removeSecurityGroup(c *call, r *Resource) error {
	subnets, err := c.associated(r)
	if err != nil {
		return err
	}
	if len(subnets) > 0 {
		return &Error{Status: http.StatusBadRequest, Code: "InUseNetworkSecurityGroupCannotBeDeleted", Message: fmt.Sprintf(
			"Network security group %s cannot be deleted because it is in use by the following resources: %s.", r.ID, subnets[0].(map[string]string)["id"])}
	}
	return nil
}

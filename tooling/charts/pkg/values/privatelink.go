package values

import "fmt"

// privateLinkSubnet is the name of the subnet of private link services in the networks that the infrastructure creates.
const privateLinkSubnet = "privateLink"

// PrivateLink is the private link service in front of a program.
type PrivateLink struct {
	Name string `json:"name"`
	// Subnet is the name of the subnet with the addresses from which the private link service connects, and Range its addresses.
	Subnet string `json:"subnet"`
	Range  string `json:"range"`
	// Visibility and AutoApproval are IDs of subscriptions. A visibility of * is that of all.
	Visibility   []string `json:"visibility"`
	AutoApproval []string `json:"autoApproval"`
}

// privateLink returns the private link service of the program.
func (c *computation) privateLink() *PrivateLink {
	return &PrivateLink{
		Name: c.own("privateLink", "name"), Subnet: privateLinkSubnet, Range: c.text(c.cluster(), "network", "privateLink"),
		Visibility: c.list(c.path("privateLink", "visibility")...), AutoApproval: c.list(c.path("privateLink", "autoApproval")...),
	}
}

// list returns the items of a list, which may be empty or absent.
func (c *computation) list(path ...string) []string {
	items := []string{}
	if n := c.target.Configuration.Get(path...); n != nil {
		for _, item := range n.Items {
			items = append(items, fmt.Sprint(item.Value))
		}
	}
	return items
}

package arm

import (
	"slices"
	"strings"

	"github.com/google/uuid"
)

// assumable reports whether a read may create the requested resource. Only resources that customers bring are created
// this way.
func (c *call) assumable() bool {
	k := c.types[c.path.typeKey()]
	return c.assumes() && k != nil && k.assumable && c.path.name != ""
}

// assumes reports whether the resources of customers are assumed in the requested subscription.
func (c *call) assumes() bool {
	return c.AssumeCustomers && !slices.ContainsFunc(c.OwnSubscriptions, func(own string) bool { return strings.EqualFold(own, c.path.subscription) })
}

// assumeRequested creates the requested resource and its parents.
func (c *call) assumeRequested(k *resourceType) (*Resource, error) {
	return c.assumeID(c.path.id, k.name)
}

// assumeID creates the resource with an ID and a type, and its parents.
func (c *call) assumeID(id, typ string) (*Resource, error) {
	p, err := parsePath(id)
	if err != nil || !strings.EqualFold(p.typ, typ) || p.name == "" {
		return nil, badRequest("LinkedInvalidPropertyId", "Property id '%s' is invalid.", id)
	}
	group, err := c.find(p.groupID())
	if err != nil {
		return nil, err
	}
	if group == nil {
		group = &Resource{ID: p.groupID(), Name: p.group, Type: groupType, Location: c.Location, Assumed: true, Properties: map[string]any{"provisioningState": "Succeeded"}}
		if err := c.save(group); err != nil {
			return nil, err
		}
	}
	r := &Resource{ID: id, Name: p.name, Type: typ, Location: c.Location, ETag: uuid.NewString(), Assumed: true, Properties: map[string]any{"provisioningState": "Succeeded"}}
	switch typ {
	case vnetType:
		r.Properties["addressSpace"] = map[string]any{"addressPrefixes": []any{"10.0.0.0/8"}}
	case subnetType:
		r.Location, r.Properties["addressPrefix"] = "", "10.0.0.0/16"
		network, err := c.find(p.parentID())
		if err == nil && network == nil {
			_, err = c.assumeID(p.parentID(), vnetType)
		}
		if err != nil {
			return nil, err
		}
	case identityType:
		principal := uuid.NewString()
		r.Properties["tenantId"], r.Properties["principalId"], r.Properties["clientId"] = homeTenant, principal, uuid.NewString()
		if err := c.tx.Put(principals, principal, id); err != nil {
			return nil, err
		}
	}
	return r, c.save(r)
}

package adminclient

import (
	"context"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// EgressLinks returns the links of the egress gateway, with those that were removed recently.
func (c *Client) EgressLinks(ctx context.Context) ([]adminv1.EgressLink, error) {
	list, err := get[adminv1.EgressLinkList](ctx, c, "/egress-links", nil)
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

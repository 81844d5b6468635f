package adminclient

import (
	"context"
	"net/http"
	"net/url"

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

// SetEgressLink assigns a link of the egress gateway to a cluster, or replaces the hosts of its link.
func (c *Client) SetEgressLink(ctx context.Context, cluster, link string, request *adminv1.SetEgressLinkRequest) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPut, clusterPath(cluster)+"/egress-links/"+url.PathEscape(link), request)
}

// DeleteEgressLink removes a link of the egress gateway from its cluster.
func (c *Client) DeleteEgressLink(ctx context.Context, link string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodDelete, "/egress-links/"+url.PathEscape(link), nil)
}

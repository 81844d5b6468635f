package adminclient

import (
	"context"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Deletions returns the deletions in progress; with stuck only those with a stuck step.
func (c *Client) Deletions(ctx context.Context, stuck bool) (*adminv1.DeletionList, error) {
	query := url.Values{}
	if stuck {
		query.Set("stuck", "true")
	}
	return get[adminv1.DeletionList](ctx, c, "/deletions", query)
}

// Deletion returns the deletion of a cluster, or else those of its children.
func (c *Client) Deletion(ctx context.Context, cluster string) (*adminv1.ClusterDeletion, error) {
	return get[adminv1.ClusterDeletion](ctx, c, clusterPath(cluster)+"/deletion", nil)
}

// Leftovers returns what forced deletions left behind, of all clusters or of one; with gone also leftovers that are gone.
func (c *Client) Leftovers(ctx context.Context, cluster string, gone bool) ([]*csv1.DeletionLeftover, error) {
	query := url.Values{}
	if cluster != "" {
		query.Set("cluster", cluster)
	}
	if gone {
		query.Set("gone", "true")
	}
	list, err := get[adminv1.LeftoverList](ctx, c, "/deletion-leftovers", query)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

// AzureOrphans returns the resources in Azure that belong to no cluster.
func (c *Client) AzureOrphans(ctx context.Context) ([]*csv1.AzureOrphan, error) {
	list, err := get[adminv1.AzureOrphanList](ctx, c, "/azure-orphans", nil)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

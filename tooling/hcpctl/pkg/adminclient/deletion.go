package adminclient

import (
	"context"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Deletions are what is being deleted in the region; stuck chooses what has a step that is stuck.
func (c *Client) Deletions(ctx context.Context, stuck bool) (*adminv1.DeletionList, error) {
	query := url.Values{}
	if stuck {
		query.Set("stuck", "true")
	}
	return get[adminv1.DeletionList](ctx, c, "/deletions", query)
}

// Deletion is that of a cluster; while the cluster stays, those of what is in it.
func (c *Client) Deletion(ctx context.Context, cluster string) (*adminv1.ClusterDeletion, error) {
	return get[adminv1.ClusterDeletion](ctx, c, clusterPath(cluster)+"/deletion", nil)
}

// Leftovers are what forced deletions left behind: all, or those of a cluster when it is not empty; gone has those listed too
// that have gone since.
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

// RetryDeletion has everything that deletions of a cluster wait for tried at once.
func (c *Client) RetryDeletion(ctx context.Context, cluster string) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "deletion/retry", nil)
}

// ReleaseFinalizers has finalizers taken off what a step of a deletion waits for.
func (c *Client) ReleaseFinalizers(ctx context.Context, cluster, step string, finalizers []string) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "deletion/release", message(&csv1.ReleaseDeletionFinalizersRequest{Step: step, Finalizers: finalizers}))
}

// ForceClusterStep has a cluster that is being created wait no longer for a step.
func (c *Client) ForceClusterStep(ctx context.Context, cluster, step string) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "force", message(&csv1.ForceClusterStepRequest{Step: step}))
}

// ForceDeletionStep has nobody wait for a step of a deletion any more.
func (c *Client) ForceDeletionStep(ctx context.Context, cluster, step string) (*adminv1.Operation, error) {
	return c.Act(ctx, cluster, "deletion/force", message(&csv1.ForceDeletionStepRequest{Step: step}))
}

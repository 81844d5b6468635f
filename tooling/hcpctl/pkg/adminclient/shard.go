package adminclient

import (
	"context"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

func shardPath(name string) string { return "/shards/" + url.PathEscape(name) }

// Shards returns the provision shards.
func (c *Client) Shards(ctx context.Context) ([]*csv1.ProvisionShard, error) {
	list, err := get[adminv1.ShardList](ctx, c, "/shards", nil)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

// Shard returns a provision shard with its load and history.
func (c *Client) Shard(ctx context.Context, name string) (*csv1.ProvisionShardReport, error) {
	report, err := get[adminv1.Message[*csv1.ProvisionShardReport]](ctx, c, shardPath(name), nil)
	if err != nil {
		return nil, err
	}
	return report.Of, nil
}

// DrainPlan returns where the clusters of a shard would go.
func (c *Client) DrainPlan(ctx context.Context, name string) (*csv1.DrainPlan, error) {
	plan, err := get[adminv1.Message[*csv1.DrainPlan]](ctx, c, shardPath(name)+"/drain-plan", nil)
	if err != nil {
		return nil, err
	}
	return plan.Of, nil
}

// Placement explains the placement of a cluster.
func (c *Client) Placement(ctx context.Context, cluster string) (*csv1.PlacementExplanation, error) {
	explained, err := get[adminv1.Message[*csv1.PlacementExplanation]](ctx, c, clusterPath(cluster)+"/placement", nil)
	if err != nil {
		return nil, err
	}
	return explained.Of, nil
}

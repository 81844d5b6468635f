package adminclient

import (
	"context"
	"net/http"
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

// RegisterShard registers a management cluster as a provision shard.
func (c *Client) RegisterShard(ctx context.Context, name string, request *csv1.RegisterProvisionShardRequest) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPut, shardPath(name), message(request))
}

// UpdateShard updates a provision shard.
func (c *Client) UpdateShard(ctx context.Context, name string, request *csv1.UpdateProvisionShardRequest) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPatch, shardPath(name), message(request))
}

// DrainShard cordons a shard permanently.
func (c *Client) DrainShard(ctx context.Context, name string, acceptNoRoom bool) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPost, shardPath(name)+"/drain", message(&csv1.DrainProvisionShardRequest{AcceptNoRoom: acceptNoRoom}))
}

// DeregisterShard deregisters an empty shard.
func (c *Client) DeregisterShard(ctx context.Context, name string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodDelete, shardPath(name), nil)
}

// Placement explains the placement of a cluster.
func (c *Client) Placement(ctx context.Context, cluster string) (*csv1.PlacementExplanation, error) {
	explained, err := get[adminv1.Message[*csv1.PlacementExplanation]](ctx, c, clusterPath(cluster)+"/placement", nil)
	if err != nil {
		return nil, err
	}
	return explained.Of, nil
}

// SetPlacement sets the placement rules of a cluster; nil removes them.
func (c *Client) SetPlacement(ctx context.Context, cluster string, policy *csv1.PlacementPolicy) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPut, clusterPath(cluster)+"/placement", message(&csv1.SetPlacementPolicyRequest{Policy: policy}))
}

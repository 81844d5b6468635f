package adminclient

import (
	"context"
	"net/http"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

func shardPath(name string) string { return "/shards/" + url.PathEscape(name) }

// Shards are the provision shards.
func (c *Client) Shards(ctx context.Context) ([]*csv1.ProvisionShard, error) {
	list, err := get[adminv1.ShardList](ctx, c, "/shards", nil)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

// Shard is one with what it carries.
func (c *Client) Shard(ctx context.Context, name string) (*csv1.ProvisionShardReport, error) {
	report, err := get[adminv1.Message[*csv1.ProvisionShardReport]](ctx, c, shardPath(name), nil)
	if err != nil {
		return nil, err
	}
	return report.Of, nil
}

// DrainPlan is where the clusters of a shard would go.
func (c *Client) DrainPlan(ctx context.Context, name string) (*csv1.DrainPlan, error) {
	plan, err := get[adminv1.Message[*csv1.DrainPlan]](ctx, c, shardPath(name)+"/drain-plan", nil)
	if err != nil {
		return nil, err
	}
	return plan.Of, nil
}

// RegisterShard makes a management cluster a shard.
func (c *Client) RegisterShard(ctx context.Context, name string, request *csv1.RegisterProvisionShardRequest) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPut, shardPath(name), message(request))
}

// UpdateShard sets what operators decide of a shard.
func (c *Client) UpdateShard(ctx context.Context, name string, request *csv1.UpdateProvisionShardRequest) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPatch, shardPath(name), message(request))
}

// DrainShard keeps new clusters away from a shard for good.
func (c *Client) DrainShard(ctx context.Context, name string, acceptNoRoom bool) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPost, shardPath(name)+"/drain", message(&csv1.DrainProvisionShardRequest{AcceptNoRoom: acceptNoRoom}))
}

// DeregisterShard has a shard forgotten.
func (c *Client) DeregisterShard(ctx context.Context, name string) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodDelete, shardPath(name), nil)
}

// Placement explains why a cluster is where it is.
func (c *Client) Placement(ctx context.Context, cluster string) (*csv1.PlacementExplanation, error) {
	explained, err := get[adminv1.Message[*csv1.PlacementExplanation]](ctx, c, clusterPath(cluster)+"/placement", nil)
	if err != nil {
		return nil, err
	}
	return explained.Of, nil
}

// SetPlacement sets the rules by which a cluster is placed; nil takes them back.
func (c *Client) SetPlacement(ctx context.Context, cluster string, policy *csv1.PlacementPolicy) (*adminv1.Operation, error) {
	return c.requestOperation(ctx, http.MethodPut, clusterPath(cluster)+"/placement", message(&csv1.SetPlacementPolicyRequest{Policy: policy}))
}

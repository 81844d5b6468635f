package adminclient

import (
	"context"
	"net/url"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// PlanUpgrade returns the plan of an upgrade. An empty version means the newest patch; nodePools is none, unpinned or all.
func (c *Client) PlanUpgrade(ctx context.Context, cluster, version, nodePools string) (*csv1.UpgradePlan, error) {
	query := url.Values{}
	for name, value := range map[string]string{"version": version, "nodePools": nodePools} {
		if value != "" {
			query.Set(name, value)
		}
	}
	plan, err := get[adminv1.Message[*csv1.UpgradePlan]](ctx, c, clusterPath(cluster)+"/upgrade-plan", query)
	if err != nil {
		return nil, err
	}
	return plan.Of, nil
}

// ClusterUpgrades returns the upgrades of a cluster.
func (c *Client) ClusterUpgrades(ctx context.Context, cluster string) ([]*csv1.Upgrade, error) {
	list, err := get[adminv1.UpgradeList](ctx, c, clusterPath(cluster)+"/upgrades", nil)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

// Upgrades returns the upgrades of the region; with active only those in progress.
func (c *Client) Upgrades(ctx context.Context, active bool) ([]*csv1.Upgrade, error) {
	query := url.Values{"pageSize": {"500"}}
	if active {
		query.Set("active", "true")
	}
	var all []*csv1.Upgrade
	for {
		list, err := get[adminv1.UpgradeList](ctx, c, "/upgrades", query)
		if err != nil {
			return nil, err
		}
		all = append(all, adminv1.Contents(list.Items)...)
		if list.NextPageToken == "" {
			return all, nil
		}
		query.Set("pageToken", list.NextPageToken)
	}
}

func policyPath(name string) string { return "/upgrade-policies/" + url.PathEscape(name) }

// UpgradePolicies returns all upgrade policies.
func (c *Client) UpgradePolicies(ctx context.Context) ([]*csv1.UpgradePolicy, error) {
	list, err := get[adminv1.UpgradePolicyList](ctx, c, "/upgrade-policies", nil)
	if err != nil {
		return nil, err
	}
	return adminv1.Contents(list.Items), nil
}

// UpgradePolicy returns an upgrade policy with its progress.
func (c *Client) UpgradePolicy(ctx context.Context, name string) (*csv1.UpgradePolicy, error) {
	policy, err := get[adminv1.Message[*csv1.UpgradePolicy]](ctx, c, policyPath(name), nil)
	if err != nil {
		return nil, err
	}
	return policy.Of, nil
}

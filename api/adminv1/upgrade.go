package adminv1

import clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"

// UpgradeList is the upgrades of a cluster, or a page of the region's.
type UpgradeList struct {
	Items []FleetUpgrade `json:"items"`
	// NextPageToken gets the next page; empty on the last one, and always for a cluster.
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// UpgradePolicyList is the upgrade policies.
type UpgradePolicyList struct {
	Items []Message[*clusterservicev1.UpgradePolicy] `json:"items"`
}

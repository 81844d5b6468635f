package adminv1

import clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"

// UpgradeList lists the upgrades of a cluster, or a page of those of the region.
type UpgradeList struct {
	Items []FleetUpgrade `json:"items"`
	// NextPageToken requests the next page; empty on the last page and for a cluster.
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// UpgradePolicyList lists the upgrade policies.
type UpgradePolicyList struct {
	Items []Message[*clusterservicev1.UpgradePolicy] `json:"items"`
}

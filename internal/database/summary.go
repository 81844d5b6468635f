package database

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// DesiredSummary is what of a document says what its customer was promised of the fleet, and no more of it: regions have thousands.
type DesiredSummary struct {
	Kind Kind
	Key  Key
	UID  string
	// ClusterUID is the incarnation of the cluster that it stands beneath; a cluster's is its own.
	ClusterUID string
	Generation int64
	// ProvisioningState is the resource's, and Active the operation that works on it, if any.
	ProvisioningState hub.ProvisioningState
	ActiveOperationID string
	// Fleet is what Cluster Service was last seen to hold.
	Fleet FleetState
}

// SortKey is the key in the form in which promises are in order, by bytes.
func (p DesiredSummary) SortKey() string { return p.Key.lower() }

// unreadable is in the place of an operation of a document that cannot be read.
const unreadable = "unreadable"

// summarizedKinds are the kinds of documents that make promises.
const summarizedKinds = "(c.kind = 'cluster' OR c.kind = 'nodePool' OR c.kind = 'externalAuth')"

// DesiredSummaries is a page of a subscription's promises behind a key, in order; at most limit of them.
func (db *DB) DesiredSummaries(ctx context.Context, subscriptionID, after string, limit int) ([]DesiredSummary, error) {
	const query = "SELECT c.kind, c.partitionKey, c.resourceId, c.properties.uid, c.properties.clusterUid, c.properties.generation, " +
		"c.properties.provisioningState, c.properties.activeOperationId, c.properties.fleet " +
		"FROM c WHERE " + summarizedKinds + " AND c.key > @after AND NOT IS_DEFINED(c.deletionTimestamp) ORDER BY c.key"
	documents, err := db.queryResources(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(subscriptionID)), query,
		[]azcosmos.QueryParameter{{Name: "@after", Value: after}}, limit)
	if err != nil {
		return nil, err
	}
	promises := make([]DesiredSummary, len(documents))
	for i, document := range documents {
		var d struct {
			Kind              Kind                  `json:"kind"`
			PartitionKey      string                `json:"partitionKey"`
			ResourceID        string                `json:"resourceId"`
			UID               string                `json:"uid"`
			ClusterUID        string                `json:"clusterUid"`
			Generation        int64                 `json:"generation"`
			ProvisioningState hub.ProvisioningState `json:"provisioningState"`
			ActiveOperationID string                `json:"activeOperationId"`
			Fleet             FleetState            `json:"fleet"`
		}
		if err := json.Unmarshal(document, &d); err != nil {
			// One that cannot be read must not hold up the others: it is taken for one that something is under way with.
			change, err := readChange(document)
			if err != nil {
				return nil, err
			}
			promises[i] = DesiredSummary{Kind: change.Kind, Key: change.Key, ActiveOperationID: unreadable}
			continue
		}
		promises[i] = DesiredSummary{Kind: d.Kind, Key: Key{SubscriptionID: d.PartitionKey, ResourceID: d.ResourceID}, UID: d.UID, ClusterUID: d.ClusterUID,
			Generation: d.Generation, ProvisioningState: d.ProvisioningState, ActiveOperationID: d.ActiveOperationID, Fleet: d.Fleet}
		if d.Kind == ClusterKind {
			promises[i].ClusterUID = d.UID
		}
	}
	return promises, nil
}

// SubscriptionsWithClusters are the subscriptions that have a cluster, in lower case and in order. It reads all partitions; see
// ActiveOperations.
func (db *DB) SubscriptionsWithClusters(ctx context.Context) ([]string, error) {
	const query = "SELECT c.partitionKey FROM c WHERE c.kind = 'cluster' AND NOT IS_DEFINED(c.deletionTimestamp)"
	found := map[string]bool{}
	err := db.pages(ctx, azcosmos.NewPartitionKey(), query, nil, func(document []byte) error {
		var d struct {
			PartitionKey string `json:"partitionKey"`
		}
		if err := json.Unmarshal(document, &d); err != nil {
			return fmt.Errorf("decoding a partition key: %w", err)
		}
		found[d.PartitionKey] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	subscriptions := make([]string, 0, len(found))
	for subscription := range found {
		subscriptions = append(subscriptions, subscription)
	}
	// In the order of the ids beneath them.
	slices.SortFunc(subscriptions, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	return subscriptions, nil
}

// FindDeletionProof finds a proof that an incarnation of a resource was deleted: its own tombstone, the operation that deleted it, or the
// end of its billing; or the same of the cluster that it stood beneath. Without one nothing is known. The documents are kept for a
// day, a week, and for ever.
func (db *DB) FindDeletionProof(ctx context.Context, kind Kind, key Key, uid, clusterUID string) (proof string, err error) {
	document, err := db.readResource(ctx, key.SubscriptionID, documentID(kind, key))
	if err != nil {
		return "", err
	}
	if document != nil {
		var d struct {
			DeletionTimestamp json.RawMessage `json:"deletionTimestamp"`
			Properties        struct {
				UID string `json:"uid"`
			} `json:"properties"`
		}
		if err := json.Unmarshal(document, &d); err != nil {
			return "", fmt.Errorf("decoding %s: %w", key.ResourceID, err)
		}
		if len(d.DeletionTimestamp) > 0 && d.Properties.UID == uid {
			return "its tombstone", nil
		}
	}
	uids := []string{uid}
	if clusterUID != "" && clusterUID != uid {
		uids = append(uids, clusterUID)
	}
	for _, uid := range uids {
		const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.uid = @uid AND c.properties.request = @request AND c.properties.status = @status AND NOT IS_DEFINED(c.deletionTimestamp)"
		operations, err := db.queryResources(ctx, azcosmos.NewPartitionKeyString(key.SubscriptionID), query, []azcosmos.QueryParameter{
			{Name: "@kind", Value: string(OperationKind)}, {Name: "@uid", Value: uid},
			{Name: "@request", Value: string(DeleteRequest)}, {Name: "@status", Value: string(hub.Succeeded)},
		}, 1)
		if err != nil {
			return "", err
		}
		if len(operations) > 0 {
			return "the operation that deleted it", nil
		}
		if billed, err := db.Billing(ctx, key.SubscriptionID, uid); err != nil {
			return "", err
		} else if billed != nil && billed.DeletionTime != nil {
			return "the end of its billing", nil
		}
	}
	return "", nil
}

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

// DesiredSummary holds the fields of a document that reconciliation compares with the fleet. It leaves out all other
// fields, because a region has thousands of documents.
type DesiredSummary struct {
	Kind Kind
	Key  Key
	UID  string
	// ClusterUID is the incarnation of the resource's cluster. A cluster has its own UID here.
	ClusterUID string
	Generation int64
	// ActiveOperationID is the operation that works on the resource, or empty.
	ProvisioningState hub.ProvisioningState
	ActiveOperationID string
	// Fleet is the state that Cluster Service last reported.
	Fleet FleetState
}

// SortKey returns the key by which summaries are ordered, byte by byte.
func (p DesiredSummary) SortKey() string { return p.Key.lower() }

// unreadable replaces the operation ID of a document that cannot be decoded.
const unreadable = "unreadable"

// summarizedKinds selects the kinds of documents that have summaries.
const summarizedKinds = "(c.kind = 'cluster' OR c.kind = 'nodePool' OR c.kind = 'externalAuth')"

// DesiredSummaries returns the summaries of a subscription whose sort key is greater than after, in order, at most
// limit of them.
func (db *DB) DesiredSummaries(ctx context.Context, subscriptionID, after string, limit int) ([]DesiredSummary, error) {
	const query = "SELECT c.kind, c.partitionKey, c.resourceId, c.properties.uid, c.properties.clusterUid, c.properties.generation, " +
		"c.properties.provisioningState, c.properties.activeOperationId, c.properties.fleet " +
		"FROM c WHERE " + summarizedKinds + " AND c.key > @after AND NOT IS_DEFINED(c.deletionTimestamp) ORDER BY c.key"
	documents, err := db.queryDocuments(ctx, strings.ToLower(subscriptionID), query,
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
			// A document that cannot be decoded must not hide the others. Its summary has an active operation, so that
			// reconciliation skips it.
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

// SubscriptionsWithClusters returns the subscriptions that have a cluster, in lower case and sorted like the resource
// IDs of their clusters. It reads all partitions; see ActiveOperations.
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
	// The slash makes the order that of the resource IDs.
	slices.SortFunc(subscriptions, func(a, b string) int { return strings.Compare(a+"/", b+"/") })
	return subscriptions, nil
}

// FindDeletionProof returns a description of a stored proof that an incarnation of a resource was deleted, or an empty
// string. Proofs are the tombstone of the resource, and the operation that deleted the resource or its cluster, or the
// end of their billing. They are kept for a day, for a week, and forever.
func (db *DB) FindDeletionProof(ctx context.Context, kind Kind, key Key, uid, clusterUID string) (proof string, err error) {
	document, err := db.readDocument(ctx, key.SubscriptionID, documentID(kind, key))
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
		operations, err := db.queryDocuments(ctx, key.SubscriptionID, query, []azcosmos.QueryParameter{
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

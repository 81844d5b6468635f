package database

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// BillingDocument is the billable time of one incarnation of a cluster, in the container Billing: from the creation of
// the resource until the cluster was gone. It is written when the cluster is Succeeded for the first time, and never
// removed. Billing systems read the container, so the names and forms of the fields are a contract. For a cluster that was
// never Succeeded both times are equal.
type BillingDocument struct {
	// ID is the UID of the incarnation.
	ID string `json:"id"`
	// SubscriptionID in lower case. It is the partition key.
	SubscriptionID string `json:"subscriptionId"`
	ResourceID     string `json:"resourceId"`
	Location       string `json:"location"`
	TenantID       string `json:"tenantId,omitempty"`
	// ManagedResourceGroup is the ARM ID of the cluster's managed resource group in lower case.
	ManagedResourceGroup string `json:"managedResourceGroup,omitempty"`
	// CreationTime is systemData.createdAt of the resource.
	CreationTime time.Time  `json:"creationTime"`
	DeletionTime *time.Time `json:"deletionTime,omitempty"`
}

// BeginBilling records that a cluster is billed from its creation, or from the given time if its document does not have the
// time of its creation. It is idempotent: the first recorded time counts, and it does nothing after EndBilling.
func (db *DB) BeginBilling(ctx context.Context, key Key, cluster *ClusterDocument, at time.Time) error {
	if data := cluster.Cluster.SystemData; data != nil && data.CreatedAt != nil {
		at = data.CreatedAt.UTC()
	}
	if err := db.createBilling(ctx, key, cluster, at, nil); err != nil {
		return failure(err, "beginning the billing of %s", cluster.Cluster.ID)
	}
	return nil
}

func (db *DB) createBilling(ctx context.Context, key Key, cluster *ClusterDocument, from time.Time, to *time.Time) error {
	body, err := json.Marshal(BillingDocument{
		ID: cluster.UID, SubscriptionID: strings.ToLower(key.SubscriptionID), ResourceID: cluster.Cluster.ID,
		Location: cluster.Cluster.Location, TenantID: cluster.TenantID, ManagedResourceGroup: managedResourceGroupID(key, cluster), CreationTime: from, DeletionTime: to,
	})
	if err != nil {
		return err
	}
	return db.connection.do(ctx, func(ctx context.Context, client *client) error {
		_, err := client.billing.CreateItem(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(key.SubscriptionID)), body, nil)
		return ignoreExists(err)
	})
}

// managedResourceGroupID returns the ARM ID of a cluster's managed resource group in lower case, or the empty string.
func managedResourceGroupID(key Key, cluster *ClusterDocument) string {
	group := cluster.Cluster.Properties.Platform.ManagedResourceGroup
	if group == "" {
		return ""
	}
	return strings.ToLower("/subscriptions/" + key.SubscriptionID + "/resourceGroups/" + group)
}

// EndBilling records that a cluster was gone at a time. It is idempotent: the first recorded time counts. For a cluster
// that never became usable it creates a record without duration, so that a late BeginBilling cannot start billing that
// nothing would end.
func (db *DB) EndBilling(ctx context.Context, key Key, cluster *ClusterDocument, at time.Time) error {
	err := Retry(ctx, func(ctx context.Context) error {
		document, etag, err := db.readBilling(ctx, key.SubscriptionID, cluster.UID)
		switch {
		case err != nil || document != nil && document["deletionTime"] != nil:
			return err
		case document == nil:
			if err := db.createBilling(ctx, key, cluster, at, &at); err != nil {
				return err
			}
			// BeginBilling may have created it just now; then it is ended like any other.
			if document, etag, err = db.readBilling(ctx, key.SubscriptionID, cluster.UID); err != nil || document == nil || document["deletionTime"] != nil {
				return err
			}
		}
		// The clock of the replica that recorded the beginning may be ahead of this one; the end is never before the
		// beginning. A beginning that cannot be decoded must not prevent the end.
		var begun time.Time
		_ = json.Unmarshal(document["creationTime"], &begun)
		if document["deletionTime"], err = json.Marshal(later(begun, at)); err != nil {
			return err
		}
		body, err := json.Marshal(document)
		if err != nil {
			return err
		}
		err = db.connection.do(ctx, func(ctx context.Context, client *client) error {
			_, err := client.billing.ReplaceItem(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(key.SubscriptionID)), cluster.UID, body, &azcosmos.ItemOptions{IfMatchEtag: &etag})
			return err
		})
		if statusOf(err) == http.StatusPreconditionFailed {
			// Another replica has ended it, or this one has and lost the response.
			return &WriteConflict{Kind: "billing", Key: key}
		}
		return err
	})
	if err != nil {
		return failure(err, "ending the billing of %s", key.ResourceID)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Billing returns the billing record of an incarnation, or nil if there is none.
func (db *DB) Billing(ctx context.Context, subscriptionID, uid string) (*BillingDocument, error) {
	fields, _, err := db.readBilling(ctx, subscriptionID, uid)
	if err != nil || fields == nil {
		return nil, err
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	var document BillingDocument
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("decoding the billing of %s: %w", uid, err)
	}
	return &document, nil
}

func (db *DB) readBilling(ctx context.Context, subscriptionID, uid string) (map[string]json.RawMessage, azcore.ETag, error) {
	var response azcosmos.ItemResponse
	err := db.connection.do(ctx, func(ctx context.Context, client *client) error {
		var err error
		response, err = client.billing.ReadItem(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(subscriptionID)), uid, nil)
		return err
	})
	if statusOf(err) == http.StatusNotFound {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", failure(err, "reading the billing of %s", uid)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(response.Value, &fields); err != nil {
		return nil, "", fmt.Errorf("decoding the billing of %s: %w", uid, err)
	}
	for _, name := range systemFields {
		delete(fields, name)
	}
	return fields, response.ETag, nil
}

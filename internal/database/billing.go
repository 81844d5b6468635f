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

// BillingDocument is one billable life of a cluster, in the container Billing: from when it first could be used until it
// was gone. It is never removed. Whoever bills reads the container, so the field names are a contract. One that could never
// be used has a life of no length.
type BillingDocument struct {
	// ID is the uid of the incarnation.
	ID string `json:"id"`
	// SubscriptionID in lower case is the partition key.
	SubscriptionID string     `json:"subscriptionId"`
	ResourceID     string     `json:"resourceId"`
	Location       string     `json:"location"`
	TenantID       string     `json:"tenantId,omitempty"`
	CreationTime   time.Time  `json:"creationTime"`
	DeletionTime   *time.Time `json:"deletionTime,omitempty"`
}

// BeginBilling notes that a cluster can be used from at on, unless that has been noted, or that it is gone. It is
// idempotent: the first time counts.
func (db *DB) BeginBilling(ctx context.Context, key Key, cluster *ClusterDocument, at time.Time) error {
	if err := db.createBilling(ctx, key, cluster, at, nil); err != nil {
		return failure(err, "beginning the billing of %s", cluster.Cluster.ID)
	}
	return nil
}

func (db *DB) createBilling(ctx context.Context, key Key, cluster *ClusterDocument, from time.Time, to *time.Time) error {
	body, err := json.Marshal(BillingDocument{
		ID: cluster.UID, SubscriptionID: strings.ToLower(key.SubscriptionID), ResourceID: cluster.Cluster.ID,
		Location: cluster.Cluster.Location, TenantID: cluster.TenantID, CreationTime: from, DeletionTime: to,
	})
	if err != nil {
		return err
	}
	return db.connection.do(ctx, func(ctx context.Context, client *client) error {
		_, err := client.billing.CreateItem(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(key.SubscriptionID)), body, nil)
		return existsIsFine(err)
	})
}

// EndBilling notes that a cluster is gone since at, unless that has been noted. One that never could be used gets a life of
// no length: whoever is late to note that it could finds it ended, and cannot begin one that nobody would end.
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
			// It may have been begun just now: then it is to be ended like any other.
			if document, etag, err = db.readBilling(ctx, key.SubscriptionID, cluster.UID); err != nil || document == nil || document["deletionTime"] != nil {
				return err
			}
		}
		// The clock of the replica that noted the beginning may be ahead of this one's: no life is shorter than none. A beginning that
		// cannot be read must not keep the cluster from ending.
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
			// Another has ended it, or this replica has and did not hear so.
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

// Billing reads what has been noted of an incarnation; nil when nothing has.
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

package database

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// FindClusters calls each for every live cluster, of all subscriptions, whose uid or name a text is, in no order. It reads
// all partitions: it is for people who look for something.
func (db *DB) FindClusters(ctx context.Context, text string, each func(*Item[ClusterDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.deletionTimestamp) AND " +
		"(STRINGEQUALS(c.properties.uid, @text, true) OR STRINGEQUALS(c.properties.cluster.name, @text, true))"
	return everywhere(ctx, db.clusters, query, each, azcosmos.QueryParameter{Name: "@text", Value: text})
}

// OperationsBeneath calls each for every operation that is kept, ended or not, of a resource and of what is below it, in no
// order.
func (db *DB) OperationsBeneath(ctx context.Context, key Key, each func(*Item[OperationDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.deletionTimestamp) AND " +
		"(STRINGEQUALS(c.properties.resourceId, @id, true) OR STARTSWITH(c.properties.resourceId, @prefix, true))"
	parameters := []azcosmos.QueryParameter{
		{Name: "@kind", Value: string(OperationKind)}, {Name: "@id", Value: key.ResourceID}, {Name: "@prefix", Value: key.ResourceID + "/"},
	}
	return db.pages(ctx, azcosmos.NewPartitionKeyString(strings.ToLower(key.SubscriptionID)), query, parameters, func(document []byte) error {
		item, err := db.operations.decode(document)
		if err != nil {
			return err
		}
		return each(item)
	})
}

// FindOperation is the operation with an id, of any subscription; nil when there is none. It reads all partitions.
func (db *DB) FindOperation(ctx context.Context, id string) (*Item[OperationDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.id = @id AND NOT IS_DEFINED(c.deletionTimestamp)"
	var found *Item[OperationDocument]
	err := everywhere(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		found = item
		return nil
	}, azcosmos.QueryParameter{Name: "@id", Value: strings.ToLower(id)})
	return found, err
}

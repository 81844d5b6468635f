package database

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// ClusterByUID is the live cluster with a uid, of any subscription; nil when there is none. It asks all partitions, each of
// which has an index of uids: it is for people who look for something.
func (db *DB) ClusterByUID(ctx context.Context, uid string) (*Item[ClusterDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.uid = @uid AND NOT IS_DEFINED(c.deletionTimestamp)"
	var found *Item[ClusterDocument]
	err := forEachDocument(ctx, db.clusters, query, func(item *Item[ClusterDocument]) error {
		found = item
		return nil
	}, azcosmos.QueryParameter{Name: "@uid", Value: strings.ToLower(uid)})
	return found, err
}

// ClustersByName calls each for every live cluster, of all subscriptions, with a name in any casing, in no order. It asks all
// partitions, as ClusterByUID does.
func (db *DB) ClustersByName(ctx context.Context, name string, each func(*Item[ClusterDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND STRINGEQUALS(c.properties.cluster.name, @name, true) AND NOT IS_DEFINED(c.deletionTimestamp)"
	return forEachDocument(ctx, db.clusters, query, each, azcosmos.QueryParameter{Name: "@name", Value: name})
}

// ResourceOperations calls each for every operation that is kept, ended or not, of a resource and of what is below it, in no
// order.
func (db *DB) ResourceOperations(ctx context.Context, key Key, each func(*Item[OperationDocument]) error) error {
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

// OperationByID is the operation with an id, of any subscription; nil when there is none. It reads all partitions.
func (db *DB) OperationByID(ctx context.Context, id string) (*Item[OperationDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.id = @id AND NOT IS_DEFINED(c.deletionTimestamp)"
	var found *Item[OperationDocument]
	err := forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		found = item
		return nil
	}, azcosmos.QueryParameter{Name: "@id", Value: strings.ToLower(id)})
	return found, err
}

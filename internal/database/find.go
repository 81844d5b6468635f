package database

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// ClusterByUID returns the cluster with a UID in any subscription, or nil. It queries all partitions, each of which has
// an index of UIDs. Use it only for requests of people.
func (db *DB) ClusterByUID(ctx context.Context, uid string) (*Item[ClusterDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.properties.uid = @uid AND NOT IS_DEFINED(c.deletionTimestamp)"
	var found *Item[ClusterDocument]
	err := forEachDocument(ctx, db.clusters, query, func(item *Item[ClusterDocument]) error {
		found = item
		return nil
	}, azcosmos.QueryParameter{Name: "@uid", Value: strings.ToLower(uid)})
	return found, err
}

// ClustersByName calls each for every cluster with a name, in any casing and any subscription, in no order. It queries
// all partitions; see ClusterByUID.
func (db *DB) ClustersByName(ctx context.Context, name string, each func(*Item[ClusterDocument]) error) error {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND STRINGEQUALS(c.properties.cluster.name, @name, true) AND NOT IS_DEFINED(c.deletionTimestamp)"
	return forEachDocument(ctx, db.clusters, query, each, azcosmos.QueryParameter{Name: "@name", Value: name})
}

// ResourceOperations calls each for every stored operation of a resource and its children, in no order.
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

// OperationByID returns the operation with an ID in any subscription, or nil. It queries all partitions; see
// ClusterByUID.
func (db *DB) OperationByID(ctx context.Context, id string) (*Item[OperationDocument], error) {
	const query = "SELECT * FROM c WHERE c.kind = @kind AND c.id = @id AND NOT IS_DEFINED(c.deletionTimestamp)"
	var found *Item[OperationDocument]
	err := forEachDocument(ctx, db.operations, query, func(item *Item[OperationDocument]) error {
		found = item
		return nil
	}, azcosmos.QueryParameter{Name: "@id", Value: strings.ToLower(id)})
	return found, err
}

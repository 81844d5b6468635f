package database

import (
	"context"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// EnsureSchema creates the database and its containers if they do not exist. It is idempotent, may run in several
// processes at once, and changes nothing that exists. It tries once within the retry budget; callers that start before
// Cosmos DB repeat it until it succeeds.
func (db *DB) EnsureSchema(ctx context.Context) error {
	err := db.connection.do(ctx, func(ctx context.Context, c *client) error {
		_, err := c.account.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: databaseName}, nil)
		return ignoreExists(err)
	})
	if err != nil {
		return failure(err, "creating the database %s", databaseName)
	}
	// By default documents are kept forever; each may set its own TTL.
	keep := int32(-1)
	for _, container := range []struct{ name, path string }{
		{resourcesContainer, "/partitionKey"},
		{billingContainer, "/subscriptionId"},
		{leasesContainer, "/group"},
	} {
		err := db.connection.do(ctx, func(ctx context.Context, c *client) error {
			_, err := c.database.CreateContainer(ctx, azcosmos.ContainerProperties{
				ID:                     container.name,
				PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{container.path}, Kind: azcosmos.PartitionKeyKindHash, Version: 2},
				DefaultTimeToLive:      &keep,
			}, nil)
			return ignoreExists(err)
		})
		if err != nil {
			return failure(err, "creating the container %s", container.name)
		}
	}
	return nil
}

func ignoreExists(err error) error {
	if statusOf(err) == http.StatusConflict {
		return nil
	}
	return err
}

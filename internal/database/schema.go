package database

import (
	"context"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// DatabaseName is the name of the database in the account.
const DatabaseName = databaseName

// Containers returns the properties of the containers, in the form of the data plane's API. The infrastructure of a region creates
// them: services authenticate with tokens, which cannot.
func Containers() []azcosmos.ContainerProperties {
	// By default documents are kept forever; each may set its own TTL.
	keep := int32(-1)
	var all []azcosmos.ContainerProperties
	for _, container := range []struct{ name, path string }{
		{resourcesContainer, "/partitionKey"},
		{adminContainer, "/partitionKey"},
		{billingContainer, "/subscriptionId"},
		{leasesContainer, "/group"},
		{journalContainer, "/group"},
		{sessionsContainer, "/partitionKey"},
		{accessSessionsContainer, "/partitionKey"},
		{egressLinksContainer, "/partitionKey"},
	} {
		all = append(all, azcosmos.ContainerProperties{
			ID:                     container.name,
			PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{container.path}, Kind: azcosmos.PartitionKeyKindHash, Version: 2},
			DefaultTimeToLive:      &keep,
		})
	}
	return all
}

// CheckSchema returns an error unless all containers exist and this process may read their properties. It tries once within the
// retry budget; callers that start before Cosmos DB repeat it until it succeeds.
func (db *DB) CheckSchema(ctx context.Context) error {
	for _, properties := range Containers() {
		err := db.connection.do(ctx, func(ctx context.Context, c *client) error {
			container, err := c.database.NewContainer(properties.ID)
			if err == nil {
				_, err = container.Read(ctx, nil)
			}
			return err
		})
		if err != nil {
			return failure(err, "reading the properties of the container %s", properties.ID)
		}
	}
	return nil
}

// EnsureSchema creates the database and its containers if they do not exist, with the account's key. It is for tests: services have
// no key. It is idempotent, may run in several processes at once, and changes nothing that exists.
func (db *DB) EnsureSchema(ctx context.Context) error {
	err := db.connection.do(ctx, func(ctx context.Context, c *client) error {
		_, err := c.account.CreateDatabase(ctx, azcosmos.DatabaseProperties{ID: databaseName}, nil)
		return ignoreExists(err)
	})
	if err != nil {
		return failure(err, "creating the database %s", databaseName)
	}
	for _, properties := range Containers() {
		err := db.connection.do(ctx, func(ctx context.Context, c *client) error {
			_, err := c.database.CreateContainer(ctx, properties, nil)
			return ignoreExists(err)
		})
		if err != nil {
			return failure(err, "creating the container %s", properties.ID)
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

// Role is what one service may do with the data. The infrastructure of a region creates a custom role definition of Cosmos DB for
// each grant and assigns it to the service's identity at the grant's container.
type Role struct {
	// Service is frontend, backend, admin, monitor, gateway-access or gateway-egress.
	Service string
	Grants  []Grant
}

// Grant is a list of data actions in one container.
type Grant struct {
	// Container is empty for the account.
	Container   string
	DataActions []string
}

// The data actions of Cosmos DB for NoSQL that services need. Writes are creations and replacements in batches: nothing deletes or
// upserts items.
const (
	readMetadata = "Microsoft.DocumentDB/databaseAccounts/readMetadata"

	containerActions = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers/"
	executeQuery     = containerActions + "executeQuery"
	readChangeFeed   = containerActions + "readChangeFeed"
	createItems      = containerActions + "items/create"
	readItems        = containerActions + "items/read"
	replaceItems     = containerActions + "items/replace"
)

// Roles returns the rights of each service. The frontend has none in Admin, so that whoever has its identity can neither read nor
// request actions of SREs. admin reads customers' resources and cannot change them.
func Roles() []Role {
	metadata := Grant{"", []string{readMetadata}}
	return []Role{
		{"frontend", []Grant{metadata,
			{resourcesContainer, []string{createItems, readItems, replaceItems, executeQuery}},
		}},
		{"backend", []Grant{metadata,
			{resourcesContainer, []string{createItems, readItems, replaceItems, executeQuery, readChangeFeed}},
			// The backend creates documents in Admin only when it moves those of earlier releases.
			{adminContainer, []string{createItems, readItems, replaceItems, executeQuery, readChangeFeed}},
			{billingContainer, []string{createItems, readItems, replaceItems}},
			{leasesContainer, []string{createItems, replaceItems, executeQuery}},
			// The query finds the links of a cluster that is being deleted.
			{egressLinksContainer, []string{createItems, readItems, replaceItems, executeQuery}},
			// The backend completes and ends sessions for management clusters, and creates none.
			{accessSessionsContainer, []string{readItems, replaceItems, executeQuery}},
		}},
		{"admin", []Grant{metadata,
			{resourcesContainer, []string{readItems, executeQuery, readChangeFeed}},
			{adminContainer, []string{createItems, readItems, replaceItems, executeQuery, readChangeFeed}},
			{billingContainer, []string{readItems}},
			{journalContainer, []string{executeQuery}},
			{sessionsContainer, []string{createItems, readItems, replaceItems, readChangeFeed}},
			{accessSessionsContainer, []string{createItems, readItems, replaceItems, executeQuery, readChangeFeed}},
			// Admin signs the intents of links again with its present key.
			{egressLinksContainer, []string{readItems, replaceItems, executeQuery}},
		}},
		{"monitor", []Grant{metadata,
			// The leases of all services are in one container, and Cosmos DB has no rights for a part of it.
			{leasesContainer, []string{createItems, replaceItems, executeQuery}},
			{journalContainer, []string{createItems, readItems, replaceItems, executeQuery}},
		}},
		// The session gateway creates descriptions of recordings. Only admin creates sessions, for engineers with an active elevation.
		{"gateway-access", []Grant{metadata,
			{accessSessionsContainer, []string{createItems, readItems, replaceItems, executeQuery, readChangeFeed}},
		}},
		// The egress gateway serves networks of customers, so it reads its links and nothing else, and writes nothing.
		{"gateway-egress", []Grant{metadata,
			{egressLinksContainer, []string{executeQuery, readChangeFeed}},
		}},
	}
}

// Scope returns the scope of a grant's role assignment, relative to the account.
func (g Grant) Scope() string {
	if g.Container == "" {
		return "/"
	}
	return fmt.Sprintf("/dbs/%s/colls/%s", databaseName, g.Container)
}

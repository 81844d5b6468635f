package values

import "maps"

// The values of the key databaseAuthentication and of the programs' flag.
const (
	withCertificate = "certificate"
	withEntra       = "entra"
)

// migration returns the job of the command `migrate`, which logs in as the owner of the database.
func (c *computation) migration() *DatabaseJob {
	job := &DatabaseJob{Identity: c.identity("migrationIdentity"), Flags: c.databaseFlags("databaseOwnerUrl")}
	job.Flags["grant-to"] = c.own("databaseRole")
	if c.own("databaseAuthentication") == withCertificate {
		job.Identity.Secret = string(c.workload.Peer) + "-migration-identity"
	}
	return job
}

// provision returns the job of the command `provision`, which logs in as the administrator of the server. It returns nil for a server that
// authenticates certificates: the program that starts such a server creates its roles.
func (c *computation) provision() *DatabaseJob {
	if c.own("databaseAuthentication") != withEntra {
		return nil
	}
	job := &DatabaseJob{Identity: c.identity("provisionIdentity"), Flags: c.databaseFlags("databaseAdministratorUrl")}
	maps.Copy(job.Flags, map[string]string{
		"database-name": c.text("postgres", c.workload.Key[0], "database"),
		"owner":         c.own("databaseOwnerRole"), "owner-object-id": c.object("migrationIdentity"),
		"runtime": c.own("databaseRole"), "runtime-object-id": c.object("managedIdentity"),
	})
	return job
}

// databaseFlags returns the flags with which a job logs in to the URL in a key.
func (c *computation) databaseFlags(key string) map[string]string {
	return map[string]string{"database-url": c.own(key), "database-authentication": c.own("databaseAuthentication"), "database-audience": c.text("endpoints", "postgresAudience")}
}

// object returns the object ID of the managed identity with the name in a key.
func (c *computation) object(key string) string {
	name := c.own(key)
	id := c.target.ObjectIDs[name]
	if id == "" {
		c.fail("the object ID of the managed identity %s is missing", name)
	}
	return id
}

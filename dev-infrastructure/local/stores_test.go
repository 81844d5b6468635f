package local

import (
	"os"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
)

// TestStoresAcceptOnlyTheirClients connects to the stores of a region with the identity of each workload.
func TestStoresAcceptOnlyTheirClients(t *testing.T) {
	ctx := testContext(t)
	region, err := Start(ctx, thirdParties(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	t.Run("PostgreSQL", func(t *testing.T) { testDatabaseClients(t, region) })
}

// testDatabaseClients tries each role of each database with each certificate.
func testDatabaseClients(t *testing.T, region *Region) {
	identities := region.Endpoints().Identities
	for _, database := range serviceDatabases() {
		for file, role := range map[string]string{
			region.databaseURLFile(database.Name): database.Runtime.Certificate, region.ownerURLFile(database.Name): database.Owner.Certificate,
		} {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			url := strings.TrimSpace(string(text))
			ping := func(authentication postgres.Authentication) error {
				pool, err := postgres.Open(t.Context(), postgres.Options{URL: url, Application: "test", MaxConnections: 1, Authentication: authentication})
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				return pool.Ping(t.Context())
			}
			const refused = "28000"
			if err := ping(postgres.Authentication{}); postgres.Code(err) != refused {
				t.Errorf("%s without a certificate: %v", url, err)
			}
			for name, dir := range identities {
				identity, err := mesh.LoadIdentity(dir)
				if err != nil {
					t.Fatal(err)
				}
				err = ping(postgres.Authentication{TLS: identity.ClientTLS(mesh.PostgreSQL)})
				switch allowed := string(identity.ID().Peer) == role; {
				case allowed && err != nil:
					t.Errorf("%s with the identity of %s: %v", url, name, err)
				case !allowed && postgres.Code(err) != refused:
					t.Errorf("%s with the identity of %s: %v, want SQLSTATE %s", url, name, err, refused)
				}
			}
		}
	}
}

package installation_test

import (
	"fmt"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// outsideHosts are the names of the services outside of the cluster.
func outsideHosts(t *testing.T, target values.Target) []string {
	t.Helper()
	return must.Get(installation.Hosts(target))(t)
}

// postgresHosts are the names of the flexible servers.
func postgresHosts(t *testing.T, target values.Target) []string {
	t.Helper()
	return must.Get(installation.PostgresHosts(target))(t)
}

// startBroker serves MQTT on the machine, and in the cluster under the name of the Event Grid namespace. It returns the address on the
// machine.
func (r *region) startBroker() (address string) {
	r.t.Helper()
	address = must.Get(r.outside.StartBroker(r.ctx))(r.t)
	return address
}

// startEntra starts Entra ID, Azure Resource Manager and the ticket system. Services get tokens after its AddWorkloads.
func (r *region) startEntra() *installation.Entra {
	r.t.Helper()
	e := must.Get(r.outside.StartEntra(r.ctx))(r.t)
	must.Do(r.t, r.outside.StartTickets(r.ctx))
	return e
}

// addWorkloads gives Entra ID the identities of the services.
func (r *region) addWorkloads() {
	r.t.Helper()
	must.Do(r.t, r.entra.AddWorkloads())
}

// startCosmos serves the Cosmos DB account.
func (r *region) startCosmos() {
	r.t.Helper()
	must.Do(r.t, r.outside.StartCosmos(r.ctx, r.entra))
}

// forwardPod forwards the connections of a port of the machine to a port of a ready pod with a label, and returns the address.
func (r *region) forwardPod(namespace, label, port string) string {
	r.t.Helper()
	return must.Get(r.outside.ForwardPod(namespace, label, port))(r.t)
}

// armClientID returns the client ID of ARM, and armSecretFile the file of its secret.
func (r *region) armClientID() string {
	return fmt.Sprint(r.target.Configuration.Get("frontend", "authentication", "clientIds").Items[0].Value)
}

func (r *region) armSecretFile() string { return r.outside.ARMSecretFile() }

// engineerClientID returns the client ID of the program with which engineers call admin, and engineerSecretFile the file with the secret of
// the engineer with a role.
func (r *region) engineerClientID() string {
	return fmt.Sprint(r.target.Configuration.Get("admin", "authentication", "clientIds").Items[0].Value)
}

func (r *region) engineerSecretFile(role string) string { return r.outside.EngineerSecretFile(role) }

// catalogue returns the releases of the update graph.
func (r *region) catalogue() *release.Catalog {
	r.t.Helper()
	return must.Get(release.Load(""))(r.t)
}

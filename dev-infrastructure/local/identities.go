package local

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// tenantID is the Entra tenant of the region's customer.
const tenantID = "0c5b6e2c-2f6a-4c57-9d21-7a6f3c1d8e40"

// identity is the certificate folder of a workload.
type identity struct {
	name  string
	peer  mesh.Peer
	hosts []string
}

// identities returns the identities that the region issues. An agent's certificate contains its consumer's name as a
// DNS name, because the broker identifies its clients by it, as Event Grid does.
func (r *Region) identities() []identity {
	loopback := []string{"127.0.0.1", "localhost"}
	identities := []identity{
		{"arm-frontdoor", mesh.ARMFrontDoor, loopback},
		{"frontend", mesh.Frontend, loopback},
		{"backend", mesh.Backend, nil},
		{"admin", mesh.Admin, loopback},
		{"monitor", mesh.Monitor, nil},
		{"gateway-access", mesh.GatewayAccess, loopback},
		{"cluster-service", mesh.ClusterService, loopback},
		{"maestro-server", mesh.MaestroServer, append([]string{"maestro-server"}, loopback...)},
		{"cosmos-emulator", mesh.CosmosEmulator, loopback},
		{"eventgrid-emulator", mesh.EventGridEmulator, loopback},
		{"azure-emulator", mesh.AzureEmulator, loopback},
		{"update-graph", mesh.UpdateGraph, loopback},
		{"hcpctl", mesh.Hcpctl, nil},
		{"postgres", mesh.PostgreSQL, loopback},
		{string(mesh.ClusterServiceMigration), mesh.ClusterServiceMigration, nil},
		{string(mesh.MaestroMigration), mesh.MaestroMigration, nil},
	}
	for _, m := range r.clusters {
		identities = append(identities,
			identity{m.agentName(), mesh.MaestroAgent, []string{m.name}},
			identity{m.name + "-hypershift", mesh.Hypershift, nil})
	}
	return identities
}

func (r *Region) identityDir(name string) string { return r.state.path("identities", name) }

// issueIdentities creates the region's authorities and keys if necessary, and issues all certificates at each start.
func (r *Region) issueIdentities() error {
	for i, name := range r.state.record.ManagementClusters {
		r.clusters = append(r.clusters, &managementCluster{name: name, index: i})
	}
	if err := r.issueKubernetes(); err != nil {
		return err
	}
	if err := r.issueEgress(); err != nil {
		return fmt.Errorf("issuing the certificates of the egress proxies: %w", err)
	}
	if err := r.issueAll(); err != nil {
		return err
	}
	// Regions of earlier releases had a key of the Cosmos DB account.
	if err := os.Remove(r.state.path("secrets", "cosmos.key")); err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, file := range []string{r.skipTokenKeyFile(), r.credentialKeyFile()} {
		if err := seal.Create(file); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(r.shardKeysDir(), 0o700); err != nil {
		return err
	}
	for _, shard := range slices.Concat(r.state.record.ManagementClusters, r.config.ShardKeys) {
		if err := seal.CreatePair(r.agentKeyFile(shard), filepath.Join(r.shardKeysDir(), shard+".json")); err != nil {
			return err
		}
	}
	if err := seal.CreatePair(r.gatewayKeyFile(), r.gatewayPublicKeyFile()); err != nil {
		return err
	}
	if err := r.createRecordings(); err != nil {
		return err
	}
	if err := intent.CreateKeys(r.intentKeyFile()); err != nil {
		return err
	}
	if err := keyfile.WritePublic(r.intentKeyFile(), r.intentPublicKeyFile()); err != nil {
		return err
	}
	if err := r.createAudit(); err != nil {
		return err
	}
	if err := r.signReleases(); err != nil {
		return err
	}
	if err := r.createCredentials(); err != nil {
		return err
	}
	return r.createEngineers()
}

// signingKeysFile returns the file of the keyset with which Cluster Service seals signing keys. Cluster Service creates it.
func (r *Region) signingKeysFile() string { return r.state.path("secrets", "cluster-service.key") }

// skipTokenKeyFile returns the file of the keyset with which the frontend seals skip tokens.
func (r *Region) skipTokenKeyFile() string { return r.state.path("secrets", "skip-token.key") }

// credentialKeyFile returns the file of the keyset with which the frontend seals private keys of admin credentials.
func (r *Region) credentialKeyFile() string { return r.state.path("secrets", "credential.key") }

// agentKeyFile returns the file of the private keyset with which an agent opens Secrets.
func (r *Region) agentKeyFile(managementCluster string) string {
	return r.state.path("secrets", managementCluster+"-maestro-agent.key")
}

// gatewayKeyFile returns the file of the private keyset with which the session gateway opens the keys of sessions, and
// gatewayPublicKeyFile that of the public keyset with which admin seals them.
func (r *Region) gatewayKeyFile() string { return r.state.path("secrets", "gateway-access.key") }

func (r *Region) gatewayPublicKeyFile() string {
	return r.state.path("front-door", "gateway-access.json")
}

// shardKeysDir returns the folder of the public keysets of the agents, for which Cluster Service seals Secrets.
func (r *Region) shardKeysDir() string { return r.state.path("shard-keys") }

// intentKeyFile returns the file of the keyset with which admin signs what engineers ask for.
func (r *Region) intentKeyFile() string { return r.state.path("secrets", "intent.key") }

// intentPublicKeyFile returns the file of the public keyset that belongs to it, for the agents of tunnels and the egress gateway.
func (r *Region) intentPublicKeyFile() string { return r.state.path("front-door", "intent.json") }

// Credentials are the OAuth 2.0 client credentials with which a client gets ARM tokens from the front door.
type Credentials struct {
	TenantID     string `json:"tenantId"`
	ClientID     string `json:"clientId"`
	ClientSecret string `json:"clientSecret"`
	// ObjectID and Name identify the caller to the resource provider.
	ObjectID string `json:"objectId"`
	Name     string `json:"name"`
	// Groups are the groups in its tokens.
	Groups []string `json:"groups,omitempty"`
}

func (r *Region) credentialsFile() string { return r.state.path("front-door", "credentials.json") }

// armCredentialsFile returns the file with the credentials of ARM, which the front door implements, at the resource
// provider.
func (r *Region) armCredentialsFile() string { return r.state.path("front-door", "arm.json") }

// developersGroup is the group of the region's customer. As in Entra, tokens contain the ID of the group.
const developersGroup = "b7d0f4c2-1f5e-4c55-9d0b-2a6c3e8f7d41"

const (
	// customerObjectID and serviceObjectID are the principals of the region's customer and of Cluster Service in Azure.
	customerObjectID = "4f2f6d57-7f0c-45b5-8a26-93c1a3f3a6d2"
	serviceObjectID  = "d7c0b9a1-6f3e-4f7a-8b21-0c9e5d4a3b12"
	// providerTenantID is the tenant of the resource provider and of ARM's principal.
	providerTenantID = "5f0c9a3e-77b1-4d3f-9a55-2f2d1f7f6f10"
	// armClientID is the application ID of ARM, the same in every cloud.
	armClientID = "797f4846-ba00-4fd7-ba43-dac1f8f63013"
	// providerAudience is the audience of ARM's tokens.
	providerAudience = "https://redhatopenshift.hcpmesh.local"
)

// serviceCredentialsFile returns the file with the credentials of Cluster Service in Azure.
func (r *Region) serviceCredentialsFile() string {
	return r.state.path("front-door", "cluster-service.json")
}

// createCredentials creates the credentials of the region's customer, of ARM and of Cluster Service, unless they exist.
func (r *Region) createCredentials() error {
	for path, client := range map[string]Credentials{
		r.credentialsFile(): {
			TenantID:     tenantID,
			ClientID:     "8a1f7d0e-5b0b-4d0a-a6c4-0f4c2f7f9b11",
			ClientSecret: rand.Text(),
			ObjectID:     customerObjectID,
			Name:         "developer@local",
			Groups:       []string{developersGroup},
		},
		r.armCredentialsFile(): {
			TenantID:     providerTenantID,
			ClientID:     armClientID,
			ClientSecret: rand.Text(),
			ObjectID:     "c1f9b1e0-3c0e-4d68-8d3c-9d4b6c0a7c02",
			Name:         "Azure Resource Manager",
		},
		r.serviceCredentialsFile(): {
			TenantID:     providerTenantID,
			ClientID:     "6c1a3f52-2a4e-4d0b-9f57-58c0a1d9e7b3",
			ClientSecret: rand.Text(),
			ObjectID:     serviceObjectID,
			Name:         "Cluster Service",
		},
	} {
		if _, err := os.Stat(path); err == nil {
			continue
		}
		data, err := json.MarshalIndent([]Credentials{client}, "", "  ")
		if err != nil {
			return err
		}
		if err := replaceFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

package local

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/golang-jwt/jwt/v5"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Workload is the identity of a service in Azure. The service exchanges the token in TokenFile for tokens of Entra ID, as with Azure
// workload identity. In AKS the kubelet writes the file; in the local region the region does.
type Workload struct {
	TenantID  string `json:"tenantId"`
	ClientID  string `json:"clientId"`
	TokenFile string `json:"tokenFile"`
}

const (
	// workloadIssuer is the issuer of the workloads' tokens, in place of the AKS cluster's.
	workloadIssuer = "https://workloads.hcpmesh.local"
	// storeAudience is the audience of tokens for the Cosmos DB account: clients derive it from their endpoint.
	storeAudience = "https://127.0.0.1"
)

// application is the identity of a workload: its application, its principal, and the audiences of its tokens.
type application struct {
	clientID, objectID string
	audiences          []string
}

// workloads are the services that use Cosmos DB or Azure with an identity.
var workloads = map[string]application{
	"frontend":       {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f01", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a01", []string{storeAudience}},
	"backend":        {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f02", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a02", []string{storeAudience}},
	"monitor":        {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f04", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a04", []string{storeAudience}},
	"admin":          {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f03", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a03", []string{storeAudience}},
	logForwarder:     {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f05", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a05", []string{"https://management.azure.com", "https://storage.azure.com"}},
	"gateway-access": {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f06", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a06", []string{storeAudience}},
	"gateway-egress": {"2f0b7b5e-64a4-4c0c-8b1e-7a3d5c9e1f07", "91d4c3a2-5b6e-4f70-8a91-0c2d4e6f8a07", []string{storeAudience}},
}

// workload returns the identity of a service in Azure.
func (r *Region) workload(name string) Workload {
	return Workload{TenantID: providerTenantID, ClientID: r.applications()[name].clientID, TokenFile: r.state.path("identities", name, "azure-identity-token")}
}

// withWorkload adds the environment that the webhook of Azure workload identity would set for a workload.
func (r *Region) withWorkload(spec supervisor.Spec, name string) supervisor.Spec {
	w := r.workload(name)
	spec.Env = append(spec.Env,
		"AZURE_TENANT_ID="+w.TenantID,
		"AZURE_CLIENT_ID="+w.ClientID,
		"AZURE_FEDERATED_TOKEN_FILE="+w.TokenFile,
		"AZURE_AUTHORITY_HOST=https://"+r.address(frontDoorPort)+"/",
	)
	return spec
}

func (r *Region) workloadKeyFile() string { return r.state.path("secrets", "workload-issuer.key") }

// workloadPublicKeyFile returns the file with the public key of workloadIssuer.
func (r *Region) workloadPublicKeyFile() string {
	return r.state.path("secrets", "workload-issuer.pub")
}

// workloadClientsFile returns the file with the applications of the workloads.
func (r *Region) workloadClientsFile() string { return r.state.path("front-door", "workloads.json") }

// issueWorkloadTokens writes a token for each workload, which is valid as long as the certificates, and the applications for which they may be exchanged.
func (r *Region) issueWorkloadTokens() error {
	key, err := openWorkloadKey(r.workloadKeyFile())
	if err != nil {
		return fmt.Errorf("opening the key of the workloads' issuer: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := replaceFile(r.workloadPublicKeyFile(), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644); err != nil {
		return err
	}
	clients := []map[string]any{}
	now := time.Now()
	for name, application := range r.applications() {
		subject := workloadSubject(name)
		text, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.RegisteredClaims{
			Issuer: workloadIssuer, Subject: subject, Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"},
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(r.config.certificateLifetime)),
		}).SignedString(key)
		if err != nil {
			return fmt.Errorf("signing the token of %s: %w", name, err)
		}
		// A workload without a certificate has no folder yet.
		if err := os.MkdirAll(r.identityDir(name), 0o700); err != nil {
			return err
		}
		if err := replaceFile(r.workload(name).TokenFile, []byte(text), 0o600); err != nil {
			return err
		}
		clients = append(clients, map[string]any{"tenantId": providerTenantID, "clientId": application.clientID, "objectId": application.objectID,
			"name": name, "workload": subject, "audiences": application.audiences})
	}
	// The SRE portal is an application of its own. admin authenticates as it with the token of its workload.
	clients = append(clients, map[string]any{"tenantId": providerTenantID, "clientId": portalClientID, "objectId": portalObjectID, "name": "the SRE portal",
		"workload": workloadSubject("admin"), "audiences": []string{adminAudience}, "redirectUris": []string{r.portalURL() + "/signed-in", r.portalURL() + "/signed-out"}})
	// hcpctl runs on the computers of engineers, so that it cannot keep a secret.
	clients = append(clients, map[string]any{"tenantId": providerTenantID, "clientId": adminClientID, "objectId": hcpctlObjectID, "name": "hcpctl",
		"public": true, "audiences": []string{adminAudience}, "redirectUris": []string{"http://127.0.0.1/signed-in"}})
	data, err := json.MarshalIndent(clients, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(r.workloadClientsFile(), data, 0o600)
}

// workloadSubject returns the subject of the tokens of a service.
func workloadSubject(name string) string { return "system:serviceaccount:hcpmesh:" + name }

// openWorkloadKey reads the key at path or creates it.
func openWorkloadKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			return nil, err
		}
		return key, replaceFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
	}
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s is not a PEM file", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func (r *Region) cosmosAccountFile() string { return r.state.path("cosmos-account.json") }

// writeCosmosAccount writes what the infrastructure of a region configures in its Cosmos DB account: the consistency level, the
// containers, and the rights of each service.
func (r *Region) writeCosmosAccount(context.Context) error {
	var definitions, assignments []any
	for _, role := range database.Roles() {
		for _, grant := range role.Grants {
			id := role.Service + grant.Scope()
			definitions = append(definitions, map[string]any{"id": id, "roleName": id, "assignableScopes": []string{grant.Scope()}, "dataActions": grant.DataActions})
			assignments = append(assignments, map[string]any{"roleDefinitionId": id, "principalId": workloads[role.Service].objectID, "scope": grant.Scope()})
		}
	}
	data, err := json.MarshalIndent(map[string]any{
		"name": "local", "tenant": providerTenantID, "consistencyLevel": database.ConsistencyLevel,
		"databases":       []any{map[string]any{"name": database.DatabaseName, "containers": database.Containers()}},
		"roleDefinitions": definitions, "roleAssignments": assignments,
	}, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(r.cosmosAccountFile(), data, 0o644)
}

// Credential returns the credential of a service for Cosmos DB. Tests and measurements use it to act as the service.
func (e *Endpoints) Credential(service string) (azcore.TokenCredential, error) {
	w, ok := e.Workloads[service]
	if !ok {
		return nil, fmt.Errorf("%s has no identity in Azure", service)
	}
	authorities, err := os.ReadFile(e.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	options := &azidentity.WorkloadIdentityCredentialOptions{TenantID: w.TenantID, ClientID: w.ClientID, TokenFilePath: w.TokenFile, DisableInstanceDiscovery: true}
	options.Cloud.ActiveDirectoryAuthorityHost = e.ARM + "/"
	options.Transport = &http.Client{Transport: transport}
	return azidentity.NewWorkloadIdentityCredential(options)
}

// OpenStore opens Cosmos DB with the credential of a service. The caller closes it.
func (e *Endpoints) OpenStore(ctx context.Context, service string) (*database.DB, error) {
	credential, err := e.Credential(service)
	if err != nil {
		return nil, err
	}
	return database.Open(ctx, database.Options{Endpoint: e.Cosmos, Credential: credential, CAFile: e.CAFile})
}

package installation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/entra"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// The api-versions of the resources that this package reads and writes.
const authorizationVersion, dnsVersion = "2022-04-01", "2018-05-01"

// Azure is the Azure of a region. The pipelines create the region's infrastructure in it, and Cluster Service the resources of clusters.
type Azure struct {
	*emulator.Emulator
	// Env is the environment of the programs that apply the infrastructure.
	Env      []string
	services *Outside
	entra    *Entra
	url      string
	client   *http.Client
}

// azure returns the names of Azure's services: Resource Manager, the vault of clusters' certificates and the accounts of Blob Storage.
func (r *settings) azure() []string {
	blobs := "." + r.text("endpoints", "blobSuffix")
	return []string{r.host("endpoints", "resourceManager"), r.text("keyVaults", "clusters") + "." + r.text("endpoints", "keyVaultSuffix"),
		r.text("oidc", "storageAccount") + blobs, r.text("audit", "sinkAccount") + blobs, r.text("audit", "witnessAccount") + blobs}
}

// regionGroup returns the resource group of the region.
func (r *settings) regionGroup() string {
	return "/subscriptions/" + r.text("subscriptions", "region") + "/resourceGroups/" + r.text("resourceGroups", "region")
}

// seed returns what the data planes need before the pipelines have created the resources. The IDs are those of the infrastructure.
func (r *settings) seed(pipelines string) emulator.Seed {
	seed := emulator.Seed{Vault: r.regionGroup() + "/providers/Microsoft.KeyVault/vaults/" + r.text("keyVaults", "clusters"),
		Issuers: []string{r.text("clusterService", "config", "azureResources", "certificateIssuer")},
		Roles:   []rbac.Role{{ID: rbac.CustomerRoleID, Name: rbac.CustomerRoleName, Actions: rbac.CustomerRoleActions()}}}
	for _, role := range []string{arm.OwnerRole, arm.VaultAdministratorRole, arm.BlobDataContributorRole} {
		seed.Assignments = append(seed.Assignments, arm.SeedAssignment{PrincipalID: pipelines, Role: role, Scope: "/"})
	}
	witnesses := "/subscriptions/" + r.text("subscriptions", "global") + "/resourceGroups/" + r.text("resourceGroups", "region") + "-witness"
	const accounts = "/providers/Microsoft.Storage/storageAccounts/"
	for _, c := range []struct{ group, account, container, access string }{
		{r.regionGroup(), r.text("oidc", "storageAccount"), r.text("oidc", "container"), "blob"},
		{r.regionGroup(), r.text("audit", "sinkAccount"), r.text("audit", "sinkContainer"), ""},
		{r.regionGroup(), r.text("audit", "sinkAccount"), r.text("gatewayAccess", "recordings", "container"), ""},
		{witnesses, r.text("audit", "witnessAccount"), r.text("audit", "witnessContainer"), ""},
	} {
		seed.Containers = append(seed.Containers, emulator.SeedContainer{Account: c.account, AccountID: c.group + accounts + c.account, Name: c.container, Access: c.access})
	}
	return seed
}

// StartAzure serves Resource Manager, the vault of clusters' certificates and Blob Storage under their names. The networks and identities of
// customers exist when they are first requested.
func (s *Outside) StartAzure(ctx context.Context, e *Entra) (*Azure, error) {
	r := s.settings()
	seed, hosts := r.seed(e.pipelines.ObjectID), r.azure()
	o := emulator.Options{DataDir: filepath.Join(s.Dir, "azure"), Tokens: &entra.Verifier{Authority: r.text("endpoints", "authority"), Client: s.HTTPClient(e.Address)},
		Tenant: r.text("tenantId"), AssumeCustomers: true, Location: r.text("region"), Seed: seed, Log: s.log()}
	for _, purpose := range []string{"global", "region", "management"} {
		o.OwnSubscriptions = append(o.OwnSubscriptions, r.text("subscriptions", purpose))
	}
	if r.err != nil {
		return nil, r.err
	}
	if err := os.MkdirAll(o.DataDir, 0o700); err != nil {
		return nil, err
	}
	opened, err := emulator.Open(o)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(context.Background())
	var completing sync.WaitGroup
	completing.Go(func() { opened.Run(running) })
	s.onClose(func() error {
		stop()
		completing.Wait()
		return opened.Close()
	})
	address, err := s.serveHTTPS(ctx, mesh.AzureEmulator, opened, hosts...)
	if err != nil {
		return nil, err
	}
	identity, err := e.managedIdentity()
	if err != nil {
		return nil, err
	}
	home, authorities := filepath.Join(s.Dir, "pipelines"), filepath.Join(s.Dir, "authorities.pem")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(authorities, s.Authority.CertificatePEM(), 0o600); err != nil {
		return nil, err
	}
	a := &Azure{Emulator: opened, services: s, entra: e, url: "https://" + address, client: s.HTTPClient(address),
		Env: append(identity, "HOME="+home, "PATH="+os.Getenv("PATH"), "SSL_CERT_FILE="+authorities, "ARM_RESOURCE_MANAGER_ENDPOINT=https://"+address, "ARM_USE_CLI=false")}
	e.azure.Store(a)
	return a, nil
}

// call sends a request to Resource Manager as the pipelines do, and decodes the response into into unless that is nil.
func (a *Azure) call(ctx context.Context, method, id, version string, body, into any) error {
	content, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, a.url+id+"?api-version="+version, bytes.NewReader(content))
	if err != nil {
		return err
	}
	issued, err := a.entra.issuer.IssueWithoutSecret(&a.entra.pipelines, "https://management.azure.com")
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+issued)
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s: %s", method, id, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// assign gives Cluster Service a role in a scope.
func (a *Azure) assign(ctx context.Context, role, scope string) error {
	r := a.services.settings()
	principal := r.target.ObjectIDs[r.text("clusterService", "managedIdentity")]
	if r.err != nil {
		return r.err
	}
	name := uuid.NewSHA1(uuid.NameSpaceURL, []byte(scope+"/"+role+"/"+principal)).String()
	return a.call(ctx, http.MethodPut, path.Join(scope, "providers/Microsoft.Authorization/roleAssignments", name), authorizationVersion, map[string]any{"properties": map[string]any{
		"principalId": principal, "principalType": "ServicePrincipal", "roleDefinitionId": scope + "/providers/Microsoft.Authorization/roleDefinitions/" + role}}, nil)
}

// expiry returns the end of a token that is issued now, in seconds since 1970.
func expiry() int64 { return time.Now().Add(token.Lifetime).Unix() }

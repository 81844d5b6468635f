package local

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"sigs.k8s.io/yaml"
)

// The region's own resources in Azure, which the Azure emulator has from the start.
const (
	serviceSubscription = "9c1f0d5e-6b7a-4c2d-8e3f-0a1b2c3d4e5f"
	serviceGroup        = "region"
	documentsAccount    = "oidc"
	documentsContainer  = "issuers"
	certificateIssuer   = "OneCertV2-PublicCA"
)

// longOperation is the duration of a long operation in Azure, before the region's time scale.
const longOperation = 30 * time.Second

// hasAzure reports whether clusters get resources in Azure. Cluster Service needs tokens for that, which the front door
// issues.
func (r *Region) hasAzure() bool {
	return !r.config.without("azure-emulator") && !r.config.without("arm-frontdoor")
}

// baseDomain returns the DNS zone of the region's clusters.
func (r *Region) baseDomain() string { return r.config.Location + ".hcpmesh.test" }

// issuerBase returns the public base URL of the OpenID documents of the clusters' issuers.
func (r *Region) issuerBase() string {
	if !r.hasAzure() {
		return "https://oidc." + r.baseDomain()
	}
	return "https://" + r.address(azurePort) + "/" + documentsAccount + "/" + documentsContainer
}

func (r *Region) azureSeedFile() string { return r.state.path("azure", "seed.json") }

func (r *Region) azureEmulator() supervisor.Spec {
	identity := r.identityDir("azure-emulator")
	delay := time.Duration(float64(longOperation) * *r.config.TimeScale)
	spec := r.ours("azure-emulator", "azure-emulator",
		"--listen="+r.address(azurePort),
		"--data-dir="+r.state.path("azure"),
		"--tls-cert="+filepath.Join(identity, mesh.CertificateFile),
		"--tls-key="+filepath.Join(identity, mesh.KeyFile),
		"--authority=https://"+r.address(frontDoorPort),
		"--authority-ca-file="+r.state.path("ca", mesh.CAFile),
		"--tenant="+providerTenantID,
		"--seed-file="+r.azureSeedFile(),
		"--location="+r.config.Location,
		"--operation-delay="+strconv.FormatInt(delay.Milliseconds(), 10)+"ms",
		"--assume-customers",
	)
	if r.config.Faults {
		spec.Args = append(spec.Args, "--enable-faults")
	}
	spec.DataDir = r.state.path("azure")
	spec.Prepare = r.writeAzureSeed
	return spec
}

// The IDs of built-in roles of Azure.
const (
	ownerRole               = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"
	dnsZoneContributorRole  = "befefa01-2a29-4197-83a8-272ff33ce314"
	certificatesOfficerRole = "a4417e6f-fecd-4de8-b567-7b0420556985"
	blobDataContributorRole = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
)

// demoSubscription is the subscription of the region's customer that exists from the start.
const demoSubscription = "11111111-1111-1111-1111-111111111111"

// writeAzureSeed writes the resources and role assignments that the infrastructure of a region creates in Azure. In Azure, Cluster
// Service gets its role in a customer's subscription when the customer registers the resource provider, and the log forwarder has the
// rights of Azure Monitor.
func (r *Region) writeAzureSeed(context.Context) error {
	group := "/subscriptions/" + serviceSubscription + "/resourceGroups/" + serviceGroup
	vault, account := group+"/providers/Microsoft.KeyVault/vaults/"+serviceGroup, group+"/providers/Microsoft.Storage/storageAccounts/"+documentsAccount
	assign := func(principal, role, scope string) any {
		return map[string]string{"principalId": principal, "role": role, "scope": scope}
	}
	seed := map[string]any{
		"roles": []any{
			map[string]any{"id": rbac.CustomerRoleID, "name": rbac.CustomerRoleName, "actions": rbac.CustomerRoleActions()},
			rbac.CredentialsRole(),
			customerlog.ForwarderRole(),
		},
		"assignments": []any{
			assign(serviceObjectID, rbac.CustomerRoleID, "/"),
			assign(serviceObjectID, dnsZoneContributorRole, group),
			assign(serviceObjectID, certificatesOfficerRole, vault),
			assign(serviceObjectID, rbac.CredentialsRole().ID, vault),
			assign(serviceObjectID, blobDataContributorRole, account),
			assign(workloads[logForwarder].objectID, customerlog.ForwarderRole().ID, "/"),
			assign(customerObjectID, ownerRole, "/subscriptions/"+demoSubscription),
			assign(customerObjectID, blobDataContributorRole, "/subscriptions/"+demoSubscription),
		},
		"resourceProviders": []string{serviceObjectID},
		"vault":             vault,
		"resources": []any{
			map[string]string{"id": group, "apiVersion": "2021-04-01", "location": r.config.Location},
			map[string]string{"id": group + "/providers/Microsoft.Network/dnsZones/" + r.baseDomain(), "apiVersion": "2018-05-01", "location": "global"},
		},
		"issuers":    []string{certificateIssuer},
		"containers": []any{map[string]string{"account": documentsAccount, "accountId": account, "name": documentsContainer, "access": "blob"}},
	}
	data, err := json.MarshalIndent(seed, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(r.azureSeedFile(), data, 0o644)
}

// clusterServiceConfigFile returns the configuration file of Cluster Service with the settings of Azure.
func (r *Region) clusterServiceConfigFile() string { return r.state.path("cluster-service.yaml") }

// prepareClusterService writes the files that Cluster Service reads.
func (r *Region) prepareClusterService(ctx context.Context) error {
	if err := r.writeShards(ctx); err != nil || !r.hasAzure() {
		return err
	}
	data, err := yaml.Marshal(map[string]any{"azureResources": map[string]any{
		"resourceManager":   "https://" + r.address(azurePort),
		"authority":         "https://" + r.address(frontDoorPort),
		"subscriptionID":    serviceSubscription,
		"resourceGroup":     serviceGroup,
		"vault":             "https://" + r.address(azurePort),
		"certificateIssuer": certificateIssuer,
		"managedIdentities": map[string]string{"vault": "https://" + r.address(azurePort), "endpoint": "https://" + r.address(azurePort) + "/identity"},
		"documents":         map[string]string{"account": "https://" + r.address(azurePort) + "/" + documentsAccount, "container": documentsContainer},
		"caFile":            r.state.path("ca", mesh.CAFile),
		"credentialFile":    r.serviceCredentialsFile(),
	}})
	if err != nil {
		return err
	}
	return replaceFile(r.clusterServiceConfigFile(), data, 0o644)
}

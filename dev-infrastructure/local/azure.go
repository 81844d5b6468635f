package local

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/supervisor"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
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
	spec := r.ours("azure-emulator", "azure-emulator", azureOps,
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
	spec.Ports["https"] = r.port(azurePort)
	spec.DataDir = r.state.path("azure")
	spec.Prepare = r.writeAzureSeed
	return spec
}

// writeAzureSeed writes the resources that the infrastructure of a region creates in Azure.
func (r *Region) writeAzureSeed(context.Context) error {
	group := "/subscriptions/" + serviceSubscription + "/resourceGroups/" + serviceGroup
	seed := map[string]any{
		"resources": []any{
			map[string]string{"id": group, "apiVersion": "2021-04-01", "location": r.config.Location},
			map[string]string{"id": group + "/providers/Microsoft.Network/dnsZones/" + r.baseDomain(), "apiVersion": "2018-05-01", "location": "global"},
		},
		"issuers":    []string{certificateIssuer},
		"containers": []any{map[string]string{"account": documentsAccount, "name": documentsContainer, "access": "blob"}},
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
		"documents":         map[string]string{"account": "https://" + r.address(azurePort) + "/" + documentsAccount, "container": documentsContainer},
		"caFile":            r.state.path("ca", mesh.CAFile),
		"credentialFile":    r.serviceCredentialsFile(),
	}})
	if err != nil {
		return err
	}
	return replaceFile(r.clusterServiceConfigFile(), data, 0o644)
}

package armproperty

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// renderedFields returns the fields that the renderer sets, by kind.
func renderedFields(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../../../internal/managementaccess/rendered.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var resources map[string]map[string]any
	if err := yaml.Unmarshal(text, &resources); err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	var walk func(kind, prefix string, value any)
	walk = func(kind, prefix string, value any) {
		object, ok := value.(map[string]any)
		if !ok {
			fields[kind] = append(fields[kind], prefix)
			return
		}
		for key, below := range object {
			switch {
			case key == "[]":
				walk(kind, prefix+"[]", below)
			case key == "*" || prefix == "metadata":
				fields[kind] = append(fields[kind], prefix)
			default:
				walk(kind, strings.TrimPrefix(prefix+"."+key, "."), below)
			}
		}
	}
	for kind, resource := range map[string]string{"HostedCluster": "hostedclusters", "NodePool": "nodepools"} {
		object := resources[resource+".hypershift.openshift.io"]
		delete(object, "apiVersion")
		delete(object, "kind")
		walk(kind, "", object)
	}
	return fields
}

// serviceFields are the rendered fields that no customer chooses.
var serviceFields = map[string][]string{
	"HostedCluster": {
		"metadata", "spec.autoscaling.scaling", "spec.channel", "spec.clusterID",
		"spec.configuration.apiServer.audit.profile",
		"spec.configuration.apiServer.servingCerts.namedCertificates[].names[]",
		"spec.configuration.apiServer.servingCerts.namedCertificates[].servingCertificate.name",
		"spec.controllerAvailabilityPolicy", "spec.dns.baseDomain", "spec.dns.baseDomainPrefix",
		"spec.etcd.managed.storage.persistentVolume.size", "spec.etcd.managed.storage.persistentVolume.storageClassName",
		"spec.etcd.managed.storage.type", "spec.etcd.managementType", "spec.infraID", "spec.infrastructureAvailabilityPolicy", "spec.issuerURL",
		"spec.kubeAPIServerDNSName", "spec.olmCatalogPlacement", "spec.pausedUntil",
		"spec.platform.azure.azureAuthenticationConfig.azureAuthenticationConfigType",
		"spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.managedIdentitiesKeyVault.name",
		"spec.platform.azure.azureAuthenticationConfig.managedIdentities.controlPlane.managedIdentitiesKeyVault.tenantID",
		"spec.platform.azure.cloud", "spec.platform.azure.subscriptionID", "spec.platform.azure.tenantID", "spec.platform.type",
		"spec.pullSecret.name", "spec.release.image", "spec.serviceAccountSigningKey.name", "spec.services[].service",
		"spec.services[].servicePublishingStrategy.route.hostname", "spec.services[].servicePublishingStrategy.type", "spec.sshKey.name",
	},
	"NodePool": {
		"metadata", "spec.clusterName", "spec.management.replace.rollingUpdate.maxSurge", "spec.management.replace.rollingUpdate.maxUnavailable",
		"spec.management.replace.strategy", "spec.management.upgradeType", "spec.pausedUntil", "spec.platform.azure.diagnostics.storageAccountType",
		"spec.platform.azure.image.azureMarketplace.imageGeneration", "spec.platform.azure.image.azureMarketplace.offer", "spec.platform.azure.image.azureMarketplace.publisher",
		"spec.platform.azure.image.azureMarketplace.sku", "spec.platform.azure.image.azureMarketplace.version", "spec.platform.azure.image.type", "spec.platform.type", "spec.release.image",
	},
}

// TestEveryRenderedFieldHasOwner fails for a new field of the renderer until the table has its property or the list above has the field.
func TestEveryRenderedFieldHasOwner(t *testing.T) {
	for kind, fields := range renderedFields(t) {
		var service []string
		for _, field := range fields {
			if resource, _ := Of(kind, field); resource == Service {
				service = append(service, field)
			}
		}
		slices.Sort(service)
		if diff := cmp.Diff(serviceFields[kind], slices.Compact(service)); diff != "" {
			t.Errorf("%s: fields without a property, -want +got:\n%s", kind, diff)
		}
	}
}

// TestEveryRowIsRendered fails for a row whose field the renderer never sets.
func TestEveryRowIsRendered(t *testing.T) {
	fields := renderedFields(t)
	for kind, rows := range properties {
		for row := range rows {
			if !slices.ContainsFunc(fields[kind], func(field string) bool {
				return field == row || strings.HasPrefix(field, row+".") || strings.HasPrefix(field, row+"[]")
			}) {
				t.Errorf("%s: the renderer does not set %s", kind, row)
			}
		}
	}
}

// TestPropertiesExist checks that the resource of each row has the property in the newest api-version.
func TestPropertiesExist(t *testing.T) {
	api := version.Newest()
	resolve := map[Resource]func(string) (string, bool){
		Cluster:      shape.Bind[hub.Cluster, hub.ClusterStatus](api.Cluster).Path,
		NodePool:     shape.Bind[hub.NodePool, hub.NodePoolStatus](api.NodePool).Path,
		ExternalAuth: shape.Bind[hub.ExternalAuth, hub.ExternalAuthStatus](api.ExternalAuth).Path,
	}
	for kind, rows := range properties {
		for field, p := range rows {
			if p.resource == Service || p.path == "name" || p.path == "properties" {
				continue
			}
			if _, ok := resolve[p.resource](p.path); !ok {
				t.Errorf("%s %s: the resource %s has no property %s", kind, field, p.resource, p.path)
			}
		}
	}
}

func TestOf(t *testing.T) {
	for field, want := range map[string]property{
		"NodePool spec.platform.azure.vmSize":                                                  {NodePool, "properties.platform.vmSize"},
		"NodePool spec.taints[3].key":                                                          {NodePool, "properties.taints[3].key"},
		"NodePool spec.taints[3]":                                                              {NodePool, "properties.taints"},
		"NodePool spec.nodeLabels[example.com/a]":                                              {NodePool, "properties.labels"},
		"NodePool spec.nodeLabels.a":                                                           {NodePool, "properties.labels"},
		"NodePool spec":                                                                        {},
		"NodePool spec.release.image":                                                          {},
		"NodePool metadata.name":                                                               {},
		"HostedCluster spec.networking.clusterNetwork[0].hostPrefix":                           {Cluster, "properties.network.hostPrefix"},
		"HostedCluster spec.imageContentSources[7].mirrors[1]":                                 {Cluster, "properties.imageDigestMirrors"},
		"HostedCluster spec.secretEncryption.kms.azure.kms.clientID":                           {Cluster, identities + ".controlPlaneOperators[kms]"},
		"HostedCluster spec.configuration.authentication.oidcProviders[0]":                     {ExternalAuth, "properties"},
		"HostedCluster spec.configuration.authentication.oidcProviders[0].issuer.audiences[2]": {ExternalAuth, "properties.issuer.audiences[2]"},
		"HostedCluster spec.configuration.authentication.oidcProviders[0].oidcClients[1].extraScopes[2]": {ExternalAuth, "properties.clients[1].extraScopes"},
		"HostedCluster spec.unknown": {},
		"ConfigMap spec.taints":      {},
		"NodePool ":                  {},
		"NodePool [[]].[":            {},
	} {
		kind, field, _ := strings.Cut(field, " ")
		if resource, path := Of(kind, field); resource != want.resource || path != want.path {
			t.Errorf("%s %s: %q, %q, want %v", kind, field, resource, path, want)
		}
	}
}

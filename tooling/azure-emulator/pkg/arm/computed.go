package arm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/google/uuid"
)

// The functions of this file return the properties that providers set, as far as clients read them. They depend only on the resource, so
// that each write returns the same values. Host names have the suffixes of Azure's public cloud.

// The host name of Resource Manager, and the suffixes of those of storage accounts and vaults.
const (
	Host        = "management.azure.com"
	BlobSuffix  = ".blob.core.windows.net"
	VaultSuffix = ".vault.azure.net"
)

// stable returns a UUID that depends on a resource and a purpose.
func stable(r *Resource, purpose string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte(strings.ToLower(r.ID)+" "+purpose)).String()
}

// short returns 8 characters that depend on a resource.
func short(r *Resource) string {
	sum := sha256.Sum256([]byte(strings.ToLower(r.ID)))
	return hex.EncodeToString(sum[:4])
}

// publicAddress returns an address of the range for documentation (RFC 5737).
func publicAddress(r *Resource) map[string]any {
	sum := sha256.Sum256([]byte(strings.ToLower(r.ID)))
	return map[string]any{"ipAddress": fmt.Sprintf("203.0.113.%d", sum[0])}
}

// publicPrefix returns addresses of another range for documentation, as many as the prefix has.
func publicPrefix(r *Resource) map[string]any {
	length := 28
	if number, ok := valueAt(r.Properties, "prefixLength").(float64); ok {
		length = int(number)
	}
	sum := sha256.Sum256([]byte(strings.ToLower(r.ID)))
	prefix, err := netip.AddrFrom4([4]byte{198, 51, 100, sum[0]}).Prefix(max(24, min(length, 32)))
	if err != nil {
		return nil
	}
	return map[string]any{"ipPrefix": prefix.String()}
}

// secretsProvider is the add-on of a cluster that reads Key Vaults.
const secretsProvider = "addonProfiles.azureKeyvaultSecretsProvider"

func managedCluster(r *Resource) map[string]any {
	prefix, _ := r.Properties["dnsPrefix"].(string)
	computed := map[string]any{
		"powerState.code":   "Running",
		"fqdn":              fmt.Sprintf("%s-%s.hcp.%s.azmk8s.io", prefix, short(r), r.Location),
		"nodeResourceGroup": valueOr(r, "nodeResourceGroup", fmt.Sprintf("MC_%s_%s_%s", groupOf(r), r.Name, r.Location)),
	}
	if enabled, _ := valueAt(r.Properties, "oidcIssuerProfile.enabled").(bool); enabled {
		computed["oidcIssuerProfile.issuerURL"] = fmt.Sprintf("https://%s.oic.prod-aks.azure.com/%s/%s/", r.Location, homeTenant, stable(r, "issuer"))
	}
	if enabled, _ := valueAt(r.Properties, secretsProvider+".enabled").(bool); enabled {
		computed[secretsProvider+".identity"] = map[string]any{
			"resourceId": fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.ManagedIdentity/userAssignedIdentities/azurekeyvaultsecretsprovider-%s",
				strings.Split(r.ID, "/")[2], computed["nodeResourceGroup"], r.Name),
			"clientId": stable(r, "secrets provider client"), "objectId": stable(r, "secrets provider object"),
		}
	}
	return computed
}

func cosmosAccount(r *Resource) map[string]any {
	return map[string]any{"documentEndpoint": "https://" + r.Name + ".documents.azure.com:443/", "instanceId": stable(r, "instance")}
}

func postgresServer(r *Resource) map[string]any {
	return map[string]any{"fullyQualifiedDomainName": r.Name + ".postgres.database.azure.com", "state": "Ready"}
}

func eventNamespace(r *Resource) map[string]any {
	computed := map[string]any{"topicsConfiguration.hostname": fmt.Sprintf("%s.%s-1.eventgrid.azure.net", r.Name, r.Location)}
	if state, _ := valueAt(r.Properties, "topicSpacesConfiguration.state").(string); state == "Enabled" {
		computed["topicSpacesConfiguration.hostname"] = fmt.Sprintf("%s.%s-1.ts.eventgrid.azure.net", r.Name, r.Location)
	}
	return computed
}

func keyVault(r *Resource) map[string]any {
	return map[string]any{"vaultUri": "https://" + strings.ToLower(r.Name) + VaultSuffix + "/"}
}

func storageAccount(r *Resource) map[string]any {
	return map[string]any{"primaryLocation": r.Location, "statusOfPrimary": "available", "primaryEndpoints": map[string]any{"blob": "https://" + r.Name + BlobSuffix + "/"}}
}

// immutabilityPolicy returns the state of a policy, which a write of the resource does not change: the action lock is not emulated.
func immutabilityPolicy(*Resource) map[string]any { return map[string]any{"state": "Unlocked"} }

func frontDoor(r *Resource) map[string]any {
	return map[string]any{"frontDoorId": stable(r, "front door"), "resourceState": "Active"}
}

func frontDoorEndpoint(r *Resource) map[string]any {
	return map[string]any{"hostName": fmt.Sprintf("%s-%s.z01.azurefd.net", r.Name, short(r))}
}

func customDomain(r *Resource) map[string]any {
	return map[string]any{"validationProperties": map[string]any{"validationToken": "_" + short(r)}, "domainValidationState": "Pending"}
}

func containerRegistry(r *Resource) map[string]any {
	return map[string]any{"loginServer": strings.ToLower(r.Name) + ".azurecr.io"}
}

func monitorWorkspace(r *Resource) map[string]any {
	return map[string]any{"accountId": stable(r, "account"), "metrics": map[string]any{"internalId": "mac_" + stable(r, "metrics"),
		"prometheusQueryEndpoint": fmt.Sprintf("https://%s-%s.%s.prometheus.monitor.azure.com", r.Name, short(r), r.Location)}}
}

func collectionEndpoint(r *Resource) map[string]any {
	host := fmt.Sprintf("%s-%s.%s-1", r.Name, short(r), r.Location)
	return map[string]any{"metricsIngestion.endpoint": "https://" + host + ".metrics.ingest.monitor.azure.com",
		"configurationAccess.endpoint": "https://" + host + ".handler.control.monitor.azure.com"}
}

// valueOr returns the value of a property, or a default that the provider sets.
func valueOr(r *Resource, path, otherwise string) string {
	if value, ok := valueAt(r.Properties, path).(string); ok && value != "" {
		return value
	}
	return otherwise
}

// groupOf returns the name of a resource's resource group.
func groupOf(r *Resource) string {
	segments := strings.Split(r.ID, "/")
	if len(segments) < 5 {
		return ""
	}
	return segments[4]
}

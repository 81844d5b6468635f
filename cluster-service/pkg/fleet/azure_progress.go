package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// azureLayers returns the progress in Azure: an entry for each failing step, or else for the first step that is not done.
func (t *ClusterAggregate) azureLayers() []layer {
	if t.Azure == nil {
		return nil
	}
	verb, open := "Creating", []*AzureStep{}
	if t.Azure.Deleting {
		verb = "Removing"
	}
	var layers []layer
	there, forced := len(t.Azure.Steps), ""
	for _, s := range t.Azure.Steps {
		if s.Forced != nil {
			there--
			forced += fmt.Sprintf(" %s let the creation continue without %s (%s)", s.Forced.By, describeAzure[s.Kind], s.Forced.Reason)
			if s.Error != "" {
				forced += "; its last attempt failed: " + strings.TrimSuffix(s.Error, ".")
			}
			forced += "."
			continue
		}
		if s.Done && s.Kind == AzureIdentities {
			if s.Error != "" {
				layers = append(layers, s.readAgainLayer())
			}
			continue
		}
		if s.Done {
			if s.Error != "" {
				layers = append(layers, layer{LayerAzure, clusterstatus.StateRenewalFailing, fmt.Sprintf("Attempt %d to renew %s, which expires at %s, failed: %s",
					s.Attempts, describeAzure[s.Kind], s.Expires.UTC().Format(time.RFC3339), s.Error)})
			}
			continue
		}
		open = append(open, s)
		if s.Error != "" {
			state := "Retrying" + camelCase(string(s.Kind))
			if s.missingIdentities() != "" {
				state = clusterstatus.IdentityNotFound
			}
			if s.fullIdentities() != "" && !t.Azure.Deleting {
				state = clusterstatus.FederatedCredentialLimit
			}
			if s.refusedIdentities() != "" && !t.Azure.Deleting {
				state = clusterstatus.CredentialRefused
			}
			layers = append(layers, layer{LayerAzure, state, fmt.Sprintf("Attempt %d failed: %s", s.Attempts, s.Error)})
		}
	}
	switch {
	case len(open) == 0 && t.Azure.Deleting:
		return []layer{{LayerAzure, clusterstatus.StateDeleted, "All Azure resources of the cluster are deleted."}}
	case len(open) == 0 && len(layers) == 0:
		message := fmt.Sprintf("All %d Azure resources of the cluster exist.", there)
		if forced != "" {
			message = fmt.Sprintf("%d of %d Azure resources of the cluster exist.%s", there, len(t.Azure.Steps), forced)
		}
		return []layer{{LayerAzure, clusterstatus.StateReady, message}}
	case len(layers) == 0:
		first := open[0]
		if i := slices.IndexFunc(open, func(s *AzureStep) bool { return s.Due }); i >= 0 {
			first = open[i]
		}
		if first.Kind == AzureIdentities && !t.Azure.Deleting {
			verb = "Reading"
		}
		message := fmt.Sprintf("%s %s; %d of %d Azure steps are not complete.", verb, describeAzure[first.Kind], len(open), len(t.Azure.Steps))
		if first.Awaited != "" {
			message = fmt.Sprintf("%s %s: waiting for %s.", verb, describeAzure[first.Kind], first.Awaited)
		}
		layers = append(layers, layer{LayerAzure, verb + camelCase(string(first.Kind)), message})
	}
	return layers
}

// describeAzure contains the descriptions of the steps for messages.
var describeAzure = map[AzureKind]string{
	AzureIdentities:    "the client IDs of the identities",
	AzureResourceGroup: "the managed resource group",
	AzureDNSZone:       "the cluster's DNS zone",
	AzureDNSDelegation: "the delegation of the cluster's DNS zone",
	AzureDocuments:     "the OpenID documents of the issuer",
	AzureSecurityGroup: "the association of the subnet with its network security group",
	AzureRoles:         "the check of the operators' roles",
	AzureRequirements:  "the check of the node pools' requirements",
	AzureFederation:    "the federated credentials of the data plane's identities",
	AzureCredentials:   "the credentials of the control plane's identities",
	AzureCertificate:   "the API server's certificate",
	AzureAPIRecord:     "the DNS record of the API",

	AzureServiceRecords: "the DNS records of the control plane's services",
}

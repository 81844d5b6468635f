package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
)

// ErrIdentityUnread is the error of a Renderer for content that needs the client ID of an identity that Azure has not
// reported yet. The content is rendered when the step AzureIdentities is done.
var ErrIdentityUnread = errors.New("the client ID of an identity of the cluster is not read from Azure yet")

// operatorShortNames has the operators of a control plane that have an identity, by their names in the ARM contract, with the short names in those of
// their credentials.
var operatorShortNames = map[string]string{
	"cloud-controller-manager": "ccm", "cluster-api-azure": "capz", "control-plane": "cpo", "image-registry": "registry", "ingress": "ingress",
	"cloud-network-config": "network", "disk-csi-driver": "disk", "file-csi-driver": "file", "kms": "kms",
}

// ControlPlaneOperators returns the operators of a control plane that have an identity, in a fixed order.
func ControlPlaneOperators() []string { return slices.Sorted(maps.Keys(operatorShortNames)) }

// CredentialName returns the name of the secret with the credential of the identity of an operator of the control plane.
func (c *Cluster) CredentialName(operator string) string {
	return operatorShortNames[operator] + "-" + c.ID()
}

// ControlPlaneProperty returns the property of the ARM resource that names the identity of an operator of the control plane.
func ControlPlaneProperty(operator string) string {
	return identitiesRoot + "controlPlaneOperators[" + operator + "]"
}

// OperatorIdentity is a user-assigned identity of a cluster.
type OperatorIdentity struct {
	// Property is the path of the property of the ARM resource that names the identity.
	Property string
	// ID is the ARM resource ID of the identity.
	ID string
}

// identitiesRoot is the path of the ARM property that contains all identities, with a dot at its end.
const identitiesRoot = "properties.platform.operatorsAuthentication.userAssignedIdentities."

// Identities returns the user-assigned identities of the operators and of the service, in a fixed order.
func (c *Cluster) Identities() []OperatorIdentity {
	platform := c.Spec.GetPlatform()
	var identities []OperatorIdentity
	add := func(property, id string) {
		if id != "" {
			identities = append(identities, OperatorIdentity{Property: identitiesRoot + property, ID: id})
		}
	}
	for property, operators := range map[string]map[string]string{"controlPlaneOperators": platform.GetControlPlaneOperators(), "dataPlaneOperators": platform.GetDataPlaneOperators()} {
		for operator, id := range operators {
			add(property+"["+operator+"]", id)
		}
	}
	add("serviceManagedIdentity", platform.GetServiceManagedIdentity())
	slices.SortFunc(identities, func(a, b OperatorIdentity) int { return strings.Compare(a.Property, b.Property) })
	return identities
}

// DataPlaneProperties returns the properties, in a fixed order, that name one of the given data plane identities by its ARM ID
// in lower case.
func (c *Cluster) DataPlaneProperties(ids []string) []string {
	var properties []string
	for operator, id := range c.Spec.GetPlatform().GetDataPlaneOperators() {
		if slices.Contains(ids, strings.ToLower(id)) {
			properties = append(properties, identitiesRoot+"dataPlaneOperators["+operator+"]")
		}
	}
	slices.Sort(properties)
	return properties
}

// Facts of AzureIdentities: the client and the principal ID of each identity; the properties whose identities the last
// attempt did not find, separated by commas; and the IdentityIDs after the last replacement of an identity.
//
// AzureIdentitiesFull is the fact of AzureFederation with the properties, separated by commas, whose identities had no place
// for a federated credential in the last attempt. AzureIdentitiesRefused is that of AzureCredentials with the properties for whose
// identities Azure issued no usable credential.
const (
	clientIDFact              = "clientId:"
	principalIDFact           = "principalId:"
	AzureIdentitiesMissing    = "missing"
	AzureIdentitiesFull       = "full"
	AzureIdentitiesRefused    = "refused"
	azureIdentitiesReplaced   = "replaced"
	identitiesMissingSentence = "The identities of these properties do not exist: "
	identitiesFullSentence    = "The identities of these properties already have as many federated credentials as Azure allows: "
	identitiesRefusedSentence = "Azure issues no usable credential for the identities of these properties: "
)

// IdentityFacts returns the facts of AzureIdentities for an identity that Azure reports.
func IdentityFacts(armID, clientID, principalID string) map[string]string {
	key := strings.ToLower(armID)
	return map[string]string{clientIDFact + key: clientID, principalIDFact + key: principalID}
}

// ClientID returns the client ID of an identity as Azure reported it; empty if it was not read yet.
func (a *Azure) ClientID(armID string) string { return a.identityFact(clientIDFact, armID) }

// PrincipalID returns the principal ID of an identity as Azure reported it; empty if it was not read yet.
func (a *Azure) PrincipalID(armID string) string { return a.identityFact(principalIDFact, armID) }

func (a *Azure) identityFact(name, armID string) string {
	if s := a.Step(AzureIdentities); s != nil {
		return s.Facts[name+strings.ToLower(armID)]
	}
	return ""
}

// identitiesRead returns the IDs of the cluster's identities that Azure has reported, by ARM ID in lower case.
func (t *ClusterAggregate) identitiesRead() map[string]*csv1.UserAssignedIdentity {
	var read map[string]*csv1.UserAssignedIdentity
	for _, identity := range t.Cluster.Identities() {
		if clientID := t.Azure.ClientID(identity.ID); clientID != "" {
			if read == nil {
				read = map[string]*csv1.UserAssignedIdentity{}
			}
			read[strings.ToLower(identity.ID)] = &csv1.UserAssignedIdentity{ClientId: clientID, PrincipalId: t.Azure.PrincipalID(identity.ID)}
		}
	}
	return read
}

// ReadsIdentities reports whether the client IDs of identities come from Azure.
func (r Region) ReadsIdentities() bool { return slices.Contains(r.AzureKinds, AzureIdentities) }

// IdentityIDs returns a digest of the client and principal IDs that Azure has reported; empty if it has reported none.
func (a *Azure) IdentityIDs() string {
	s := a.Step(AzureIdentities)
	if s == nil {
		return ""
	}
	var ids []string
	for name, id := range s.Facts {
		if isIdentityID(name) {
			ids = append(ids, name+"="+id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	slices.Sort(ids)
	return digest(ids)
}

// isIdentityID reports whether a fact of AzureIdentities is a client or principal ID.
func isIdentityID(name string) bool {
	return strings.HasPrefix(name, clientIDFact) || strings.HasPrefix(name, principalIDFact)
}

// replacesIdentity reports whether facts of AzureIdentities contain other IDs for an identity than the known ones. A customer
// has then deleted the identity and created another one with the same name.
func replacesIdentity(known, facts map[string]string) bool {
	for name, id := range facts {
		if before := known[name]; isIdentityID(name) && before != "" && before != id {
			return true
		}
	}
	return false
}

// IdentitiesReplaced returns a value that changes whenever an identity is replaced; empty if none was. Role assignments and
// federated credentials belong to an identity and are deleted with it, so they are checked and created again.
func (a *Azure) IdentitiesReplaced() string {
	if s := a.Step(AzureIdentities); s != nil {
		return s.Facts[azureIdentitiesReplaced]
	}
	return ""
}

// ReadIdentitiesAgain makes the step AzureIdentities due at once, also if it is done or is being attempted.
func (a *Azure) ReadIdentitiesAgain() {
	if s := a.Step(AzureIdentities); s != nil && !a.Deleting {
		s.RetryTime = time.Time{}
		s.Requests++
	}
}

// readAgainLayer returns the progress of a step that has failed to read identities again: they do not exist any more, or cannot be read.
func (s *AzureStep) readAgainLayer() layer {
	state := clusterstatus.StateIdentityReadFailing
	if s.missingIdentities() != "" {
		state = clusterstatus.StateIdentityDeleted
	}
	return layer{LayerAzure, state, fmt.Sprintf("Attempt %d to read the identities again failed: %s", s.Attempts, s.Error)}
}

// identitiesInput returns a digest of the identities that a cluster names.
func (c *Cluster) identitiesInput() string {
	ids := map[string]bool{}
	for _, identity := range c.Identities() {
		ids[strings.ToLower(identity.ID)] = true
	}
	return digest(slices.Sorted(maps.Keys(ids)))
}

func digest(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:8])
}

// onlyIdentities reports whether only the step AzureIdentities is planned, as it is until the HostedCluster exists.
func (a *Azure) onlyIdentities() bool { return len(a.Steps) == 1 && a.Steps[0].Kind == AzureIdentities }

// missingIdentities returns the properties whose identities do not exist; empty if all were found or are not read yet.
func (s *AzureStep) missingIdentities() string {
	if s == nil || s.Kind != AzureIdentities {
		return ""
	}
	return s.Facts[AzureIdentitiesMissing]
}

// fullIdentities returns the properties whose identities have no place for the cluster's federated credentials; empty if all
// have one or the step has not been attempted.
func (s *AzureStep) fullIdentities() string {
	if s == nil || s.Kind != AzureFederation {
		return ""
	}
	return s.Facts[AzureIdentitiesFull]
}

// refusedIdentities returns the properties for whose identities Azure issues no usable credential; empty if it does for all or the step has
// not been attempted.
func (s *AzureStep) refusedIdentities() string {
	if s == nil || s.Kind != AzureCredentials {
		return ""
	}
	return s.Facts[AzureIdentitiesRefused]
}

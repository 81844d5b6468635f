package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// ErrIdentityUnread is the error of a Renderer for content that needs the client ID of an identity that Azure has not
// reported yet. The content is rendered when the step AzureIdentities is done.
var ErrIdentityUnread = errors.New("the client ID of an identity of the cluster is not read from Azure yet")

// OperatorIdentity is a user-assigned identity of a cluster.
type OperatorIdentity struct {
	// Property is the path of the property of the ARM resource that names the identity.
	Property string
	// ID is the ARM resource ID of the identity.
	ID string
}

// Identities returns the user-assigned identities of the operators and of the service, in a fixed order.
func (c *Cluster) Identities() []OperatorIdentity {
	const root = "properties.platform.operatorsAuthentication.userAssignedIdentities."
	platform := c.Spec.GetPlatform()
	var identities []OperatorIdentity
	add := func(property, id string) {
		if id != "" {
			identities = append(identities, OperatorIdentity{Property: root + property, ID: id})
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

// Facts of AzureIdentities: the client and the principal ID of each identity, and the properties whose identities the last
// attempt did not find, separated by commas.
const (
	clientIDFact              = "clientId:"
	principalIDFact           = "principalId:"
	AzureIdentitiesMissing    = "missing"
	identitiesMissingSentence = "The identities of these properties do not exist: "
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

// identitiesInput returns a digest of the identities that a cluster names.
func (c *Cluster) identitiesInput() string {
	ids := map[string]bool{}
	for _, identity := range c.Identities() {
		ids[strings.ToLower(identity.ID)] = true
	}
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(maps.Keys(ids)), "\n")))
	return hex.EncodeToString(sum[:8])
}

// onlyIdentities reports whether only the step AzureIdentities is planned, as it is until the HostedCluster exists.
func (a *Azure) onlyIdentities() bool { return len(a.Steps) == 1 && a.Steps[0].Kind == AzureIdentities }

// missingIdentities returns the properties whose identities do not exist; empty if all were found or are not read yet.
func (s *AzureStep) missingIdentities() string {
	if s == nil || s.Kind != AzureIdentities || s.Done {
		return ""
	}
	return s.Facts[AzureIdentitiesMissing]
}

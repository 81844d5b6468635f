package clusterservice

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// The tables list every supported value of each translated enumeration. A value without an entry is an error and never
// becomes a default: a default could publish a private endpoint or drop an encryption requirement. The empty key stands
// for a field that the document does not have, and maps to what Cluster Service does without the field.
var (
	visibilities = map[hub.Visibility]clusterservicev1.Visibility{
		"":          clusterservicev1.Visibility_VISIBILITY_UNSPECIFIED,
		hub.Public:  clusterservicev1.Visibility_VISIBILITY_PUBLIC,
		hub.Private: clusterservicev1.Visibility_VISIBILITY_PRIVATE,
	}
	// fips reports whether a value of cryptoRestrictions requires FIPS mode.
	fips = map[string]bool{"": false, "None": false, "FIPS": true}
	// registryEnabled reports whether a value of clusterImageRegistry.state enables the registry.
	registryEnabled = map[string]bool{"": true, "Enabled": true, "Disabled": false}
	// ephemeralDisk reports whether a value of osDisk.diskType places the disk on the virtual machine's host.
	ephemeralDisk = map[string]bool{"": false, "Managed": false, "Ephemeral": true}
	// customerKey reports whether a value of keyManagementMode requires a key of the customer.
	customerKey = map[string]bool{"": false, "PlatformManaged": false, "CustomerManaged": true}
	// Each of the next two fields has one value, so that only its presence in the table matters.
	keyEncryptions  = map[string]bool{"": true, "KMS": true}
	validationRules = map[string]bool{"": true, "RequiredClaim": true}

	clientTypes = map[string]clusterservicev1.OidcClientType{
		"":             clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_UNSPECIFIED,
		"Confidential": clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL,
		"Public":       clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC,
	}
	// prefixPolicies maps None to unspecified: OpenShift then chooses the prefix.
	prefixPolicies = map[string]clusterservicev1.UsernamePrefixPolicy{
		"":         clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_UNSPECIFIED,
		"None":     clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_UNSPECIFIED,
		"Prefix":   clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX,
		"NoPrefix": clusterservicev1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_NO_PREFIX,
	}

	clusterPhases = map[clusterservicev1.ClusterPhase]string{
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_UNSPECIFIED: "",
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_PENDING:     PhasePending,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_INSTALLING:  PhaseInstalling,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY:       PhaseReady,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_UPDATING:    PhaseUpdating,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETING:    PhaseDeleting,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED:     PhaseDeleted,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_FAILED:      PhaseFailed,
		clusterservicev1.ClusterPhase_CLUSTER_PHASE_LOST:        PhaseLost,
	}
	nodePoolPhases = map[clusterservicev1.NodePoolPhase]string{
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_UNSPECIFIED: "",
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_PENDING:     PhasePending,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_INSTALLING:  PhaseInstalling,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_READY:       PhaseReady,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_UPDATING:    PhaseUpdating,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETING:    PhaseDeleting,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_DELETED:     PhaseDeleted,
		clusterservicev1.NodePoolPhase_NODE_POOL_PHASE_FAILED:      PhaseFailed,
	}
	externalAuthPhases = map[clusterservicev1.ExternalAuthPhase]string{
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UNSPECIFIED:     "",
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_PENDING:         PhasePending,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_INSTALLING:      PhaseInstalling,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY:           PhaseReady,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_UPDATING:        PhaseUpdating,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETING:        PhaseDeleting,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_DELETED:         PhaseDeleted,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_FAILED:          PhaseFailed,
		clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET: PhaseAwaitingSecret,
	}
	credentialStates = map[clusterservicev1.BreakGlassCredentialState]string{
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_UNSPECIFIED:         "",
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING:             PhasePending,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_FAILED:              PhaseFailed,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:            StateCanceled,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED:              StateIssued,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION: StateAwaitingRevocation,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:             StateRevoked,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_EXPIRED:             StateExpired,
	}
	revocationStates = map[clusterservicev1.BreakGlassRevocationState]string{
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_UNSPECIFIED: "",
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING:     PhasePending,
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING:    StateRevoking,
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_SUCCEEDED:   StateSucceeded,
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_CANCELED:    StateCanceled,
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_FAILED:      PhaseFailed,
	}
)

// violations collects the fields of a document that cannot be translated.
type violations []apierror.Violation

// err returns an error of kind Invalid that names every violated field, or nil.
func (v violations) err() error { return apierror.InvalidFields(v) }

func (v *violations) add(field, message string) {
	*v = append(*v, apierror.Violation{Field: field, Message: message})
}

// lookup returns the translation of a field's value. It adds a violation with the supported values if there is none.
func lookup[K ~string, V any](v *violations, field string, value K, table map[K]V) V {
	translated, ok := table[value]
	if !ok {
		v.add(field, wire.UnsupportedValue(string(value), supported(table)))
	}
	return translated
}

// supported returns the named values of a table in order.
func supported[K ~string, V any](table map[K]V) []string {
	var names []string
	for _, value := range slices.Sorted(maps.Keys(table)) {
		if value != "" {
			names = append(names, string(value))
		}
	}
	return names
}

// phase translates a reported enumeration value. field names it within the message.
//
// The error is not of kind Invalid: the report is wrong or of a newer release, and the customer's request is not.
func phase[E interface {
	~int32
	fmt.Stringer
}](field string, value E, table map[E]string) (string, error) {
	name, ok := table[value]
	if !ok {
		names := slices.DeleteFunc(slices.Sorted(maps.Values(table)), func(name string) bool { return name == "" })
		return "", errors.New(field + ": " + wire.UnsupportedValue(value.String(), names))
	}
	return name, nil
}

package clusterservice

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The phases of clusters, node pools and external authentications, as FleetState stores them.
const (
	PhasePending    = "Pending"
	PhaseInstalling = "Installing"
	PhaseReady      = "Ready"
	PhaseUpdating   = "Updating"
	PhaseDeleting   = "Deleting"
	PhaseDeleted    = "Deleted"
	PhaseFailed     = "Failed"
	// PhaseLost is the phase of an installed cluster whose control plane was removed with its data, until an SRE decides how
	// it continues.
	PhaseLost = "Lost"
	// PhaseAwaitingSecret is the phase of an external authentication that is in effect except for a confidential client,
	// whose secret the customer has not provided yet.
	PhaseAwaitingSecret = "AwaitingSecret"
)

// The states of credentials and revocations, which a Report has as its Phase besides PhasePending and PhaseFailed.
const (
	StateIssued             = "Issued"
	StateAwaitingRevocation = "AwaitingRevocation"
	StateRevoked            = "Revoked"
	StateExpired            = "Expired"
	StateRevoking           = "Revoking"
	StateSucceeded          = "Succeeded"
	StateCanceled           = "Canceled"
)

// Report is Cluster Service's state of one incarnation of a cluster, node pool or external authentication, or of one
// credential or revocation, in a form that all of them share.
type Report struct {
	UID string
	// ResourceID is empty for credentials and revocations, which Cluster Service identifies by UID only.
	ResourceID string
	// Revision orders reports. Generation is the newest one that Cluster Service has stored, ObservedGeneration the newest
	// one that is in effect.
	Revision           int64
	Generation         int64
	ObservedGeneration int64
	// Phase is one of the constants, or empty if Cluster Service has not determined it yet.
	Phase string
	// Deleting is set after a deletion was requested, which happened at DeleteTime.
	Deleting   bool
	DeleteTime time.Time
	// Deletion has the steps of the deletion, or is nil.
	Deletion   *clusterservicev1.Deletion
	Conditions []hub.Condition
	// Cluster, NodePool and ExternalAuth hold the status; exactly one is set in the report of such a resource.
	Cluster      *hub.ClusterStatus
	NodePool     *hub.NodePoolStatus
	ExternalAuth *hub.ExternalAuthStatus
	// AwaitedSecrets are the Secrets that the customer must create in the cluster for an external authentication, as
	// namespace/name.
	AwaitedSecrets []string
	// Spec is the desired state of Generation; nil for credentials and revocations.
	Spec proto.Message
	// RecoveryFingerprint identifies the state of a cluster that its recovery data belongs to; empty if it has none.
	RecoveryFingerprint string
	// Expiration is the end of validity of an issued credential's certificate.
	Expiration *time.Time
}

// ClusterReport translates a cluster. It fails for a phase that this release does not support.
func ClusterReport(c *clusterservicev1.Cluster) (Report, error) {
	s := c.GetStatus()
	phase, err := phase("status.phase", s.GetPhase(), clusterPhases)
	if err != nil {
		return Report{}, fmt.Errorf("reading the report of cluster %s: %w", c.GetResourceId(), err)
	}
	return Report{
		UID:                 c.GetUid(),
		ResourceID:          c.GetResourceId(),
		Revision:            c.GetRevision(),
		Generation:          c.GetGeneration(),
		Spec:                specOf(c.GetSpec()),
		ObservedGeneration:  s.GetObservedGeneration(),
		Phase:               phase,
		Deleting:            c.GetDeleteTime() != nil,
		DeleteTime:          when(c.GetDeleteTime()),
		Deletion:            s.GetDeletion(),
		Conditions:          conditions(s.GetConditions()),
		RecoveryFingerprint: RecoveryFingerprint(c),
		Cluster: &hub.ClusterStatus{
			Conditions:     conditions(s.GetConditions()),
			APIURL:         s.GetApiUrl(),
			BaseDomain:     s.GetBaseDomain(),
			ConsoleURL:     s.GetConsoleUrl(),
			IssuerURL:      s.GetIssuerUrl(),
			ActiveVersions: s.GetActiveVersions(),
			Progress:       progress(s.GetProgress()),
			Identities:     identitiesRead(s.GetIdentities()),
		},
	}, nil
}

// NodePoolReport translates a node pool; see ClusterReport.
func NodePoolReport(n *clusterservicev1.NodePool) (Report, error) {
	s := n.GetStatus()
	phase, err := phase("status.phase", s.GetPhase(), nodePoolPhases)
	if err != nil {
		return Report{}, fmt.Errorf("reading the report of node pool %s: %w", n.GetResourceId(), err)
	}
	return Report{
		UID:                n.GetUid(),
		ResourceID:         n.GetResourceId(),
		Revision:           n.GetRevision(),
		Generation:         n.GetGeneration(),
		Spec:               specOf(n.GetSpec()),
		ObservedGeneration: s.GetObservedGeneration(),
		Phase:              phase,
		Deleting:           n.GetDeleteTime() != nil,
		DeleteTime:         when(n.GetDeleteTime()),
		Deletion:           s.GetDeletion(),
		Conditions:         conditions(s.GetConditions()),
		NodePool: &hub.NodePoolStatus{
			Conditions: conditions(s.GetConditions()),
			Replicas:   s.GetReplicas(),
			Version:    s.GetVersion(),
			Progress:   progress(s.GetProgress()),
		},
	}, nil
}

// ExternalAuthReport translates an external authentication; see ClusterReport.
func ExternalAuthReport(e *clusterservicev1.ExternalAuth) (Report, error) {
	s := e.GetStatus()
	phase, err := phase("status.phase", s.GetPhase(), externalAuthPhases)
	if err != nil {
		return Report{}, fmt.Errorf("reading the report of external authentication %s: %w", e.GetResourceId(), err)
	}
	var awaited []string
	for _, secret := range s.GetAwaitedSecrets() {
		awaited = append(awaited, secret.GetNamespace()+"/"+secret.GetName())
	}
	return Report{
		UID:                e.GetUid(),
		ResourceID:         e.GetResourceId(),
		Revision:           e.GetRevision(),
		Generation:         e.GetGeneration(),
		Spec:               specOf(e.GetSpec()),
		ObservedGeneration: s.GetObservedGeneration(),
		Phase:              phase,
		Deleting:           e.GetDeleteTime() != nil,
		DeleteTime:         when(e.GetDeleteTime()),
		Deletion:           s.GetDeletion(),
		Conditions:         conditions(s.GetConditions()),
		AwaitedSecrets:     awaited,
		ExternalAuth: &hub.ExternalAuthStatus{
			Conditions: conditions(s.GetConditions()),
			Progress:   progress(s.GetProgress()),
		},
	}, nil
}

// CredentialReport translates a credential, without its certificate; see ClusterReport.
func CredentialReport(c *clusterservicev1.BreakGlassCredential) (Report, error) {
	s := c.GetStatus()
	state, err := phase("status.state", s.GetState(), credentialStates)
	if err != nil {
		return Report{}, fmt.Errorf("reading the report of credential %s: %w", c.GetUid(), err)
	}
	report := Report{
		UID:        c.GetUid(),
		Revision:   c.GetRevision(),
		Phase:      state,
		Conditions: conditions(s.GetConditions()),
	}
	if s.GetExpirationTime() != nil {
		expiration := when(s.GetExpirationTime())
		report.Expiration = &expiration
	}
	return report, nil
}

// RevocationReport translates a revocation; see ClusterReport.
func RevocationReport(r *clusterservicev1.BreakGlassRevocation) (Report, error) {
	s := r.GetStatus()
	state, err := phase("status.state", s.GetState(), revocationStates)
	if err != nil {
		return Report{}, fmt.Errorf("reading the report of revocation %s: %w", r.GetUid(), err)
	}
	return Report{
		UID:        r.GetUid(),
		Revision:   r.GetRevision(),
		Phase:      state,
		Conditions: conditions(s.GetConditions()),
	}, nil
}

// specOf returns spec, and a nil interface for a nil message.
func specOf[M interface {
	comparable
	proto.Message
}](spec M) proto.Message {
	var none M
	if spec == none {
		return nil
	}
	return spec
}

func conditions(reported []*clusterservicev1.Condition) []hub.Condition {
	var result []hub.Condition
	for _, c := range reported {
		result = append(result, hub.Condition{
			Type: c.GetType(), Status: c.GetStatus(), Reason: c.GetReason(), Message: c.GetMessage(), LastTransitionTime: when(c.GetLastTransitionTime()),
		})
	}
	return result
}

func identitiesRead(reported map[string]*clusterservicev1.UserAssignedIdentity) map[string]hub.UserAssignedIdentity {
	var result map[string]hub.UserAssignedIdentity
	for id, identity := range reported {
		if result == nil {
			result = make(map[string]hub.UserAssignedIdentity, len(reported))
		}
		result[hub.Key(id)] = hub.UserAssignedIdentity{ClientID: identity.GetClientId(), PrincipalID: identity.GetPrincipalId()}
	}
	return result
}

func progress(reported []*clusterservicev1.LayerProgress) []hub.Progress {
	var result []hub.Progress
	for _, p := range reported {
		result = append(result, hub.Progress{Layer: p.GetLayer(), State: p.GetState(), Message: p.GetMessage(), Since: when(p.GetSince())})
	}
	return result
}

func when(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime().UTC()
}

package clusterservice

import (
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
)

// The phases of a report that decide on an operation, as FleetState keeps them.
const (
	PhasePending    = "Pending"
	PhaseInstalling = "Installing"
	PhaseReady      = "Ready"
	PhaseUpdating   = "Updating"
	PhaseDeleting   = "Deleting"
	PhaseDeleted    = "Deleted"
	PhaseFailed     = "Failed"
	// PhaseAwaitingSecret is an external auth's that has taken effect but for a confidential client without its secret.
	PhaseAwaitingSecret = "AwaitingSecret"
)

// The states of credentials and revocations, which a report has as its Phase; besides PhasePending and PhaseFailed.
const (
	StateIssued             = "Issued"
	StateAwaitingRevocation = "AwaitingRevocation"
	StateRevoked            = "Revoked"
	StateExpired            = "Expired"
	StateRevoking           = "Revoking"
	StateSucceeded          = "Succeeded"
	StateCanceled           = "Canceled"
)

// Report is what Cluster Service says of one incarnation of a cluster, node pool or external auth, or of a credential or a
// revocation, in the form that all share.
type Report struct {
	UID string
	// ResourceID is empty for credentials and revocations, which Cluster Service knows by their uids only.
	ResourceID string
	// Revision orders reports; Generation is the newest that Cluster Service has stored, Observed the newest in effect.
	Revision           int64
	Generation         int64
	ObservedGeneration int64
	// Phase is one of the constants; empty for a phase of another release.
	Phase string
	// Deleting is set once deletion was asked for, which was at DeleteTime.
	Deleting   bool
	DeleteTime time.Time
	Conditions []hub.Condition
	// Cluster, NodePool or ExternalAuth is set for one of these.
	Cluster      *hub.ClusterStatus
	NodePool     *hub.NodePoolStatus
	ExternalAuth *hub.ExternalAuthStatus
	// Spec is the desired state of that generation; nil for credentials and revocations.
	Spec proto.Message
	// RecoveryFingerprint says of which state of a cluster its recovery would be; empty for none.
	RecoveryFingerprint string
	// Expiration is when an issued credential's certificate ends.
	Expiration *time.Time
}

// ClusterReport reads a cluster's report.
func ClusterReport(c *clusterservicev1.Cluster) Report {
	s := c.GetStatus()
	return Report{
		UID:                 c.GetUid(),
		ResourceID:          c.GetResourceId(),
		Revision:            c.GetRevision(),
		Generation:          c.GetGeneration(),
		Spec:                specOf(c.GetSpec()),
		ObservedGeneration:  s.GetObservedGeneration(),
		Phase:               phase(s.GetPhase().String(), "CLUSTER_PHASE_"),
		Deleting:            c.GetDeleteTime() != nil,
		DeleteTime:          when(c.GetDeleteTime()),
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
		},
	}
}

// NodePoolReport reads a node pool's report.
func NodePoolReport(n *clusterservicev1.NodePool) Report {
	s := n.GetStatus()
	return Report{
		UID:                n.GetUid(),
		ResourceID:         n.GetResourceId(),
		Revision:           n.GetRevision(),
		Generation:         n.GetGeneration(),
		Spec:               specOf(n.GetSpec()),
		ObservedGeneration: s.GetObservedGeneration(),
		Phase:              phase(s.GetPhase().String(), "NODE_POOL_PHASE_"),
		Deleting:           n.GetDeleteTime() != nil,
		DeleteTime:         when(n.GetDeleteTime()),
		Conditions:         conditions(s.GetConditions()),
		NodePool: &hub.NodePoolStatus{
			Conditions: conditions(s.GetConditions()),
			Replicas:   s.GetReplicas(),
			Version:    s.GetVersion(),
			Progress:   progress(s.GetProgress()),
		},
	}
}

// ExternalAuthReport reads an external auth's report.
func ExternalAuthReport(e *clusterservicev1.ExternalAuth) Report {
	s := e.GetStatus()
	return Report{
		UID:                e.GetUid(),
		ResourceID:         e.GetResourceId(),
		Revision:           e.GetRevision(),
		Generation:         e.GetGeneration(),
		Spec:               specOf(e.GetSpec()),
		ObservedGeneration: s.GetObservedGeneration(),
		Phase:              phase(s.GetPhase().String(), "EXTERNAL_AUTH_PHASE_"),
		Deleting:           e.GetDeleteTime() != nil,
		DeleteTime:         when(e.GetDeleteTime()),
		Conditions:         conditions(s.GetConditions()),
		ExternalAuth: &hub.ExternalAuthStatus{
			Conditions: conditions(s.GetConditions()),
			Progress:   progress(s.GetProgress()),
		},
	}
}

// CredentialReport reads a credential's report, without the certificate.
func CredentialReport(c *clusterservicev1.BreakGlassCredential) Report {
	s := c.GetStatus()
	report := Report{
		UID:        c.GetUid(),
		Revision:   c.GetRevision(),
		Phase:      phase(s.GetState().String(), "BREAK_GLASS_CREDENTIAL_STATE_"),
		Conditions: conditions(s.GetConditions()),
	}
	if s.GetExpirationTime() != nil {
		expiration := when(s.GetExpirationTime())
		report.Expiration = &expiration
	}
	return report
}

// RevocationReport reads a revocation's report.
func RevocationReport(r *clusterservicev1.BreakGlassRevocation) Report {
	s := r.GetStatus()
	return Report{
		UID:        r.GetUid(),
		Revision:   r.GetRevision(),
		Phase:      phase(s.GetState().String(), "BREAK_GLASS_REVOCATION_STATE_"),
		Conditions: conditions(s.GetConditions()),
	}
}

// specOf is a message, or nothing for one that there is not.
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

func phase(name, prefix string) string {
	word := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(name, prefix), "_", ""))
	for _, known := range []string{
		PhasePending, PhaseInstalling, PhaseReady, PhaseUpdating, PhaseDeleting, PhaseDeleted, PhaseFailed, PhaseAwaitingSecret,
		StateIssued, StateAwaitingRevocation, StateRevoked, StateExpired, StateRevoking, StateSucceeded, StateCanceled,
	} {
		if strings.ToLower(known) == word {
			return known
		}
	}
	return ""
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

package adminv1

import "time"

// AccessClass is a class of actions. An elevation is requested for one class; it includes the classes before it.
type AccessClass string

// The classes in ascending order.
const (
	// Operate has the actions of the role operator, which can be undone.
	Operate AccessClass = "operate"
	// Recover has actions that override a safeguard or cannot be undone, for example a forced deletion step.
	Recover AccessClass = "recover"
	// BreakGlassAccess has requests for credentials of the level admin.
	BreakGlassAccess AccessClass = "break-glass"
)

// AccessClasses returns all classes in ascending order.
func AccessClasses() []AccessClass { return []AccessClass{Operate, Recover, BreakGlassAccess} }

// Role returns the role that the class needs; empty for an unknown class.
func (c AccessClass) Role() Role {
	switch c {
	case Operate:
		return Operator
	case Recover, BreakGlassAccess:
		return BreakGlass
	}
	return ""
}

// Includes reports whether an elevation for the class permits the actions of another. An unknown class includes nothing.
func (c AccessClass) Includes(other AccessClass) bool {
	rank := map[AccessClass]int{Operate: 1, Recover: 2, BreakGlassAccess: 3}
	return rank[other] > 0 && rank[c] >= rank[other]
}

// ElevationRequest requests an elevation.
type ElevationRequest struct {
	Class AccessClass `json:"class"`
	// Cluster is any identifier of one cluster, to which the elevation is limited. Empty means the whole region.
	Cluster string `json:"cluster,omitempty"`
	// Reason has 8 to 1024 characters. It is recorded with each action under the elevation.
	Reason string `json:"reason"`
	// Ticket is the incident or change, at most 128 characters. The access policy states whether it is required, and whether the
	// ticket validator must accept it.
	Ticket string `json:"ticket"`
	// Duration is a Go duration from 1m to the limit of the access policy, at most 8h; for example 30m.
	Duration string `json:"duration"`
	// Emergency waives the approval, and the validation of the ticket if the validator does not answer. Each use raises an alert, and a second person must review it.
	Emergency bool `json:"emergency,omitempty"`
}

// ElevationState is the state of an elevation.
type ElevationState string

// The states. Expired is a request that was not activated in time, or an elevation after its expiration.
const (
	ElevationRequested ElevationState = "Requested"
	ElevationApproved  ElevationState = "Approved"
	ElevationDenied    ElevationState = "Denied"
	ElevationActive    ElevationState = "Active"
	ElevationEnded     ElevationState = "Ended"
	ElevationExpired   ElevationState = "Expired"
)

// Elevation allows its creator to request actions of its class while it is active.
type Elevation struct {
	ID       string         `json:"id"`
	State    ElevationState `json:"state"`
	Name     string         `json:"name"`
	ObjectID string         `json:"objectId"`
	Class    AccessClass    `json:"class"`
	// Role is the role that the class needs.
	Role Role `json:"role"`
	// Cluster is the cluster to which the elevation is limited; nil means the whole region.
	Cluster *ElevationCluster `json:"cluster,omitempty"`
	Reason  string            `json:"reason"`
	Ticket  string            `json:"ticket"`
	// TicketCheck is the last answer of the ticket validator; nil if the access policy does not validate tickets of the class.
	TicketCheck *TicketCheck `json:"ticketCheck,omitempty"`
	// Duration is the requested time from the activation to the expiration.
	Duration    string    `json:"duration"`
	RequestTime time.Time `json:"requestTime"`
	// RequestExpirationTime limits the approval and the activation.
	RequestExpirationTime time.Time `json:"requestExpirationTime"`
	// Decision is that of the approver; nil if the access policy needs none, or until then.
	Decision *ElevationDecision `json:"decision,omitempty"`
	// Emergency elevations need a Review.
	Emergency bool             `json:"emergency,omitempty"`
	Review    *ElevationReview `json:"review,omitempty"`
	// StartTime and ExpirationTime are set from the activation on.
	StartTime      *time.Time `json:"startTime,omitempty"`
	ExpirationTime *time.Time `json:"expirationTime,omitempty"`
	EndTime        *time.Time `json:"endTime,omitempty"`
	EndedBy        string     `json:"endedBy,omitempty"`
	// EndReason is set if the ticket validator ended it.
	EndReason string `json:"endReason,omitempty"`
	// Credentials are the clusters for which break-glass credentials were requested with it. Ending it revokes them.
	Credentials []ElevationCredentials `json:"credentials,omitempty"`
	// Active is true if the elevation was active when the response was sent.
	Active bool `json:"active"`
}

// TicketCheck is the answer of the ticket validator about an accepted ticket.
type TicketCheck struct {
	Title string `json:"title,omitempty"`
	Link  string `json:"link,omitempty"`
	// Waived is why the validator did not answer, in an emergency. Then the ticket was not validated.
	Waived string    `json:"waived,omitempty"`
	Time   time.Time `json:"time"`
}

// ElevationCluster is the cluster of an elevation.
type ElevationCluster struct {
	UID        string `json:"uid"`
	ResourceID string `json:"resourceId,omitempty"`
}

// ElevationCredentials are the break-glass credentials of one cluster, or the sessions for one management cluster or for the service cluster, that were
// requested with an elevation.
type ElevationCredentials struct {
	// Cluster is the cluster; empty for a management cluster and for the service cluster.
	Cluster ElevationCluster `json:"cluster,omitzero"`
	// Shard is the provision shard of the management cluster, or service-cluster; empty for a cluster.
	Shard string `json:"shard,omitempty"`
	// Revocation is set from the end of the elevation on, unless that was its expiration.
	Revocation *ElevationRevocation `json:"revocation,omitempty"`
}

// Object names what the credentials are for: cluster UID, management cluster NAME, or the service cluster.
func (c *ElevationCredentials) Object() string {
	switch c.Shard {
	case "":
		return "cluster " + c.Cluster.UID
	case ServiceCluster:
		return "the service cluster"
	}
	return "management cluster " + c.Shard
}

// ElevationRevocation is the progress of the revocation of credentials, because their elevation was ended.
type ElevationRevocation struct {
	// OperationID is the ID of the operation, and the UID of the revocation in Cluster Service.
	OperationID string          `json:"operationId"`
	State       RevocationState `json:"state"`
	// Message states what a revocation waits for, or why it failed or is unknown.
	Message string `json:"message,omitempty"`
	// AcceptedUntil is when the last certificate expires at the latest. The API server may accept it until then, unless it is revoked.
	AcceptedUntil time.Time `json:"acceptedUntil"`
}

// RevocationState is the state of the revocation of credentials.
type RevocationState string

// The states.
const (
	// RevocationRequested: Cluster Service has not accepted it yet. It is retried.
	RevocationRequested RevocationState = "Requested"
	// RevocationRevoking: the control plane replaces the signer of the certificates.
	RevocationRevoking RevocationState = "Revoking"
	// RevocationRevoked: the API server accepts none of the certificates.
	RevocationRevoked RevocationState = "Revoked"
	// RevocationExpired: the certificates have expired. Lists do not state whether they were revoked before.
	RevocationExpired RevocationState = "Expired"
	// RevocationFailed: the certificates work until they expire.
	RevocationFailed RevocationState = "Failed"
	// RevocationUnknown: Cluster Service does not respond. The revocation continues.
	RevocationUnknown RevocationState = "Unknown"
)

// ElevationDecision is the decision of a second person about a request.
type ElevationDecision struct {
	Approved bool      `json:"approved"`
	Name     string    `json:"name"`
	ObjectID string    `json:"objectId"`
	Reason   string    `json:"reason"`
	Time     time.Time `json:"time"`
}

// DecisionRequest approves or denies a request.
type DecisionRequest struct {
	// Reason has 8 to 1024 characters.
	Reason string `json:"reason"`
}

// ElevationReview is the conclusion of a second person about an emergency elevation.
type ElevationReview struct {
	Justified bool      `json:"justified"`
	Name      string    `json:"name"`
	ObjectID  string    `json:"objectId"`
	Comment   string    `json:"comment"`
	Time      time.Time `json:"time"`
}

// ReviewRequest closes the review of an emergency elevation.
type ReviewRequest struct {
	// Justified states whether the emergency was one.
	Justified bool `json:"justified"`
	// Comment has 8 to 1024 characters.
	Comment string `json:"comment"`
}

// ElevationList is a page of elevations, newest first.
type ElevationList struct {
	Items         []Elevation `json:"items"`
	NextPageToken string      `json:"nextPageToken,omitempty"`
}

package database

import "time"

// ElevationState is the stored state of an elevation.
type ElevationState string

// The states. An elevation that an approver must decide is created in the state Requested, others in the state Active. Time
// alone changes no stored state: see ElevationDocument.Active.
const (
	ElevationRequested ElevationState = "Requested"
	ElevationApproved  ElevationState = "Approved"
	ElevationDenied    ElevationState = "Denied"
	ElevationActive    ElevationState = "Active"
	ElevationEnded     ElevationState = "Ended"
)

// TargetRegion is the kind and the ID of the target of an elevation for the whole region.
const TargetRegion = "region"

// ElevationDocument is the temporary right of an engineer to request actions of a class, from the request to the review.
// Package elevation of admin decides its transitions.
type ElevationDocument struct {
	ElevationID string `json:"elevationId"`
	SortKey     string `json:"place"`
	// RequestDigest identifies the content of the request, so that a repeated request returns the same elevation. It may be empty.
	RequestDigest string `json:"requestDigest,omitempty"`
	// Actor.Role is the role that the class needs.
	Actor AdminActor `json:"actor"`
	// State is empty in documents of releases that had no approvals; such an elevation is not active.
	State ElevationState `json:"state,omitempty"`
	// Class is the class of actions.
	Class string `json:"class,omitempty"`
	// Target is a cluster, or the region.
	Target AdminTarget `json:"target"`
	// RequestTime is when it was requested. It can be approved and activated before RequestExpirationTime.
	RequestTime           time.Time `json:"requestTime,omitzero"`
	RequestExpirationTime time.Time `json:"requestExpirationTime,omitzero"`
	// DurationSeconds is the requested time from the activation to ExpirationTime.
	DurationSeconds int64 `json:"durationSeconds,omitempty"`
	// TicketCheck is the last answer about the ticket; nil if the policy does not validate tickets.
	TicketCheck *ElevationTicket `json:"ticketCheck,omitempty"`
	// Decision is that of the approver. It is nil until then, and if the policy needs none.
	Decision *ElevationDecision `json:"decision,omitempty"`
	// Emergency waived the approval.
	Emergency bool `json:"emergency,omitempty"`
	// Review closes an emergency elevation.
	Review *ElevationReview `json:"review,omitempty"`
	// StartTime and ExpirationTime are set when it becomes active.
	StartTime      time.Time `json:"startTime,omitzero"`
	ExpirationTime time.Time `json:"expirationTime,omitzero"`
	// EndTime and EndedBy are set when it is denied, withdrawn or ended before it expired.
	EndTime *time.Time `json:"endTime,omitempty"`
	EndedBy string     `json:"endedBy,omitempty"`
	// EndReason is why the ticket validator ended it; empty if a person did.
	EndReason string `json:"endReason,omitempty"`
	// Credentials are the clusters for which break-glass credentials were requested with it.
	Credentials []ElevationCredentials `json:"credentials,omitempty"`
	// Seal is admin's signature over the other fields. Without it, the document permits nothing. It is never shown.
	Seal string `json:"seal,omitempty"`
}

// ElevationTicket is the answer of the ticket validator. Waived is the reason why there is none, in an emergency.
type ElevationTicket struct {
	Title  string    `json:"title,omitempty"`
	Link   string    `json:"link,omitempty"`
	Waived string    `json:"waived,omitempty"`
	Time   time.Time `json:"time"`
}

// ElevationDecision is the decision of a second person about a request.
type ElevationDecision struct {
	Approved bool      `json:"approved"`
	Name     string    `json:"name"`
	ObjectID string    `json:"objectId"`
	TenantID string    `json:"tenantId,omitempty"`
	Reason   string    `json:"reason"`
	Time     time.Time `json:"time"`
}

// ElevationCredentials are the credentials of one cluster, or the sessions for one management cluster, that were requested with an elevation.
type ElevationCredentials struct {
	// ClusterUID and ResourceID identify the cluster. Shard is the provision shard of the management cluster, or service-cluster; empty for a
	// cluster.
	ClusterUID string `json:"clusterUid,omitempty"`
	ResourceID string `json:"resourceId,omitempty"`
	Shard      string `json:"shard,omitempty"`
	// RevocationID is the ID of the admin operation that revokes the credentials or ends the sessions. It is set when the elevation is ended.
	RevocationID string `json:"revocationId,omitempty"`
}

// ElevationReview is the conclusion of a second person about an emergency elevation.
type ElevationReview struct {
	Justified bool      `json:"justified"`
	Name      string    `json:"name"`
	ObjectID  string    `json:"objectId"`
	TenantID  string    `json:"tenantId,omitempty"`
	Comment   string    `json:"comment"`
	Time      time.Time `json:"time"`
}

// Active reports whether the elevation permits actions at a time.
func (e *ElevationDocument) Active(now time.Time) bool {
	return e.State == ElevationActive && e.EndTime == nil && now.Before(e.ExpirationTime)
}

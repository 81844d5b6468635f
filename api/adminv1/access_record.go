package adminv1

import "time"

// AccessRecordType is the resource type of an AccessRecord, in the form of ARM's types.
const AccessRecordType = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/auditRecords"

// AccessRecordList is a page of the records of who did something with a cluster, or read sensitive data of it, newest first. It has
// the form of ARM's lists.
type AccessRecordList struct {
	Value []AccessRecord `json:"value"`
	// NextLink is the URL of the next page. A page may have fewer records than asked for, or none, although more follow.
	NextLink string `json:"nextLink,omitempty"`
}

// AccessRecord is one audit record about a cluster.
type AccessRecord struct {
	// ID is the ARM resource ID of the cluster, followed by /auditRecords/ and the name.
	ID string `json:"id"`
	// Name is unique in the region.
	Name       string                 `json:"name"`
	Type       string                 `json:"type"`
	Properties AccessRecordProperties `json:"properties"`
}

// AccessRecordProperties describe who did what, why, and with which outcome.
type AccessRecordProperties struct {
	Time time.Time `json:"time"`
	// Person is the name of the engineer.
	Person string `json:"person"`
	Role   string `json:"role,omitempty"`
	// Action is the name of the action, for example clusters.dump. ObjectKind and ObjectID are its object, the cluster or a part of it.
	Action     string `json:"action"`
	ObjectKind string `json:"objectKind,omitempty"`
	ObjectID   string `json:"objectId,omitempty"`
	// Level is the level of a requested credential: reader or admin.
	Level  Level  `json:"level,omitempty"`
	Reason string `json:"reason,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// Outcome is accepted, succeeded, failed, refused, or unknown if the process ended before it stored the outcome: the action may have
	// had its effect. ErrorCode is the code of an error.
	Outcome   string `json:"outcome"`
	ErrorCode string `json:"errorCode,omitempty"`
	// OperationID is the ID of the admin operation, if there is one.
	OperationID string `json:"operationId,omitempty"`
	// Unconfirmed is true for a record that no signed checkpoint confirms: it may be forged. Checkpoints follow records within a minute.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

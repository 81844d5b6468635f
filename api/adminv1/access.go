package adminv1

import "time"

// AccessType is the ARM resource type of an Access.
const AccessType = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/accessRecords"

// AccessFormatARM is the value of the parameter format that selects the form for customers, which names nobody.
const AccessFormatARM = "arm"

// AccessList is a page of the accesses of engineers to a cluster, newest first. It has the form of ARM's lists.
type AccessList struct {
	Value []Access `json:"value"`
	// NextLink is the URL of the next page. A page may have fewer accesses than asked for, or none, although more follow.
	NextLink string `json:"nextLink,omitempty"`
}

// Access is the access of one engineer to one cluster under one elevation: all that is known about it.
type Access struct {
	// ID is the ARM resource ID of the cluster, followed by /accessRecords/ and the name, which is the ID of the elevation.
	ID         string           `json:"id"`
	Name       string           `json:"name"`
	Type       string           `json:"type"`
	Properties AccessProperties `json:"properties"`
	SystemData AccessSystemData `json:"systemData"`
}

// AccessSystemData has the fields of ARM's systemData that an Access has. CreatedBy is the alias of the engineer.
type AccessSystemData struct {
	CreatedBy     string    `json:"createdBy"`
	CreatedByType string    `json:"createdByType"`
	CreatedAt     time.Time `json:"createdAt"`
}

// AccessPerson is a person in an Access.
type AccessPerson struct {
	// Alias is the same for all accesses of a person to clusters of one subscription, and differs between subscriptions.
	Alias string `json:"alias"`
	// Organization is the ID of the person's tenant in Microsoft Entra.
	Organization string `json:"organization"`
	// Name is the name of the person. The form for customers has none.
	Name string `json:"name,omitempty"`
}

// AccessProperties describe who had access, when, why, by whose approval, and what was done.
type AccessProperties struct {
	Engineer AccessPerson `json:"engineer"`
	// Class and Role are those of the elevation. Scope is cluster, or region for an elevation for all clusters.
	Class AccessClass `json:"class"`
	Role  Role        `json:"role"`
	Scope string      `json:"scope"`
	// State is Active, Ended or Expired.
	State       ElevationState `json:"state"`
	Reason      string         `json:"reason"`
	Ticket      string         `json:"ticket,omitempty"`
	RequestTime time.Time      `json:"requestTime"`
	// StartTime is the beginning of the access, and EndTime its end; until then, the time when it expires.
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
	// Approval is nil if the access policy required none, or if Emergency waived it.
	Approval  *AccessApproval `json:"approval,omitempty"`
	Emergency bool            `json:"emergency,omitempty"`
	// Uses are the sessions and the break-glass credentials of the access, in the order of their beginning.
	Uses []AccessUse `json:"uses"`
	// Activity counts what was done, from the audit.
	Activity []AccessActivity `json:"activity"`
	// ActivityIncomplete is why Activity and Uses may lack something; empty if they are complete.
	ActivityIncomplete string `json:"activityIncomplete,omitempty"`
	// ActivityUnconfirmed is true if Activity and Uses have audit records that no signed checkpoint confirms: they may be forged.
	ActivityUnconfirmed bool `json:"activityUnconfirmed,omitempty"`
}

// AccessApproval is the approval of a second person.
type AccessApproval struct {
	Approver AccessPerson `json:"approver"`
	Reason   string       `json:"reason,omitempty"`
	Time     time.Time    `json:"time"`
}

// The kinds of an AccessUse.
const (
	AccessUseSession    = "session"
	AccessUseCredential = "credential"
)

// AccessUse is an access session or a break-glass credential.
type AccessUse struct {
	ID string `json:"id"`
	// Kind is session or credential.
	Kind  string `json:"kind"`
	Level Level  `json:"level,omitempty"`
	// StartTime is when its certificate was issued, and EndTime when it ended; nil until then.
	StartTime *time.Time `json:"startTime,omitempty"`
	EndTime   *time.Time `json:"endTime,omitempty"`
}

// AccessActivity counts requests of one kind. Failed and Refused are part of Count.
type AccessActivity struct {
	// Verb is a verb of Kubernetes with the Resource that it was for, or an action of admin with the kind of its object.
	Verb     string `json:"verb"`
	Resource string `json:"resource,omitempty"`
	Count    int    `json:"count"`
	Failed   int    `json:"failed,omitempty"`
	Refused  int    `json:"refused,omitempty"`
}

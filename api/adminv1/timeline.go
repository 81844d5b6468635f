package adminv1

import "time"

// Timeline is what happened to a cluster and its children within a period, from all layers. It contains what the layers still have: ARM
// keeps operations and Cluster Service keeps upgrades for a week, Cluster Service keeps the newest 500
// changes and monitor the newest 200 transitions for 14 days, and Prometheus keeps alerts as long as all series.
type Timeline struct {
	// Time is when the layers were read.
	Time    time.Time `json:"time"`
	Cluster Cluster   `json:"cluster"`
	// From and To bound the period. Both are inclusive.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Entries are in order of time. An entry that lasts is part of the period in which it began and of those in which it continued.
	Entries []TimelineEntry `json:"entries"`
	// Omitted is the number of older entries that a timeline of this length does not contain.
	Omitted int `json:"omitted,omitempty"`
	// DesiredState is how the desired states at the end of the period differ from those at its beginning.
	DesiredState []TimelineDifference `json:"desiredState"`
	// Partial is true if a layer could not be read. Unavailable maps each such layer to the reason.
	Partial     bool              `json:"partial"`
	Unavailable map[string]string `json:"unavailable,omitempty"`
}

// TimelineKind is the kind of an entry of a timeline.
type TimelineKind string

// The kinds of entries.
const (
	// TimelineOperation is an operation of the customer in ARM.
	TimelineOperation TimelineKind = "Operation"
	// TimelineDesiredState is a new generation in Cluster Service.
	TimelineDesiredState TimelineKind = "DesiredState"
	// TimelinePhase is a change of a phase, and TimelineCondition a change of a condition.
	TimelinePhase     TimelineKind = "Phase"
	TimelineCondition TimelineKind = "Condition"
	// TimelineAction is an action of an SRE, and TimelineAccess an audited read of an SRE.
	TimelineAction TimelineKind = "Action"
	TimelineAccess TimelineKind = "Access"
	// TimelineUpgrade is an upgrade, and TimelineUpgradeStep a step of it.
	TimelineUpgrade     TimelineKind = "Upgrade"
	TimelineUpgradeStep TimelineKind = "UpgradeStep"
	// TimelineCredential is a break-glass credential, and TimelineRevocation a revocation of credentials.
	TimelineCredential TimelineKind = "Credential"
	TimelineRevocation TimelineKind = "Revocation"
	// TimelineAPI is a change of the state of the cluster's API, and TimelineConcern the beginning or the end of a concern about it, as
	// monitor saw them.
	TimelineAPI     TimelineKind = "API"
	TimelineConcern TimelineKind = "Concern"
	// TimelineAlert is an alert about the cluster or its provision shard, or a page about the region, that fired.
	TimelineAlert TimelineKind = "Alert"
	// TimelineOutage is the absence of a component of the region that continues.
	TimelineOutage TimelineKind = "Outage"
)

// TimelineKinds returns all kinds.
func TimelineKinds() []TimelineKind {
	return []TimelineKind{TimelineOperation, TimelineDesiredState, TimelinePhase, TimelineCondition, TimelineAction, TimelineAccess, TimelineUpgrade,
		TimelineUpgradeStep, TimelineCredential, TimelineRevocation, TimelineAPI, TimelineConcern, TimelineAlert, TimelineOutage}
}

// The layers of entries and of Timeline.Unavailable, besides LayerARM, LayerClusterService and LayerMonitor.
const (
	// LayerAdmin has the actions of SREs.
	LayerAdmin = "admin"
	// LayerAudit has the audit records.
	LayerAudit = "audit"
	// LayerRegion has the components of the region.
	LayerRegion = "region"
	// LayerAlerts has the alerts that fired.
	LayerAlerts = "alerts"
)

// TimelineEntry is one fact of a timeline.
type TimelineEntry struct {
	Time time.Time `json:"time"`
	// EndTime is when an entry that lasts ended. It is absent while the entry continues, and for entries that do not last.
	EndTime *time.Time   `json:"endTime,omitempty"`
	Layer   string       `json:"layer"`
	Kind    TimelineKind `json:"kind"`
	// Subject is the resource: empty for the cluster, and for a child its path below the cluster, for example nodePools/workers.
	Subject string `json:"subject,omitempty"`
	// Summary is a sentence.
	Summary string `json:"summary"`
	// Person requested the entry, for the reason and with the ticket. They are empty for entries that no SRE requested.
	Person string `json:"person,omitempty"`
	Reason string `json:"reason,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// ID is the ID of the operation, action, upgrade, credential or revocation.
	ID string `json:"id,omitempty"`
	// Fields are the changed fields of a TimelineDesiredState.
	Fields []FieldDifference `json:"fields,omitempty"`
}

// TimelineDifference is how the desired state of a resource differs between two times.
type TimelineDifference struct {
	// Subject is the resource, as in TimelineEntry.
	Subject string `json:"subject,omitempty"`
	// FromGeneration is the generation at the beginning of the period; 0 if the resource did not exist or if it is unknown.
	FromGeneration int64 `json:"fromGeneration,omitempty"`
	ToGeneration   int64 `json:"toGeneration"`
	// Fields are the fields that differ, in order of path. For a resource that was created within the period, they are those that changed
	// since its creation.
	Fields []FieldDifference `json:"fields,omitempty"`
}

// FieldDifference is how a field differs between two generations.
type FieldDifference struct {
	// Path is the path of the field in the JSON form of Cluster Service's spec, for example version.id.
	Path string `json:"path"`
	// Before and After are the values as JSON. They are empty if the field is absent, and end with … if they were cut.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

package adminv1

import "time"

// The states of a cluster's API.
const (
	HealthAvailable   = "available"
	HealthUnavailable = "unavailable"
	HealthUnknown     = "unknown"
)

// The reasons why the state of an API is unknown that admin adds to those of monitor.
const (
	// HealthMonitorAway means that no replica of monitor has reported recently that it probes the cluster.
	HealthMonitorAway = "monitor_away"
	// HealthNotRecorded means that monitor has not recorded a state of the cluster yet.
	HealthNotRecorded = "not_recorded"
	// HealthBlind means that monitor cannot see any cluster.
	HealthBlind = "blind"
	// HealthUnreadable means that the records of monitor could not be read.
	HealthUnreadable = "unreadable"
)

// Health is what monitor states about the API of a cluster.
type Health struct {
	// API is one of the constants HealthAvailable, HealthUnavailable and HealthUnknown.
	API string `json:"api"`
	// Reason is why the state is unknown: one of monitor's reasons or of the constants above. Detail explains it for people.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Since is when the state began, as far as monitor saw it.
	Since time.Time `json:"since,omitzero"`
	// Concerns are what is wrong with the cluster, the most important one first.
	Concerns []HealthConcern `json:"concerns,omitempty"`
}

// HealthConcern is one thing that is wrong with a cluster.
type HealthConcern struct {
	// Kind is one of monitor's kinds of concerns, for example etcd_fails.
	Kind  string    `json:"kind"`
	Since time.Time `json:"since"`
	// Fault is who causes the concern and can end it: customer or service.
	Fault string `json:"fault"`
	// Summary states what is wrong with the API, for example "its etcd does not answer".
	Summary string `json:"summary,omitempty"`
	// Evidence is what monitor saw when the concern began. Help is what an engineer or the customer does about it, a sentence.
	Evidence string `json:"evidence,omitempty"`
	Help     string `json:"help,omitempty"`
}

// The events of a JournalEntry.
const (
	// JournalAPI means that the state of the API changed.
	JournalAPI = "api"
	// JournalConcernBegan and JournalConcernEnded mean that monitor began or ceased to see a concern.
	JournalConcernBegan = "concern_began"
	JournalConcernEnded = "concern_ended"
)

// JournalEntry is one transition that monitor recorded about a cluster.
type JournalEntry struct {
	// Time is when monitor recorded the transition.
	Time time.Time `json:"time"`
	// Event is one of the constants that begin with Journal.
	Event string `json:"event"`
	// From and To are states of the API; only for JournalAPI. From is empty in the first entry of a cluster.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Reason is why the state To is unknown.
	Reason string `json:"reason,omitempty"`
	// Kind and Fault identify the concern; only for concerns.
	Kind  string `json:"kind,omitempty"`
	Fault string `json:"fault,omitempty"`
	// Since is when the state or the concern began, as far as monitor saw it. It can be earlier than Time.
	Since time.Time `json:"since,omitzero"`
	// Evidence is what monitor saw.
	Evidence string `json:"evidence,omitempty"`
}

// Journal is what monitor recorded about a cluster.
type Journal struct {
	Health Health `json:"health"`
	// Items are the transitions of the last 14 days, at most 200, the newest first.
	Items []JournalEntry `json:"items"`
}

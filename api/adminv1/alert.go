package adminv1

import (
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// The keys of AlertList.Unavailable.
const (
	// UnavailableAlerts is why the firing alerts are not known.
	UnavailableAlerts = "alerts"
	// UnavailableSilences is why the silences are not known.
	UnavailableSilences = "silences"
)

// AlertList lists the firing alerts of the region and the silences. A list that could not be read is nil and named in Unavailable; an empty list
// was read.
type AlertList struct {
	Time time.Time `json:"time"`
	// Alerts are those that page first, and then the oldest first.
	Alerts []Alert `json:"alerts,omitzero"`
	// More is true if more alerts fire than the listed 1000.
	More bool `json:"more,omitempty"`
	// Silences are those that have not expired, the one that ends first at the beginning.
	Silences []Silence `json:"silences,omitzero"`
	// MoreSilences is true if Alertmanager has more silences than the listed 1000, which end first.
	MoreSilences bool `json:"moreSilences,omitempty"`
	// IgnoredSilences are malformed silences of Alertmanager. They are not in Silences.
	IgnoredSilences wire.Ignored      `json:"ignoredSilences,omitzero"`
	Unavailable     map[string]string `json:"unavailable,omitempty"`
}

// Alert is a firing alert.
type Alert struct {
	Name string `json:"name"`
	// Severity is page, ticket, planned or heartbeat.
	Severity string `json:"severity"`
	// ProvisionShard and ClusterUID are what the alert is about; both are empty for an alert about the region.
	ProvisionShard string `json:"provisionShard,omitempty"`
	ClusterUID     string `json:"clusterUid,omitempty"`
	// Labels are all labels except the name.
	Labels map[string]string `json:"labels"`
	// Since is when the condition of the alert began to hold; nil if Prometheus does not have it.
	Since *time.Time `json:"since,omitempty"`
	// SilencedBy are the IDs of the silences that match its labels. They may match it in Alertmanager also by labels that only that adds.
	SilencedBy []string `json:"silencedBy,omitempty"`
}

// SilenceState is the state of a silence.
type SilenceState string

// The states. An expired silence is not listed.
const (
	SilencePending SilenceState = "pending"
	SilenceActive  SilenceState = "active"
	SilenceExpired SilenceState = "expired"
)

// Silence stops the notifications of the alerts that it matches.
type Silence struct {
	ID       string           `json:"id"`
	State    SilenceState     `json:"state"`
	Matchers []SilenceMatcher `json:"matchers"`
	// StartTime and EndTime are its period.
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
	// CreatedBy is the name of the engineer, and Comment has the reason and the ticket.
	CreatedBy string `json:"createdBy"`
	Comment   string `json:"comment"`
}

// SilenceMatcher is a condition on a label. An alert without the label has an empty value.
type SilenceMatcher struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Regex is set if the value is an anchored regular expression, and Negative if the label must not match.
	Regex    bool `json:"regex,omitempty"`
	Negative bool `json:"negative,omitempty"`
}

// SilenceRequest silences the alerts with a name, and with these labels if there are any.
type SilenceRequest struct {
	Alert string `json:"alert"`
	// Labels are at most 10 labels with their values.
	Labels map[string]string `json:"labels,omitempty"`
	// Duration is a Go duration of 5m to 24h.
	Duration string `json:"duration"`
	// Reason has 8 to 1024 characters, and Ticket at most 128. Both are required.
	Reason string `json:"reason"`
	Ticket string `json:"ticket"`
}

// EndSilenceRequest ends a silence.
type EndSilenceRequest struct {
	// Reason has 8 to 1024 characters, and Ticket at most 128. Both are required.
	Reason string `json:"reason"`
	Ticket string `json:"ticket"`
}

// String returns the matcher as Alertmanager writes it, for example shard="mgmt-1".
func (m SilenceMatcher) String() string {
	operator := "="
	switch {
	case m.Regex && m.Negative:
		operator = "!~"
	case m.Regex:
		operator = "=~"
	case m.Negative:
		operator = "!="
	}
	return m.Name + operator + strconv.Quote(m.Value)
}

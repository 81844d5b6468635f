// Package hostedreport defines what programs on a management cluster report about a hosted control plane, in annotations of its
// HostedCluster, which Cluster Service reads with its status. A program maintains its report, and writes the annotation when the report
// changes. Reports are bounded. Their values come from outside, so that the functions that decode them ignore what is invalid.
package hostedreport

import "time"

const (
	// Again is the time after which another use of a reported credential, or another failure of a reported target, is reported again.
	Again = time.Hour
	// Kept is the time for which a credential stays in the report after its last known use, and a target after its last known failure.
	// Certificates of the control plane's signers are valid for at most 36 hours, so they have expired by then.
	Kept = 48 * time.Hour
)

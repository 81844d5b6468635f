package fleet

import (
	"strings"

	"github.com/google/uuid"
)

// ClusterIDOf is the id of the cluster that a work is named after; empty when the name is none of a work's.
func ClusterIDOf(workName string) string {
	id, _, _ := strings.Cut(workName, "-")
	if len(id) != len(ClusterID("")) {
		return ""
	}
	return id
}

// Ended says whether a work of which the tenancy knows no more is what is left of something of the cluster's that is deleted, or
// is being deleted: a publish that had its effect late, or a Maestro that was restored to an earlier state. Nobody misses it.
// What the tenancy never had, or still wants, is another matter: then it is the fleet that forgot, as after its own database
// was restored, and a customer's cluster may be all that knows better.
func (t *Tenancy) Ended(consumer, id, name string) bool {
	c := t.Cluster
	if c == nil {
		return false
	}
	for _, kind := range []WorkKind{Namespaces, HostedCluster} {
		if id == WorkID(consumer, WorkName(kind, c.ID(), ""), "") {
			return c.Deleting()
		}
	}
	for _, p := range t.Pools {
		if id == WorkID(consumer, WorkName(NodePoolWork, c.ID(), p.Spec.GetName()), p.UID) {
			return p.Deleting() || c.Deleting()
		}
	}
	// Requests and what is only looked at have no value of their own.
	for _, kind := range []WorkKind{CredentialWork, RevocationWork, RolloutWork} {
		if owner, found := strings.CutPrefix(name, WorkName(kind, c.ID(), "")); found && uuid.Validate(owner) == nil {
			return true
		}
	}
	return false
}

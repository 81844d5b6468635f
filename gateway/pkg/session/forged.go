package session

import (
	"reflect"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The reasons in the metric of forged sessions.
const (
	// forgedChanged is a document of which a field has changed that never changes.
	forgedChanged = "changed"
	// forgedUnverified is a document that names another engineer, elevation, cluster or mode than the credential or the token of its session.
	forgedUnverified = "unverified"
)

// refusal is how long a forged session is refused. Its credential has expired then: a certificate lasts 15 minutes.
const refusal = recent

// changedFields returns the JSON names of the fields that differ between two versions of a document, without those that the programs of the region change. A field
// that is added to the document must not change unless constantFields has it.
func changedFields(known, latest *database.AccessSessionDocument) (names []string) {
	before, after := reflect.ValueOf(constantFields(known)), reflect.ValueOf(constantFields(latest))
	for i := range before.NumField() {
		if !reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
			name, _, _ := strings.Cut(before.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	// The backend adds the intent once. An older version may follow a newer one.
	if known.Intent != "" && latest.Intent != "" && known.Intent != latest.Intent {
		names = append(names, "intent")
	}
	return names
}

// constantFields returns a document without the fields that change. None of them authorizes: the certificate confirms SealedKeys, and the program that issues a
// token verifies Intent and Parameters.
func constantFields(document *database.AccessSessionDocument) database.AccessSessionDocument {
	constant := *document
	constant.State, constant.SealedKeys, constant.Intent, constant.Parameters = "", nil, "", nil
	constant.ReadyTime, constant.ExpirationTime, constant.CertificateFingerprint = nil, nil, ""
	constant.EndTime, constant.EndedBy, constant.EndReason = nil, "", ""
	constant.Objects, constant.Unresolved = nil, false
	return constant
}

// refuse ends a forged session permanently: on this replica, in its document, and for all later versions of the document. cause is the reason in the metric. The number
// of refused sessions is at most that of the sessions that were open within the time of a refusal.
func (r *Registry) refuse(id string, e *entry, cause, reason string) {
	now := r.options.Clock.Now()
	for other, until := range r.refused {
		if !now.Before(until) {
			delete(r.refused, other)
		}
	}
	r.refused[id] = now.Add(refusal)
	r.forged.WithLabelValues(cause).Inc()
	r.options.Log.Error("an access session is forged", logkey.OperationID, id, logkey.ClusterUID, e.session.ClusterUID, logkey.Shard, e.session.Shard,
		logkey.ObjectID, e.session.Owner.ObjectID, logkey.Reason, cause, logkey.Message, reason)
	r.end(id, e, reason)
}

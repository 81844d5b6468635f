// Package audit defines the tamper-evident audit of a region: the record of one action, the lines in which each writer stores its
// records, and the keys that sign checkpoints.
//
// Each writer, a replica of a service, has one chain of lines. A line has a sequence number, the hash of the line before it and its
// own hash. A changed, deleted, inserted or moved line therefore breaks the chain. Checkpoints are lines that the writer signs, so
// that nobody without its key can calculate a new chain. A record is valid once a checkpoint follows; a checkpoint also closes the chain of a
// writer that ends. Package writer stores lines durably and exports them, package sink is the
// append-only storage, package verify finds broken chains.
//
// A record never contains secrets, bodies of requests or results.
package audit

import (
	"context"
	"strings"
	"unicode/utf8"
)

// The outcomes of an action.
const (
	// Started is stored before an action has an effect. Another record has its outcome.
	Started = "started"
	// Accepted is an action that was stored for execution, Succeeded one that was executed.
	Accepted  = "accepted"
	Succeeded = "succeeded"
	// Failed is an action that was permitted and had an error. Code is the error's code.
	Failed = "failed"
	// Refused is an action that the caller is not authorized to do.
	Refused = "refused"
	// Unknown is an action that began in a process that ended before it stored the outcome. The action may have had its effect.
	Unknown = "unknown"
)

// Record describes one action: who did what, to which object, why, and with which outcome.
type Record struct {
	// Peer is the verified identity of the calling workload; empty if the caller has only a token, or if no call caused the action. A
	// client of the broker also has its name: maestro-agent/mgmt-1.
	Peer string `json:"peer,omitempty"`
	// Person is the person in whose name the action was requested.
	Person Person `json:"person,omitzero"`
	// Action is the name of the route, method or event, for example clusters.dump.
	Action string `json:"action"`
	// Object is the object of the action.
	Object Object `json:"object,omitzero"`
	// Level is the level of an SRE's break-glass credential: reader or admin.
	Level string `json:"level,omitempty"`
	// Reason and Ticket are those that the person named.
	Reason string `json:"reason,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// Emergency is set for an elevation that waived the approval of a second person, and for the actions under it.
	Emergency bool `json:"emergency,omitempty"`
	// Outcome is one of the constants above. Code is the error's code if it is Failed or Refused.
	Outcome string `json:"outcome"`
	Code    string `json:"code,omitempty"`
	// Count is the number of refusals that the record stands for; 0 means one. See package refusals.
	Count int `json:"count,omitempty"`
	// Operation is the ID of the admin operation, elevation, credential or revocation.
	Operation string `json:"operation,omitempty"`
	// Request joins the records of one request. Trace is its W3C trace ID.
	Request string `json:"request,omitempty"`
	Trace   string `json:"trace,omitempty"`
}

// Person is the authenticated person of a Record.
type Person struct {
	Name string `json:"name,omitempty"`
	// As is the user in whose name the person called a Kubernetes API server, by impersonation.
	As        string `json:"as,omitempty"`
	ObjectID  string `json:"objectId,omitempty"`
	TenantID  string `json:"tenantId,omitempty"`
	Role      string `json:"role,omitempty"`
	Elevation string `json:"elevation,omitempty"`
}

// Object is the object of a Record.
type Object struct {
	// Kind is cluster, nodePool, provisionShard and so on; empty if the path of a refused request is all that is known.
	Kind string `json:"kind,omitempty"`
	ID   string `json:"id,omitempty"`
	// ResourceID is the ARM resource ID.
	ResourceID string `json:"resourceId,omitempty"`
	// Cluster is the UID of the cluster that the object belongs to, in lower case.
	Cluster string `json:"cluster,omitempty"`
	// Shard is the provision shard of the management cluster that has the object, or service-cluster; empty for an object of a cluster.
	Shard string `json:"shard,omitempty"`
}

// maxText is the maximum length of a text in a record, in bytes. Longer texts are truncated.
const maxText = 4 << 10

// Bounded returns a copy of a record with valid UTF-8 and bounded texts, as it is stored.
func (r Record) Bounded() Record {
	for _, text := range []*string{&r.Peer, &r.Person.Name, &r.Person.As, &r.Person.ObjectID, &r.Person.TenantID, &r.Person.Role, &r.Person.Elevation, &r.Action,
		&r.Object.Kind, &r.Object.ID, &r.Object.ResourceID, &r.Object.Cluster, &r.Object.Shard, &r.Level, &r.Reason, &r.Ticket, &r.Outcome, &r.Code, &r.Operation, &r.Request, &r.Trace} {
		*text = bounded(*text)
	}
	r.Object.Cluster = strings.ToLower(r.Object.Cluster)
	return r
}

func bounded(text string) string {
	if len(text) > maxText {
		cut := maxText
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// Recorder stores records.
type Recorder interface {
	// Append stores a record. The record is durable when it returns without an error. An error means that the record is not stored, and
	// that the result must not be returned.
	Append(ctx context.Context, r Record) error
	// Begin passes on a record with the outcome Started, and reserves the space of the record with the outcome. It does not wait for the
	// disk: the request may be validated and its inputs be read meanwhile. An error means that the action must not happen.
	Begin(ctx context.Context, r Record) (Action, error)
}

// Action is an action that has begun. Its methods are safe for concurrent use.
type Action interface {
	// Durable waits until the record of the beginning is durable. The action must have no effect before Durable has returned nil: it
	// must not write to a database, call another service to change something, or return a sensitive result.
	Durable(ctx context.Context) error
	// End passes on the record with the outcome, and must be called once. It returns after the beginning is durable and the outcome is
	// written to the file of the queue: the end of the process does not lose the outcome. It does not wait until the outcome is durable:
	// if the machine ends before the next group commit, the chain has the outcome Unknown after the next start. If the beginning could
	// not be stored, End stores nothing and returns that error.
	End(ctx context.Context, r Record) error
}

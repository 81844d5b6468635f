// Package managementaudit copies the audit events of a management cluster's API server to an audit chain.
//
// The API server selects events by Policy and writes them to a log file. A Follower reads the file, drops plain reads and stores a
// record of each other event: every write, every request for Secrets, every command in a pod, every impersonation and every refusal.
// A record never contains bodies, query parameters or the client's description of itself. The follower stores its position, so that
// each event is stored at least once; it recognizes events that it has stored by their audit ID.
package managementaudit

import (
	_ "embed"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// Service is the name of the service in audit chains.
const Service = "management-audit"

// Policy is the audit policy of the API server of a management cluster, in YAML.
//
//go:embed policy.yaml
var Policy []byte

// The stages of events that the policy does not omit.
const (
	stageStarted = "ResponseStarted"
	stagePanic   = "Panic"
)

// event holds the fields of an event of audit.k8s.io/v1 that are used.
type event struct {
	Kind    string `json:"kind"`
	AuditID string `json:"auditID"`
	Stage   string `json:"stage"`
	Verb    string `json:"verb"`
	User    struct {
		Username string `json:"username"`
	} `json:"user"`
	ImpersonatedUser *struct {
		Username string `json:"username"`
	} `json:"impersonatedUser"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// key identifies an event. A request has the same ID in all its stages.
func (e *event) key() string { return e.AuditID + "/" + e.outcome() }

var errNoEvent = errors.New("the line is not an audit event")

// parse parses a line of an audit log.
func parse(line []byte) (*event, error) {
	e := &event{}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, err
	}
	if e.Kind != "Event" || e.AuditID == "" || e.Stage == "" || e.Verb == "" {
		return nil, errNoEvent
	}
	return e, nil
}

// recorded reports whether an event has a record.
func (e *event) recorded() bool {
	switch {
	case e.ImpersonatedUser != nil, e.outcome() == audit.Refused, !e.reads():
		return true
	case e.ObjectRef == nil:
		return false
	case e.ObjectRef.Resource == "secrets" && e.ObjectRef.APIGroup == "":
		return true
	}
	switch e.ObjectRef.Subresource {
	case "exec", "attach", "portforward", "proxy":
		return true
	}
	return false
}

// reads reports whether the verb cannot change anything by itself.
func (e *event) reads() bool {
	switch e.Verb {
	case "get", "list", "watch", "head", "options":
		return true
	}
	return false
}

func (e *event) outcome() string {
	switch code := e.ResponseStatus.Code; {
	case e.Stage == stageStarted:
		return audit.Started
	case e.Stage == stagePanic:
		return audit.Failed
	case code == 401 || code == 403:
		return audit.Refused
	case code >= 400:
		return audit.Failed
	}
	return audit.Succeeded
}

// record returns the record of an event of a management cluster.
func (e *event) record(cluster string) audit.Record {
	r := audit.Record{Person: audit.Person{Name: e.User.Username}, Action: "kubernetes." + e.Verb, Outcome: e.outcome(), Request: e.AuditID,
		Object: audit.Object{Kind: "managementCluster", ID: cluster}}
	if e.ImpersonatedUser != nil {
		r.Person.As = e.ImpersonatedUser.Username
	}
	if e.ObjectRef != nil && e.ObjectRef.Resource != "" {
		r.Object.Kind = e.ObjectRef.Resource
		if e.ObjectRef.APIGroup != "" {
			r.Object.Kind += "." + e.ObjectRef.APIGroup
		}
		if e.ObjectRef.Subresource != "" {
			r.Object.Kind += "/" + e.ObjectRef.Subresource
		}
		for _, part := range []string{e.ObjectRef.Namespace, e.ObjectRef.Name} {
			if part != "" {
				r.Object.ID += "/" + part
			}
		}
	}
	if r.Outcome == audit.Failed || r.Outcome == audit.Refused {
		r.Code = strconv.Itoa(e.ResponseStatus.Code)
	}
	return r
}

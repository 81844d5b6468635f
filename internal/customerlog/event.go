package customerlog

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// AuditEvent is a parsed line of the audit log of a Kubernetes API server.
type AuditEvent struct {
	// Time is the time of the event's stage.
	Time time.Time
	// Changes reports whether the request may change something: its verb is none of get, list and watch.
	Changes bool
	// Line is the event without the bodies of secret resources.
	Line []byte
}

// secretResources are the resources, by API group, whose bodies contain credentials. The audit policies of Kubernetes and of OpenShift
// log them without bodies.
var secretResources = map[string][]string{
	"":                      {"secrets", "configmaps", "serviceaccounts/token"},
	"authentication.k8s.io": {"tokenreviews", "tokenrequests"},
	"oauth.openshift.io":    {"oauthaccesstokens", "oauthauthorizetokens", "oauthclients", "useroauthaccesstokens"},
	"route.openshift.io":    {"routes"},
}

// ErrNoEvent is returned for a line that is not an event of audit.k8s.io.
var ErrNoEvent = errors.New("the line is not an audit event")

// ParseAudit parses a line of an audit log.
func ParseAudit(line []byte) (AuditEvent, error) {
	var fields struct {
		Kind      string    `json:"kind"`
		AuditID   string    `json:"auditID"`
		Verb      string    `json:"verb"`
		Time      time.Time `json:"stageTimestamp"`
		ObjectRef struct {
			Resource    string `json:"resource"`
			Subresource string `json:"subresource"`
			APIGroup    string `json:"apiGroup"`
		} `json:"objectRef"`
		RequestObject  json.RawMessage `json:"requestObject"`
		ResponseObject json.RawMessage `json:"responseObject"`
	}
	if err := json.Unmarshal(line, &fields); err != nil {
		return AuditEvent{}, errors.Join(ErrNoEvent, err)
	}
	if fields.Kind != "Event" || fields.AuditID == "" || fields.Verb == "" {
		return AuditEvent{}, ErrNoEvent
	}
	event := AuditEvent{Time: fields.Time, Line: line, Changes: !slices.Contains([]string{"get", "list", "watch"}, fields.Verb)}
	if fields.RequestObject == nil && fields.ResponseObject == nil {
		return event, nil // the usual case
	}
	resource := fields.ObjectRef.Resource
	if fields.ObjectRef.Subresource != "" && fields.ObjectRef.Subresource != "status" {
		resource += "/" + fields.ObjectRef.Subresource
	}
	if !slices.Contains(secretResources[fields.ObjectRef.APIGroup], resource) {
		return event, nil
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(line, &all); err != nil {
		return AuditEvent{}, errors.Join(ErrNoEvent, err)
	}
	// encoding/json matches the names of fields in any case, so a reader may take a field in another case for the body.
	for name := range all {
		if isBody(name) {
			delete(all, name)
		}
	}
	var err error
	event.Line, err = json.Marshal(all)
	return event, err
}

// isBody reports whether a reader may take the field for the body of a request or a response.
func isBody(name string) bool {
	return strings.EqualFold(name, "requestObject") || strings.EqualFold(name, "responseObject")
}

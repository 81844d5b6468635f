package hostedapi

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// auditPolicy is the audit policy of a hosted API server: the metadata of requests, as with the audit profile Default of OpenShift. Not logged are
// the control plane itself, as system:admin, and, of other users than those with break-glass certificates, probes, documents of the API,
// leases and events. A policy cannot match the prefix of a user name, which is the only common property of users of the SRE class. But
// every break-glass certificate is for the group system:masters or system:cluster-readers. Users of the customer may have the second; parseAuditEvent
// ignores them. The level Metadata excludes bodies.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:admin, system:apiserver]
- level: Metadata
  userGroups: [system:masters, system:cluster-readers]
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/version", "/openapi*", "/api", "/api/*", "/apis", "/apis/*"]
- level: None
  resources:
  - group: ""
    resources: [events]
  - group: events.k8s.io
    resources: [events]
  - group: coordination.k8s.io
    resources: [leases]
- level: Metadata
`

const (
	// credentialID is the key under which an API server (1.32 and later) reports the credential that authenticated a
	// user.
	credentialID = "authentication.kubernetes.io/credential-id"
	x509Prefix   = "X509SHA256="
)

// auditEvent holds the fields of an event of audit.k8s.io/v1 that are used.
type auditEvent struct {
	Kind       string `json:"kind"`
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
	User       struct {
		Username string              `json:"username"`
		Extra    map[string][]string `json:"extra"`
	} `json:"user"`
	SourceIPs []string `json:"sourceIPs"`
	ObjectRef *struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

// parseAuditEvent parses a line of an audit log. ok is false if it is not a use of a break-glass certificate.
func parseAuditEvent(line []byte) (use hostedreport.CredentialUse, ok bool) {
	var e auditEvent
	if json.Unmarshal(line, &e) != nil || e.Kind != "Event" || hostedreport.CredentialClass(e.User.Username) == "" {
		return hostedreport.CredentialUse{}, false
	}
	id := e.User.Extra[credentialID]
	if len(id) != 1 {
		return hostedreport.CredentialUse{}, false
	}
	fingerprint, ok := strings.CutPrefix(id[0], x509Prefix)
	if !ok {
		return hostedreport.CredentialUse{}, false
	}
	use = hostedreport.CredentialUse{Fingerprint: strings.ToLower(fingerprint), User: e.User.Username, First: e.Received, Last: e.Received, Request: e.summary()}
	// The last address is the peer of the connection; the others are claims of the client.
	if n := len(e.SourceIPs); n > 0 {
		use.Addresses = []string{e.SourceIPs[n-1]}
	}
	return use, true
}

// nonResourcePaths are the paths that API servers serve besides resources.
var nonResourcePaths = []string{"/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/logs", "/.well-known", "/openid", "/debug"}

// summary returns verb and resource of the request. A path that is not a resource may contain any text, so only a known
// prefix is included. Names of resources are reduced to the characters that Kubernetes allows.
func (e *auditEvent) summary() string {
	target := "/"
	switch {
	case e.ObjectRef != nil && e.ObjectRef.Resource != "":
		target = sanitize(e.ObjectRef.Resource)
		if e.ObjectRef.APIGroup != "" {
			target += "." + sanitize(e.ObjectRef.APIGroup)
		}
		if e.ObjectRef.Subresource != "" {
			target += "/" + sanitize(e.ObjectRef.Subresource)
		}
	default:
		path, _, _ := strings.Cut(e.RequestURI, "?")
		for _, root := range nonResourcePaths {
			if path == root || strings.HasPrefix(path, root+"/") {
				target = root
			}
		}
	}
	return sanitize(e.Verb) + " " + target
}

// sanitize returns text if it is a valid name in Kubernetes, or a question mark.
func sanitize(text string) string {
	if text == "" || len(text) > 40 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "?"
	}
	return text
}

// Package auditlog finds out which break-glass credentials are used in a hosted cluster: it has the hosted API server log
// the requests of their users and of nobody else (Policy), follows that log (Follow), and reports each certificate that
// was used, by its fingerprint, on the HostedCluster (Reporter). Of a request it takes the user, the certificate's
// fingerprint, the time, the address, the verb and the resource; nothing else leaves the log, and the log has no bodies.
package auditlog

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// Policy is the audit policy of a hosted API server. A policy cannot match the beginning of a name, which is all that the
// users of the SREs' class have in common; but every break-glass certificate is for the group of masters, in which there is
// otherwise only the control plane itself, as system:admin. Metadata has no bodies.
const Policy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [system:admin]
- level: Metadata
  userGroups: [system:masters]
- level: None
`

const (
	// credentialID is where an API server (1.32 and later) names the credential that a user was authenticated by.
	credentialID = "authentication.kubernetes.io/credential-id"
	x509Prefix   = "X509SHA256="
)

// entry is what is read of an event of audit.k8s.io/v1. What is not here is not read.
type entry struct {
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

// Parse reads a line of an audit log; ok is false when it is not the use of a break-glass certificate.
func Parse(line []byte) (use credentialuse.Use, ok bool) {
	var e entry
	if json.Unmarshal(line, &e) != nil || e.Kind != "Event" || credentialuse.Class(e.User.Username) == "" {
		return credentialuse.Use{}, false
	}
	id := e.User.Extra[credentialID]
	if len(id) != 1 {
		return credentialuse.Use{}, false
	}
	fingerprint, ok := strings.CutPrefix(id[0], x509Prefix)
	if !ok {
		return credentialuse.Use{}, false
	}
	use = credentialuse.Use{Fingerprint: strings.ToLower(fingerprint), User: e.User.Username, First: e.Received, Last: e.Received, Request: e.request()}
	// The last is the connection's own; those before it are what the client said of itself.
	if n := len(e.SourceIPs); n > 0 {
		use.Addresses = []string{e.SourceIPs[n-1]}
	}
	return use, true
}

// roots are the paths besides resources that API servers have something at.
var roots = []string{"/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/logs", "/.well-known", "/openid", "/debug"}

// request is what was asked for in two words. A path that is no resource's may say anything, so only its beginning is told,
// and only if it is one that there is; what a resource may be called is what Kubernetes calls them.
func (e *entry) request() string {
	what := "/"
	switch {
	case e.ObjectRef != nil && e.ObjectRef.Resource != "":
		what = word(e.ObjectRef.Resource)
		if e.ObjectRef.APIGroup != "" {
			what += "." + word(e.ObjectRef.APIGroup)
		}
		if e.ObjectRef.Subresource != "" {
			what += "/" + word(e.ObjectRef.Subresource)
		}
	default:
		path, _, _ := strings.Cut(e.RequestURI, "?")
		for _, root := range roots {
			if path == root || strings.HasPrefix(path, root+"/") {
				what = root
			}
		}
	}
	return word(e.Verb) + " " + what
}

// word is a name as Kubernetes has them, or a question mark.
func word(text string) string {
	if text == "" || len(text) > 40 || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" {
		return "?"
	}
	return text
}

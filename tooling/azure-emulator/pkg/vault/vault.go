// Package vault emulates the data plane of one Azure Key Vault: certificates that the vault creates with their keys, the
// operation that creates them, and their soft deletion, recovery and purge.
//
// Certificates are valid X.509 certificates. They are self-signed or, if the policy names a configured issuer, signed by
// an authority of the emulator. Private keys stay in the emulator's file and are never returned. Secrets have versions, and the same soft
// deletion. In Azure each certificate is also a secret; in the emulator it is not. Keys are rejected with 501.
package vault

import (
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// certificates is the bucket of certificates, by lower-case name.
const certificates = "certificates"

const (
	maxBody = 1 << 20
	// recoverableDays is the number of days for which a deleted certificate can be recovered.
	recoverableDays = 90
	recoveryLevel   = "Recoverable"
	// backdate is the time by which the validity of a certificate precedes its creation, for clients with slow clocks.
	backdate = 10 * time.Minute
)

// apiVersions lists the supported api-versions.
var apiVersions = []string{"7.6", "7.5", "7.4"}

// Options configure a Server.
type Options struct {
	Store *store.Store
	// OperationDelay is the time that the creation of a certificate takes.
	OperationDelay time.Duration
	// Issuers lists the issuers that policies may name, besides Self.
	Issuers []string
	// Lifetime is the validity period of certificates; 0 means that of their policy.
	Lifetime time.Duration
	// Reject, if set, is called for each certificate that is due. If it returns an error, the issuer rejects the request
	// with it.
	Reject func(name string) error
	// Access authorizes the callers. ID is the resource ID of the vault, the scope of their requests.
	Access rbac.Authorizer
	ID     string
	Now    func() time.Time
}

// Server is the HTTP handler.
type Server struct {
	Options
	// mu serializes requests, so that their checks still hold when they write.
	mu sync.Mutex
}

// New returns a Server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{Options: o}
}

// certificate is a stored certificate.
type certificate struct {
	Name    string            `json:"name"`
	Policy  map[string]any    `json:"policy"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created"`
	// certificateVersion is the newest version. It is empty until the first version was created. Older lists the previous
	// versions, oldest first.
	certificateVersion
	Older []certificateVersion `json:"older,omitempty"`
	// Pending is the operation of the next or the newest version. Clients may delete it.
	Pending *operation `json:"pending,omitempty"`
	Deleted time.Time  `json:"deleted,omitzero"`
}

// certificateVersion is one version of a certificate.
type certificateVersion struct {
	Version string    `json:"version"`
	Raw     []byte    `json:"raw"`
	Key     []byte    `json:"key"`
	Issued  time.Time `json:"issued,omitzero"`
}

// operation creates a version. The newest version does not change until the operation is done.
type operation struct {
	Request string    `json:"request"`
	Due     time.Time `json:"due"`
	// Done reports whether the operation is done. Failure is the reason if it failed.
	Done    bool   `json:"ended,omitempty"`
	Failure string `json:"failure,omitempty"`
}

var namePattern = regexp.MustCompile(`^[0-9a-zA-Z-]{1,127}$`)

// ServeHTTP serves the requests below /certificates, /deletedcertificates, /secrets and /deletedsecrets.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	status, body, err := s.respond(r)
	var denied *rbac.Denied
	if errors.As(err, &denied) {
		err = newError(http.StatusForbidden, "Forbidden", "Caller is not authorized to perform action on resource. %s", denied.Error())
	}
	if err != nil {
		arm.WriteError(w, err)
		return
	}
	if body == nil {
		w.WriteHeader(status)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}

// respond authorizes and executes a request and returns the status and the body.
func (s *Server) respond(r *http.Request) (int, any, error) {
	if err := s.Access.Authorize(r.Context(), action(r), s.ID); err != nil {
		return 0, nil, err
	}
	if !slices.Contains(apiVersions, r.URL.Query().Get("api-version")) {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The specified version (%s) is not recognized. Consider using the latest supported version (%s).", r.URL.Query().Get("api-version"), apiVersions[0])
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return 0, nil, newError(http.StatusRequestEntityTooLarge, "BadParameter", "The request is too large.")
	}
	base := "https://" + r.Host
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(segments) > 1 && !namePattern.MatchString(segments[1]) {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The name '%s' is not valid.", segments[1])
	}
	kind, deleted := strings.CutPrefix(segments[0], "deleted")
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case kind == "secrets":
		return s.respondSecret(base, deleted, r.Method, segments[1:], body)
	case kind != "certificates":
	case r.Method == http.MethodGet && len(segments) == 1:
		return s.list(base, deleted)
	case len(segments) < 2:
	case deleted && len(segments) == 2 && r.Method == http.MethodGet:
		return s.get(base, segments[1], "", true)
	case deleted && len(segments) == 2 && r.Method == http.MethodDelete:
		return s.purge(segments[1])
	case deleted && len(segments) == 3 && segments[2] == "recover" && r.Method == http.MethodPost:
		return s.recover(base, segments[1])
	case deleted:
	case len(segments) == 2 && r.Method == http.MethodGet:
		return s.get(base, segments[1], "", false)
	case len(segments) == 2 && r.Method == http.MethodDelete:
		return s.delete(base, segments[1])
	case len(segments) == 3 && segments[2] == "create" && r.Method == http.MethodPost:
		return s.create(base, segments[1], body)
	case len(segments) == 3 && segments[2] == "pending" && (r.Method == http.MethodGet || r.Method == http.MethodDelete):
		return s.pending(base, segments[1], r.Method == http.MethodDelete)
	case len(segments) == 3 && r.Method == http.MethodGet:
		return s.get(base, segments[1], segments[2], false)
	}
	return 0, nil, newError(http.StatusNotImplemented, "NotImplemented", "%s %s is not emulated.", r.Method, r.URL.Path)
}

// newError returns an error response with a formatted message.
func newError(status int, code, format string, args ...any) error {
	return &arm.Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// notFound returns the error for a certificate that does not exist.
func notFound(name string) error {
	return newError(http.StatusNotFound, "CertificateNotFound", "A certificate with (name/id) %s was not found in this key vault.", name)
}

// find returns a certificate, or nil if it does not exist. It completes the pending operation if that is due.
func (s *Server) find(name string) (*certificate, error) {
	c := &certificate{}
	found := false
	err := s.Store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get(certificates, strings.ToLower(name), c)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	if c.Pending != nil && !c.Pending.Done && !s.Now().Before(c.Pending.Due) {
		if err := s.completeOperation(c); err != nil {
			return nil, err
		}
		return c, s.save(c)
	}
	return c, nil
}

// completeOperation completes the pending operation of a certificate, with a new version or a failure.
func (s *Server) completeOperation(c *certificate) error {
	c.Pending.Done = true
	if s.Reject != nil {
		if err := s.Reject(c.Name); err != nil {
			c.Pending.Failure = err.Error()
			return nil
		}
	}
	next, err := s.createVersion(c)
	if err != nil {
		return err
	}
	if c.Raw != nil {
		c.Older = append(c.Older, c.certificateVersion)
	}
	c.certificateVersion = *next
	return nil
}

// save stores a certificate.
func (s *Server) save(c *certificate) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.Put(certificates, strings.ToLower(c.Name), c) })
}

// policy holds the fields of a certificate policy that the emulator uses.
type policy struct {
	Key struct {
		Type string `json:"kty"`
		Size int    `json:"key_size"`
	} `json:"key_props"`
	X509 struct {
		Subject string `json:"subject"`
		Names   struct {
			DNS []string `json:"dns_names"`
		} `json:"sans"`
		Months int `json:"validity_months"`
	} `json:"x509_props"`
	Issuer struct {
		Name string `json:"name"`
	} `json:"issuer"`
}

// parsePolicy decodes a certificate policy.
func parsePolicy(p map[string]any) (*policy, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	parsed := &policy{}
	if err := json.Unmarshal(text, parsed); err != nil {
		return nil, newError(http.StatusBadRequest, "BadParameter", "The certificate policy is malformed: %v", err)
	}
	return parsed, nil
}

// create executes Create Certificate.
func (s *Server) create(base, name string, body []byte) (int, any, error) {
	var requested struct {
		Policy map[string]any    `json:"policy"`
		Tags   map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(body, &requested); err != nil || requested.Policy == nil {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The request has no certificate policy.")
	}
	p, err := parsePolicy(requested.Policy)
	if err != nil {
		return 0, nil, err
	}
	if p.Issuer.Name != "Self" && !slices.Contains(s.Issuers, p.Issuer.Name) {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "The certificate issuer '%s' was not found in this key vault.", p.Issuer.Name)
	}
	if _, ok := strings.CutPrefix(p.X509.Subject, "CN="); !ok {
		return 0, nil, newError(http.StatusBadRequest, "BadParameter", "Property subject is not a distinguished name with a CN.")
	}
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case c != nil && !c.Deleted.IsZero():
		return 0, nil, newError(http.StatusConflict, "Conflict", "Certificate %s is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the certificate can only be recovered or purged.", name)
	case c != nil && c.Pending != nil && !c.Pending.Done:
		return 0, nil, newError(http.StatusConflict, "Conflict", "A new key vault certificate can not be created or imported while a pending key vault certificate's status is inProgress.")
	}
	now := s.Now()
	if c == nil {
		c = &certificate{Name: name, Created: now}
	}
	c.Policy, c.Tags = requested.Policy, requested.Tags
	c.Pending = &operation{Request: strings.ReplaceAll(uuid.NewString(), "-", ""), Due: now.Add(s.OperationDelay)}
	if s.OperationDelay == 0 {
		if err := s.completeOperation(c); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusAccepted, c.operationBody(base), s.save(c)
}

// operationBody returns the representation of the pending operation.
func (c *certificate) operationBody(base string) any {
	o := map[string]any{"id": base + "/certificates/" + c.Name + "/pending", "request_id": c.Pending.Request, "cancellation_requested": false, "issuer": c.Policy["issuer"]}
	switch {
	case !c.Pending.Done:
		o["status"] = "inProgress"
		o["status_details"] = "Pending certificate created. Certificate request is in progress. This may take some time based on the issuer provider. Please check again later."
	case c.Pending.Failure != "":
		o["status"] = "failed"
		o["error"] = map[string]string{"code": "RequestRejected", "message": c.Pending.Failure}
	default:
		o["status"], o["target"] = "completed", base+"/certificates/"+c.Name
	}
	return o
}

// pending responds with the pending operation of a certificate, and deletes it if deleted is true.
func (s *Server) pending(base, name string, deleted bool) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || !c.Deleted.IsZero() || c.Pending == nil {
		return 0, nil, newError(http.StatusNotFound, "PendingCertificateNotFound", "A pending certificate with (name/id) %s was not found in this key vault.", name)
	}
	body := c.operationBody(base)
	if !deleted {
		return http.StatusOK, body, nil
	}
	c.Pending = nil
	return http.StatusOK, body, s.save(c)
}

// get responds with a version of a certificate; "" means the newest.
func (s *Server) get(base, name, version string, deleted bool) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || c.Deleted.IsZero() == deleted {
		return 0, nil, notFound(name)
	}
	if version != "" && version != c.Version {
		i := slices.IndexFunc(c.Older, func(v certificateVersion) bool { return v.Version == version })
		if i < 0 {
			return 0, nil, notFound(name)
		}
		c.certificateVersion = c.Older[i]
	}
	return http.StatusOK, c.bundle(base), nil
}

// bundle returns the representation of a certificate. Before the first version was created it has no content.
func (c *certificate) bundle(base string) map[string]any {
	b := map[string]any{"policy": c.Policy, "tags": c.Tags,
		"pending": map[string]string{"id": base + "/certificates/" + c.Name + "/pending"}}
	id := base + "/certificates/" + c.Name
	issued := c.Issued
	if issued.IsZero() {
		issued = c.Created
	}
	attributes := map[string]any{"enabled": c.Raw != nil, "created": issued.Unix(), "updated": issued.Unix(), "recoveryLevel": recoveryLevel, "recoverableDays": recoverableDays}
	if c.Raw != nil {
		id += "/" + c.Version
		sum := sha1.Sum(c.Raw) // Key Vault uses SHA-1 for thumbprints
		b["cer"], b["x5t"] = base64.StdEncoding.EncodeToString(c.Raw), base64.RawURLEncoding.EncodeToString(sum[:])
		b["kid"], b["sid"] = base+"/keys/"+c.Name+"/"+c.Version, base+"/secrets/"+c.Name+"/"+c.Version
		if parsed, err := x509.ParseCertificate(c.Raw); err == nil {
			attributes["nbf"], attributes["exp"] = parsed.NotBefore.Unix(), parsed.NotAfter.Unix()
		}
	}
	b["id"], b["attributes"] = id, attributes
	if !c.Deleted.IsZero() {
		b["recoveryId"] = base + "/deletedcertificates/" + c.Name
		b["deletedDate"], b["scheduledPurgeDate"] = c.Deleted.Unix(), c.Deleted.AddDate(0, 0, recoverableDays).Unix()
	}
	return b
}

// delete executes Delete Certificate, a soft deletion.
func (s *Server) delete(base, name string) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || !c.Deleted.IsZero() {
		return 0, nil, notFound(name)
	}
	c.Deleted = s.Now()
	return http.StatusOK, c.bundle(base), s.save(c)
}

// deleted returns a certificate that is deleted completely.
func (s *Server) deleted(name string) (*certificate, error) {
	c, err := s.find(name)
	switch {
	case err != nil:
		return nil, err
	case c == nil || c.Deleted.IsZero():
		return nil, notFound(name)
	case s.Now().Before(c.Deleted.Add(s.OperationDelay)):
		return nil, newError(http.StatusConflict, "Conflict", "Certificate %s is currently being deleted.", name)
	}
	return c, nil
}

// purge executes Purge Deleted Certificate. The vault has purge protection, as that of a region.
func (s *Server) purge(name string) (int, any, error) {
	if _, err := s.deleted(name); err != nil {
		return 0, nil, err
	}
	return 0, nil, newError(http.StatusForbidden, "Forbidden", "Certificate %s cannot be purged because the vault has purge protection.", name)
}

// recover executes Recover Deleted Certificate.
func (s *Server) recover(base, name string) (int, any, error) {
	c, err := s.deleted(name)
	if err != nil {
		return 0, nil, err
	}
	c.Deleted = time.Time{}
	return http.StatusOK, c.bundle(base), s.save(c)
}

// list executes Get Certificates or Get Deleted Certificates.
func (s *Server) list(base string, deleted bool) (int, any, error) {
	value := []any{}
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[certificate](tx, certificates, "")
		for _, c := range all {
			if c.Deleted.IsZero() == deleted || strings.HasPrefix(c.Name, authorityPrefix) {
				continue
			}
			b := c.bundle(base)
			b["id"] = base + "/certificates/" + c.Name
			for _, field := range []string{"policy", "cer", "kid", "sid", "pending"} {
				delete(b, field)
			}
			value = append(value, b)
		}
		return err
	})
	return http.StatusOK, map[string]any{"value": value}, err
}

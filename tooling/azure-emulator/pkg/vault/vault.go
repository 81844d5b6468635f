// Package vault answers as the data plane of one Azure Key Vault does: certificates that the vault makes with their keys,
// with the operation that makes them, their soft deletion, recovery and purge. Certificates are real ones, signed by
// themselves or, where the policy names an issuer that the vault knows, by an authority of the emulator's own. Private keys
// stay in the emulator's file and are never answered. Secrets and keys are refused with 501.
package vault

import (
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
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
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// certificates is the bucket, by lower-case name.
const certificates = "certificates"

const (
	maxBody = 1 << 20
	// recoverable is how many days a deleted certificate can be recovered.
	recoverable = 90
	keyLevel    = "Recoverable+Purgeable"
	// backdated is what a certificate is valid before it is made, for clocks that are late.
	backdated = 10 * time.Minute
)

var versions = []string{"7.6", "7.5", "7.4"}

// Options of a Server.
type Options struct {
	Store *store.Store
	// OperationDelay is how long a certificate is in the making.
	OperationDelay time.Duration
	// Issuers are those that policies may name, beside Self.
	Issuers []string
	// Life is how long certificates live; 0 is what their policy says.
	Life time.Duration
	// Refuse, if set, is asked when a certificate is to be issued: an error is why its issuer does not.
	Refuse func(name string) error
	Now    func() time.Time
}

// Server is the handler.
type Server struct {
	Options
	changing sync.Mutex
}

// New makes a server.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Server{Options: o}
}

// certificate is what is kept of one.
type certificate struct {
	Name    string            `json:"name"`
	Policy  map[string]any    `json:"policy"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created"`
	// made is the newest version; it has no content before the first has been made. Older are those before, oldest first.
	made
	Older []made `json:"older,omitempty"`
	// Pending is the operation that makes the next version, or made the newest. Clients may delete it.
	Pending *operation `json:"pending,omitempty"`
	Deleted time.Time  `json:"deleted,omitzero"`
}

// made is a version of a certificate.
type made struct {
	Version string    `json:"version"`
	Raw     []byte    `json:"raw"`
	Key     []byte    `json:"key"`
	Issued  time.Time `json:"issued,omitzero"`
}

// operation makes a version. The newest version is what it was until the operation has ended.
type operation struct {
	Request string    `json:"request"`
	Due     time.Time `json:"due"`
	// Ended says that it has; Failure why it made nothing.
	Ended   bool   `json:"ended,omitempty"`
	Failure string `json:"failure,omitempty"`
}

var certificateName = regexp.MustCompile(`^[0-9a-zA-Z-]{1,127}$`)

// ServeHTTP answers one request below /certificates or /deletedcertificates.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	status, body, err := s.answer(r)
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
	_ = json.NewEncoder(w).Encode(body) // the client is gone
}

func (s *Server) answer(r *http.Request) (int, any, error) {
	if !slices.Contains(versions, r.URL.Query().Get("api-version")) {
		return 0, nil, refuse(http.StatusBadRequest, "BadParameter", "The specified version (%s) is not recognized. Consider using the latest supported version (%s).", r.URL.Query().Get("api-version"), versions[0])
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return 0, nil, refuse(http.StatusRequestEntityTooLarge, "BadParameter", "The request is too large.")
	}
	base := "https://" + r.Host
	segments := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(segments) > 1 && !certificateName.MatchString(segments[1]) {
		return 0, nil, refuse(http.StatusBadRequest, "BadParameter", "The certificate name '%s' is not valid.", segments[1])
	}
	deleted := segments[0] == "deletedcertificates"
	s.changing.Lock()
	defer s.changing.Unlock()
	switch {
	case !deleted && segments[0] != "certificates":
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
	return 0, nil, refuse(http.StatusNotImplemented, "NotImplemented", "%s %s is not emulated.", r.Method, r.URL.Path)
}

func refuse(status int, code, format string, args ...any) error {
	return &arm.Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

func notFound(name string) error {
	return refuse(http.StatusNotFound, "CertificateNotFound", "A certificate with (name/id) %s was not found in this key vault.", name)
}

// find reads a certificate, whose next version is made if its time has come; nil when there is none.
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
	if c.Pending != nil && !c.Pending.Ended && !s.Now().Before(c.Pending.Due) {
		if err := s.end(c); err != nil {
			return nil, err
		}
		return c, s.save(c)
	}
	return c, nil
}

// end ends the operation of a certificate: there is a new version, or a failure.
func (s *Server) end(c *certificate) error {
	c.Pending.Ended = true
	if s.Refuse != nil {
		if err := s.Refuse(c.Name); err != nil {
			c.Pending.Failure = err.Error()
			return nil
		}
	}
	next, err := s.make(c)
	if err != nil {
		return err
	}
	if c.Raw != nil {
		c.Older = append(c.Older, c.made)
	}
	c.made = *next
	return nil
}

func (s *Server) save(c *certificate) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.Put(certificates, strings.ToLower(c.Name), c) })
}

// policy is what of a certificate's policy is looked at.
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

func readPolicy(p map[string]any) (*policy, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	read := &policy{}
	if err := json.Unmarshal(text, read); err != nil {
		return nil, refuse(http.StatusBadRequest, "BadParameter", "The certificate policy is malformed: %v", err)
	}
	return read, nil
}

func (s *Server) create(base, name string, body []byte) (int, any, error) {
	var asked struct {
		Policy map[string]any    `json:"policy"`
		Tags   map[string]string `json:"tags"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.Policy == nil {
		return 0, nil, refuse(http.StatusBadRequest, "BadParameter", "The request has no certificate policy.")
	}
	p, err := readPolicy(asked.Policy)
	if err != nil {
		return 0, nil, err
	}
	if p.Issuer.Name != "Self" && !slices.Contains(s.Issuers, p.Issuer.Name) {
		return 0, nil, refuse(http.StatusBadRequest, "BadParameter", "The certificate issuer '%s' was not found in this key vault.", p.Issuer.Name)
	}
	if _, ok := strings.CutPrefix(p.X509.Subject, "CN="); !ok {
		return 0, nil, refuse(http.StatusBadRequest, "BadParameter", "Property subject is not a distinguished name with a CN.")
	}
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case c != nil && !c.Deleted.IsZero():
		return 0, nil, refuse(http.StatusConflict, "Conflict", "Certificate %s is currently in a deleted but recoverable state, and its name cannot be reused; in this state, the certificate can only be recovered or purged.", name)
	case c != nil && c.Pending != nil && !c.Pending.Ended:
		return 0, nil, refuse(http.StatusConflict, "Conflict", "A new key vault certificate can not be created or imported while a pending key vault certificate's status is inProgress.")
	}
	now := s.Now()
	if c == nil {
		c = &certificate{Name: name, Created: now}
	}
	c.Policy, c.Tags = asked.Policy, asked.Tags
	c.Pending = &operation{Request: strings.ReplaceAll(uuid.NewString(), "-", ""), Due: now.Add(s.OperationDelay)}
	if s.OperationDelay == 0 {
		if err := s.end(c); err != nil {
			return 0, nil, err
		}
	}
	return http.StatusAccepted, c.operation(base), s.save(c)
}

// operation shows how far the making of a certificate's newest version is.
func (c *certificate) operation(base string) any {
	o := map[string]any{"id": base + "/certificates/" + c.Name + "/pending", "request_id": c.Pending.Request, "cancellation_requested": false, "issuer": c.Policy["issuer"]}
	switch {
	case !c.Pending.Ended:
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

// pending shows the operation of a certificate, and forgets it when it is deleted.
func (s *Server) pending(base, name string, deleted bool) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || !c.Deleted.IsZero() || c.Pending == nil {
		return 0, nil, refuse(http.StatusNotFound, "PendingCertificateNotFound", "A pending certificate with (name/id) %s was not found in this key vault.", name)
	}
	shown := c.operation(base)
	if !deleted {
		return http.StatusOK, shown, nil
	}
	c.Pending = nil
	return http.StatusOK, shown, s.save(c)
}

func (s *Server) get(base, name, version string, deleted bool) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || c.Deleted.IsZero() == deleted {
		return 0, nil, notFound(name)
	}
	if version != "" && version != c.Version {
		i := slices.IndexFunc(c.Older, func(m made) bool { return m.Version == version })
		if i < 0 {
			return 0, nil, notFound(name)
		}
		c.made = c.Older[i]
	}
	return http.StatusOK, c.bundle(base), nil
}

// bundle is a certificate as the vault shows it. One that is in the making has no content yet.
func (c *certificate) bundle(base string) map[string]any {
	b := map[string]any{"policy": c.Policy, "tags": c.Tags,
		"pending": map[string]string{"id": base + "/certificates/" + c.Name + "/pending"}}
	id := base + "/certificates/" + c.Name
	issued := c.Issued
	if issued.IsZero() {
		issued = c.Created
	}
	attributes := map[string]any{"enabled": c.Raw != nil, "created": issued.Unix(), "updated": issued.Unix(), "recoveryLevel": keyLevel, "recoverableDays": recoverable}
	if c.Raw != nil {
		id += "/" + c.Version
		sum := sha1.Sum(c.Raw) // the thumbprint by which Key Vault names certificates
		b["cer"], b["x5t"] = base64.StdEncoding.EncodeToString(c.Raw), base64.RawURLEncoding.EncodeToString(sum[:])
		b["kid"], b["sid"] = base+"/keys/"+c.Name+"/"+c.Version, base+"/secrets/"+c.Name+"/"+c.Version
		if parsed, err := x509.ParseCertificate(c.Raw); err == nil {
			attributes["nbf"], attributes["exp"] = parsed.NotBefore.Unix(), parsed.NotAfter.Unix()
		}
	}
	b["id"], b["attributes"] = id, attributes
	if !c.Deleted.IsZero() {
		b["recoveryId"] = base + "/deletedcertificates/" + c.Name
		b["deletedDate"], b["scheduledPurgeDate"] = c.Deleted.Unix(), c.Deleted.AddDate(0, 0, recoverable).Unix()
	}
	return b
}

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

func (s *Server) purge(name string) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	switch {
	case c == nil || c.Deleted.IsZero():
		return 0, nil, notFound(name)
	case s.Now().Before(c.Deleted.Add(s.OperationDelay)):
		return 0, nil, refuse(http.StatusConflict, "Conflict", "Certificate %s is currently being deleted.", name)
	}
	return http.StatusNoContent, nil, s.Store.Update(func(tx *store.Tx) error { return tx.Delete(certificates, strings.ToLower(name)) })
}

func (s *Server) recover(base, name string) (int, any, error) {
	c, err := s.find(name)
	if err != nil {
		return 0, nil, err
	}
	if c == nil || c.Deleted.IsZero() {
		return 0, nil, notFound(name)
	}
	c.Deleted = time.Time{}
	return http.StatusOK, c.bundle(base), s.save(c)
}

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

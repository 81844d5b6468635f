// Package blob emulates Azure Blob Storage for published documents: whole block blobs that are written, read, listed and
// deleted, and append blobs, in containers with or without public access or an immutability policy.
//
// URLs have the form http(s)://host/account/container/blob; package emulator adds the account to those of Azure. Accounts are part of the emulator's configuration. All other
// operations (uncommitted blocks, leases, snapshots, shared access signatures) are rejected with 501.
package blob

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// The buckets of this package in the store.
const (
	containers = "blob-containers" // by account/container
	blobs      = "blobs"           // by account/container/blob
)

// maxBlob bounds the size of a blob in bytes.
const maxBlob = 8 << 20

// Server is the HTTP handler.
type Server struct {
	Store *store.Store
	// Accounts maps the names of the storage accounts of the seed to their resource IDs, the scopes of requests.
	Accounts map[string]string
	// Created returns the resource ID of a storage account that a client of Resource Manager created.
	Created func(name string) (id string, found bool, err error)
	// Access authorizes the callers.
	Access rbac.Authorizer
	Now    func() time.Time

	// mu serializes requests, so that their checks still hold when they write.
	mu sync.Mutex
}

// container is a stored container.
type container struct {
	Name string `json:"name"`
	// Access is the public access: empty, blob or container.
	Access       string        `json:"access"`
	Immutability *Immutability `json:"immutability,omitempty"`
	ETag         string        `json:"etag"`
	Modified     time.Time     `json:"modified"`
}

// document is a stored blob.
type document struct {
	Name string `json:"name"`
	// Kind is AppendBlob, or empty for a block blob. An append blob has Length bytes in Blocks blocks of their own bucket, no Content.
	Kind         string            `json:"kind,omitempty"`
	Length       int64             `json:"length,omitempty"`
	Blocks       int               `json:"blocks,omitempty"`
	Content      []byte            `json:"content"`
	ContentType  string            `json:"contentType"`
	CacheControl string            `json:"cacheControl"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	ETag         string            `json:"etag"`
	Created      time.Time         `json:"created"`
	Modified     time.Time         `json:"modified"`
}

// Serves reports whether a path belongs to one of the accounts.
func (s *Server) Serves(path string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	_, ok, err := s.account(name)
	return ok && err == nil
}

// account returns the resource ID of the storage account with a name.
func (s *Server) account(name string) (id string, found bool, err error) {
	if id, found := s.Accounts[name]; found {
		return id, true, nil
	}
	// Resource Manager's own paths are not names of accounts.
	if name == "" || name == "subscriptions" || name == "providers" {
		return "", false, nil
	}
	return s.Created(name)
}

// DeleteAccount deletes the containers and blobs of a storage account in a transaction.
func DeleteAccount(tx *store.Tx, name string) error {
	for _, bucket := range []string{containers, blobs} {
		if err := deleteKeys(tx, bucket, name+"/"); err != nil {
			return err
		}
	}
	return deleteBlocks(tx, name+"/")
}

// deleteKeys deletes the values with a prefix.
func deleteKeys(tx *store.Tx, bucket, prefix string) error {
	var keys []string
	if err := tx.Scan(bucket, prefix, func(key string, _ func(any) error) error { keys = append(keys, key); return nil }); err != nil {
		return err
	}
	for _, key := range keys {
		if err := tx.Delete(bucket, key); err != nil {
			return err
		}
	}
	return nil
}

// Public reports whether a request needs no token, because the container has public access.
func (s *Server) Public(r *http.Request) (bool, error) {
	p := parsePath(r.URL.Path)
	if r.Method != http.MethodGet && r.Method != http.MethodHead || p.blob == "" || len(r.URL.Query()) > 0 {
		return false, nil
	}
	c, err := s.container(p)
	return err == nil && c != nil && c.Access != "", err
}

// path is a parsed URL path.
type path struct{ account, container, blob string }

// parsePath splits a URL path. Missing parts are empty.
func parsePath(text string) path {
	parts := strings.SplitN(strings.TrimPrefix(text, "/"), "/", 3)
	parts = append(parts, "", "")
	return path{parts[0], parts[1], parts[2]}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("x-ms-version", r.Header.Get("x-ms-version"))
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	err := s.authorize(r)
	if err == nil {
		err = s.respond(w, r)
	}
	if err == nil {
		return
	}
	var apiErr *apiError
	if !errors.As(err, &apiErr) {
		apiErr = &apiError{http.StatusInternalServerError, "InternalError", "Internal error of the emulator: " + err.Error()}
	}
	WriteError(w, apiErr.status, apiErr.code, apiErr.message)
}

// respond executes a request.
func (s *Server) respond(w http.ResponseWriter, r *http.Request) error {
	p, query := parsePath(r.URL.Path), r.URL.Query()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case p.container == "":
	case p.blob == "" && query.Get("restype") == "container":
		switch {
		case query.Get("comp") == "list" && r.Method == http.MethodGet:
			return s.list(w, p, query.Get("prefix"))
		case query.Has("comp"):
		case r.Method == http.MethodPut:
			return s.createContainer(w, r, p)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			return s.showContainer(w, p)
		case r.Method == http.MethodDelete:
			return s.deleteContainer(w, p)
		}
	case p.blob != "" && query.Get("comp") == "appendblock" && r.Method == http.MethodPut:
		return s.appendBlock(w, r, p)
	case p.blob == "" || query.Has("comp") || query.Has("snapshot") || query.Has("versionid"):
	case r.Method == http.MethodPut:
		return s.put(w, r, p)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.get(w, r, p)
	case r.Method == http.MethodDelete:
		return s.delete(w, r, p)
	}
	return newError(http.StatusNotImplemented, "NotImplemented", "%s %s?%s is not emulated.", r.Method, r.URL.Path, r.URL.RawQuery)
}

// container returns a container, or nil if it does not exist.
func (s *Server) container(p path) (*container, error) {
	c := &container{}
	found := false
	err := s.Store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get(containers, p.account+"/"+p.container, c)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return c, nil
}

var containerNamePattern = regexp.MustCompile(`^(\$web|\$root|[a-z0-9](-?[a-z0-9]){2,62})$`)

// createContainer executes Create Container.
func (s *Server) createContainer(w http.ResponseWriter, r *http.Request, p path) error {
	access := r.Header.Get("x-ms-blob-public-access")
	switch {
	case !containerNamePattern.MatchString(p.container):
		return newError(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	case access != "" && access != "blob" && access != "container":
		return newError(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	}
	old, err := s.container(p)
	if err != nil {
		return err
	}
	if old != nil {
		return newError(http.StatusConflict, "ContainerAlreadyExists", "The specified container already exists.")
	}
	c, err := s.PutContainer(p.account, p.container, access)
	if err != nil {
		return err
	}
	c.headers(w)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// PutContainer creates a container or replaces its access.
func (s *Server) PutContainer(account, name, access string) (*container, error) {
	c := &container{}
	return c, s.Store.Update(func(tx *store.Tx) error { return writeContainer(tx, c, account, name, access, s.Now()) })
}

func (s *Server) putContainer(account string, c *container) error {
	return s.Store.Update(func(tx *store.Tx) error { return tx.Put(containers, account+"/"+c.Name, c) })
}

// etag returns a new ETag.
func (s *Server) etag() string { return etagAt(s.Now()) }

// etagAt returns the ETag of something that was modified at a time.
func etagAt(modified time.Time) string { return fmt.Sprintf("0x%X", modified.UnixNano()) }

// headers sets the headers that describe a container.
func (c *container) headers(w http.ResponseWriter) {
	w.Header().Set("ETag", `"`+c.ETag+`"`)
	w.Header().Set("Last-Modified", c.Modified.UTC().Format(http.TimeFormat))
	w.Header().Set("x-ms-has-immutability-policy", strconv.FormatBool(c.Immutability != nil))
	w.Header().Set("x-ms-has-legal-hold", "false")
	if c.Access != "" {
		w.Header().Set("x-ms-blob-public-access", c.Access)
	}
}

var errNoContainer = newError(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")

// existingContainer returns a container, or an error if it does not exist.
func (s *Server) existingContainer(p path) (*container, error) {
	c, err := s.container(p)
	if err == nil && c == nil {
		err = errNoContainer
	}
	return c, err
}

// showContainer executes Get Container Properties.
func (s *Server) showContainer(w http.ResponseWriter, p path) error {
	c, err := s.existingContainer(p)
	if err != nil {
		return err
	}
	c.headers(w)
	w.WriteHeader(http.StatusOK)
	return nil
}

// deleteContainer executes Delete Container.
func (s *Server) deleteContainer(w http.ResponseWriter, p path) error {
	c, err := s.existingContainer(p)
	if err != nil {
		return err
	}
	if c.Immutability != nil {
		return errImmutable
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		prefix := p.account + "/" + p.container
		if err := deleteKeys(tx, blobs, prefix+"/"); err != nil {
			return err
		}
		if err := deleteBlocks(tx, prefix+"/"); err != nil {
			return err
		}
		return tx.Delete(containers, prefix)
	})
	if err == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return err
}

// key returns the key of a blob in the store.
func (p path) key() string { return p.account + "/" + p.container + "/" + p.blob }

// findBlob returns a blob, or nil if it does not exist.
func (s *Server) findBlob(p path) (*document, error) {
	if _, err := s.existingContainer(p); err != nil {
		return nil, err
	}
	d := &document{}
	found := false
	err := s.Store.View(func(tx *store.Tx) (err error) {
		found, err = tx.Get(blobs, p.key(), d)
		return err
	})
	if err != nil || !found {
		return nil, err
	}
	return d, nil
}

// checkConditions checks the conditional headers of a request against a blob, which is nil if it does not exist.
func checkConditions(r *http.Request, d *document) error {
	match, none := strings.Trim(r.Header.Get("If-Match"), `"`), strings.Trim(r.Header.Get("If-None-Match"), `"`)
	switch {
	case none == "*" && d != nil && r.Method == http.MethodPut:
		return newError(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
	case match != "" && (d == nil || match != "*" && match != d.ETag), none != "" && none != "*" && d != nil && none == d.ETag:
		return newError(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	}
	return nil
}

// put executes Put Blob.
func (s *Server) put(w http.ResponseWriter, r *http.Request, p path) error {
	kind := r.Header.Get("x-ms-blob-type")
	if kind != blockBlob && kind != appendBlob {
		return newError(http.StatusNotImplemented, "NotImplemented", "Blobs of type '%s' are not emulated.", kind)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBlob))
	if err != nil {
		return newError(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	}
	old, err := s.findBlob(p)
	if err != nil {
		return err
	}
	if err := checkConditions(r, old); err != nil {
		return err
	}
	if err := s.checkReplaceable(p, old); err != nil {
		return err
	}
	if kind == appendBlob && len(content) > 0 {
		return newError(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	}
	now := s.Now()
	d := &document{Name: p.blob, Content: content, ContentType: r.Header.Get("x-ms-blob-content-type"), CacheControl: r.Header.Get("x-ms-blob-cache-control"),
		ETag: s.etag(), Created: now, Modified: now, Metadata: map[string]string{}}
	if kind == appendBlob {
		d.Kind = appendBlob
	}
	if d.ContentType == "" {
		d.ContentType = "application/octet-stream"
	}
	for name := range r.Header {
		if key, ok := strings.CutPrefix(strings.ToLower(name), "x-ms-meta-"); ok {
			d.Metadata[key] = r.Header.Get(name)
		}
	}
	if old != nil {
		d.Created = old.Created
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := deleteBlocks(tx, p.blockPrefix()); err != nil {
			return err
		}
		return tx.Put(blobs, p.key(), d)
	})
	if err != nil {
		return err
	}
	d.headers(w)
	w.Header().Set("x-ms-request-server-encrypted", "true")
	w.WriteHeader(http.StatusCreated)
	return nil
}

// headers sets the headers that describe a blob.
func (d *document) headers(w http.ResponseWriter) {
	w.Header().Set("ETag", `"`+d.ETag+`"`)
	w.Header().Set("Last-Modified", d.Modified.UTC().Format(http.TimeFormat))
	if d.kind() == appendBlob {
		return
	}
	sum := md5.Sum(d.Content) // Azure uses MD5 for the checksum
	w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
}

// get executes Get Blob and Get Blob Properties.
func (s *Server) get(w http.ResponseWriter, r *http.Request, p path) error {
	d, err := s.findBlob(p)
	if err != nil {
		return err
	}
	if d == nil {
		return newError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	if err := checkConditions(r, d); err != nil {
		return err
	}
	from, to, partial, err := requestedRange(r, d.length())
	if err != nil {
		return err
	}
	var content []byte
	if r.Method == http.MethodGet {
		if content, err = s.content(p, d, from, to); err != nil {
			return err
		}
	}
	d.headers(w)
	w.Header().Set("Content-Type", d.ContentType)
	w.Header().Set("x-ms-blob-type", d.kind())
	if d.kind() == appendBlob {
		w.Header().Set("x-ms-blob-committed-block-count", strconv.Itoa(d.Blocks))
	}
	w.Header().Set("x-ms-creation-time", d.Created.UTC().Format(http.TimeFormat))
	if d.CacheControl != "" {
		w.Header().Set("Cache-Control", d.CacheControl)
	}
	for name, value := range d.Metadata {
		w.Header().Set("x-ms-meta-"+name, value)
	}
	w.Header().Set("Content-Length", strconv.FormatInt(to-from, 10))
	status := http.StatusOK
	if partial {
		status = http.StatusPartialContent
		w.Header().Del("Content-MD5")
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, d.length()))
	}
	w.WriteHeader(status)
	_, _ = w.Write(content) // an error means that the client has disconnected
	return nil
}

// delete executes Delete Blob.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, p path) error {
	d, err := s.findBlob(p)
	if err != nil {
		return err
	}
	if d == nil {
		return newError(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	if err := checkConditions(r, d); err != nil {
		return err
	}
	if err := s.checkReplaceable(p, d); err != nil {
		return err
	}
	err = s.Store.Update(func(tx *store.Tx) error {
		if err := deleteBlocks(tx, p.blockPrefix()); err != nil {
			return err
		}
		return tx.Delete(blobs, p.key())
	})
	if err != nil {
		return err
	}
	w.Header().Set("x-ms-delete-type-permanent", "true")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// listResult is the body of List Blobs.
type listResult struct {
	XMLName   xml.Name   `xml:"EnumerationResults"`
	Endpoint  string     `xml:"ServiceEndpoint,attr"`
	Container string     `xml:"ContainerName,attr"`
	Prefix    string     `xml:"Prefix,omitempty"`
	Blobs     []listItem `xml:"Blobs>Blob"`
	Next      string     `xml:"NextMarker"`
}

// listItem is one blob in a list.
type listItem struct {
	Name       string
	Properties struct {
		Created  string `xml:"Creation-Time"`
		Modified string `xml:"Last-Modified"`
		ETag     string `xml:"Etag"`
		Length   int64  `xml:"Content-Length"`
		Type     string `xml:"Content-Type"`
		BlobType string
	}
}

// list executes List Blobs.
func (s *Server) list(w http.ResponseWriter, p path, prefix string) error {
	if _, err := s.existingContainer(p); err != nil {
		return err
	}
	l := listResult{Endpoint: "/" + p.account + "/", Container: p.container, Prefix: prefix}
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[document](tx, blobs, p.account+"/"+p.container+"/"+prefix)
		for _, d := range all {
			i := listItem{Name: d.Name}
			i.Properties.Created, i.Properties.Modified = d.Created.UTC().Format(http.TimeFormat), d.Modified.UTC().Format(http.TimeFormat)
			i.Properties.ETag, i.Properties.Length, i.Properties.Type, i.Properties.BlobType = d.ETag, d.length(), d.ContentType, d.kind()
			l.Blobs = append(l.Blobs, i)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, xml.Header) // an error means that the client has disconnected
	_ = xml.NewEncoder(w).Encode(l)
	return nil
}

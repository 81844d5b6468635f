// Package blob answers as Azure Blob Storage does, for the operations by which documents are published: block blobs that
// are put whole, read, listed and deleted, in containers that may be readable by everybody. Accounts and containers are
// addressed as in http(s)://host/account/container/blob. Accounts are made with the emulator, not through it. Everything
// else (appending, blocks, leases, snapshots, access control by signatures) is refused with 501.
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

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// The buckets.
const (
	containers = "blob-containers" // by account/container
	blobs      = "blobs"           // by account/container/blob
)

// maxBlob bounds a blob. Documents are small.
const maxBlob = 8 << 20

// Server is the handler.
type Server struct {
	Store *store.Store
	// Accounts are those that there are.
	Accounts []string
	Now      func() time.Time

	changing sync.Mutex
}

type container struct {
	Name string `json:"name"`
	// Access is empty, blob or container.
	Access   string    `json:"access"`
	ETag     string    `json:"etag"`
	Modified time.Time `json:"modified"`
}

type document struct {
	Name         string            `json:"name"`
	Content      []byte            `json:"content"`
	ContentType  string            `json:"contentType"`
	CacheControl string            `json:"cacheControl"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	ETag         string            `json:"etag"`
	Created      time.Time         `json:"created"`
	Modified     time.Time         `json:"modified"`
}

// refusal is an error, as Blob Storage writes it.
type refusal struct {
	status        int
	code, message string
}

func (e *refusal) Error() string { return e.code + ": " + e.message }

func refuse(status int, code, format string, args ...any) error {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

// WriteError answers with an error.
func WriteError(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("x-ms-error-code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, xml.Header) // the client is gone
	_ = xml.NewEncoder(w).Encode(struct {
		XMLName       xml.Name `xml:"Error"`
		Code, Message string
	}{Code: code, Message: message})
}

// Serves says whether a path is in one of the accounts.
func (s *Server) Serves(path string) bool {
	account, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	for _, a := range s.Accounts {
		if a == account {
			return true
		}
	}
	return false
}

// Public says whether a request may be answered to somebody without a token.
func (s *Server) Public(r *http.Request) (bool, error) {
	p := split(r.URL.Path)
	if r.Method != http.MethodGet && r.Method != http.MethodHead || p.blob == "" || len(r.URL.Query()) > 0 {
		return false, nil
	}
	c, err := s.container(p)
	return err == nil && c != nil && c.Access != "", err
}

// path is what a URL's path names.
type path struct{ account, container, blob string }

func split(text string) path {
	parts := strings.SplitN(strings.TrimPrefix(text, "/"), "/", 3)
	parts = append(parts, "", "")
	return path{parts[0], parts[1], parts[2]}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("x-ms-request-id", uuid.NewString())
	w.Header().Set("x-ms-version", r.Header.Get("x-ms-version"))
	w.Header().Set("Date", s.Now().UTC().Format(http.TimeFormat))
	err := s.answer(w, r)
	if err == nil {
		return
	}
	var refused *refusal
	if !errors.As(err, &refused) {
		refused = &refusal{http.StatusInternalServerError, "InternalError", "The emulator is in trouble: " + err.Error()}
	}
	WriteError(w, refused.status, refused.code, refused.message)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request) error {
	p, query := split(r.URL.Path), r.URL.Query()
	s.changing.Lock()
	defer s.changing.Unlock()
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
	case p.blob == "" || query.Has("comp") || query.Has("snapshot") || query.Has("versionid"):
	case r.Method == http.MethodPut:
		return s.put(w, r, p)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return s.get(w, r, p)
	case r.Method == http.MethodDelete:
		return s.delete(w, r, p)
	}
	return refuse(http.StatusNotImplemented, "NotImplemented", "%s %s?%s is not emulated.", r.Method, r.URL.Path, r.URL.RawQuery)
}

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

var containerName = regexp.MustCompile(`^(\$web|\$root|[a-z0-9](-?[a-z0-9]){2,62})$`)

func (s *Server) createContainer(w http.ResponseWriter, r *http.Request, p path) error {
	access := r.Header.Get("x-ms-blob-public-access")
	switch {
	case !containerName.MatchString(p.container):
		return refuse(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	case access != "" && access != "blob" && access != "container":
		return refuse(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format.")
	}
	old, err := s.container(p)
	if err != nil {
		return err
	}
	if old != nil {
		return refuse(http.StatusConflict, "ContainerAlreadyExists", "The specified container already exists.")
	}
	c, err := s.MakeContainer(p.account, p.container, access)
	if err != nil {
		return err
	}
	c.headers(w)
	w.WriteHeader(http.StatusCreated)
	return nil
}

// MakeContainer makes a container, or gives it other access.
func (s *Server) MakeContainer(account, name, access string) (*container, error) {
	c := &container{Name: name, Access: access, ETag: s.etag(), Modified: s.Now()}
	return c, s.Store.Update(func(tx *store.Tx) error { return tx.Put(containers, account+"/"+name, c) })
}

func (s *Server) etag() string { return fmt.Sprintf("0x%X", s.Now().UnixNano()) }

func (c *container) headers(w http.ResponseWriter) {
	w.Header().Set("ETag", `"`+c.ETag+`"`)
	w.Header().Set("Last-Modified", c.Modified.UTC().Format(http.TimeFormat))
	if c.Access != "" {
		w.Header().Set("x-ms-blob-public-access", c.Access)
	}
}

var errNoContainer = refuse(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")

func (s *Server) existing(p path) (*container, error) {
	c, err := s.container(p)
	if err == nil && c == nil {
		err = errNoContainer
	}
	return c, err
}

func (s *Server) showContainer(w http.ResponseWriter, p path) error {
	c, err := s.existing(p)
	if err != nil {
		return err
	}
	c.headers(w)
	w.WriteHeader(http.StatusOK)
	return nil
}

func (s *Server) deleteContainer(w http.ResponseWriter, p path) error {
	if _, err := s.existing(p); err != nil {
		return err
	}
	err := s.Store.Update(func(tx *store.Tx) error {
		prefix := p.account + "/" + p.container
		var keys []string
		if err := tx.Scan(blobs, prefix+"/", func(key string, _ func(any) error) error { keys = append(keys, key); return nil }); err != nil {
			return err
		}
		for _, key := range keys {
			if err := tx.Delete(blobs, key); err != nil {
				return err
			}
		}
		return tx.Delete(containers, prefix)
	})
	if err == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return err
}

func (p path) key() string { return p.account + "/" + p.container + "/" + p.blob }

// find reads a blob; nil when there is none.
func (s *Server) find(p path) (*document, error) {
	if _, err := s.existing(p); err != nil {
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

// check holds a request's conditions against a blob, which is nil when there is none.
func check(r *http.Request, d *document) error {
	match, none := strings.Trim(r.Header.Get("If-Match"), `"`), strings.Trim(r.Header.Get("If-None-Match"), `"`)
	switch {
	case none == "*" && d != nil && r.Method == http.MethodPut:
		return refuse(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
	case match != "" && (d == nil || match != "*" && match != d.ETag), none != "" && none != "*" && d != nil && none == d.ETag:
		return refuse(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	}
	return nil
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, p path) error {
	if kind := r.Header.Get("x-ms-blob-type"); kind != "BlockBlob" {
		return refuse(http.StatusNotImplemented, "NotImplemented", "Blobs of type '%s' are not emulated.", kind)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBlob))
	if err != nil {
		return refuse(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	}
	old, err := s.find(p)
	if err != nil {
		return err
	}
	if err := check(r, old); err != nil {
		return err
	}
	now := s.Now()
	d := &document{Name: p.blob, Content: content, ContentType: r.Header.Get("x-ms-blob-content-type"), CacheControl: r.Header.Get("x-ms-blob-cache-control"),
		ETag: s.etag(), Created: now, Modified: now, Metadata: map[string]string{}}
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
	if err := s.Store.Update(func(tx *store.Tx) error { return tx.Put(blobs, p.key(), d) }); err != nil {
		return err
	}
	d.headers(w)
	w.Header().Set("x-ms-request-server-encrypted", "true")
	w.WriteHeader(http.StatusCreated)
	return nil
}

func (d *document) headers(w http.ResponseWriter) {
	w.Header().Set("ETag", `"`+d.ETag+`"`)
	w.Header().Set("Last-Modified", d.Modified.UTC().Format(http.TimeFormat))
	sum := md5.Sum(d.Content) // the checksum that the service has
	w.Header().Set("Content-MD5", base64.StdEncoding.EncodeToString(sum[:]))
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, p path) error {
	d, err := s.find(p)
	if err != nil {
		return err
	}
	if d == nil {
		return refuse(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	if err := check(r, d); err != nil {
		return err
	}
	d.headers(w)
	w.Header().Set("Content-Type", d.ContentType)
	w.Header().Set("x-ms-blob-type", "BlockBlob")
	w.Header().Set("x-ms-creation-time", d.Created.UTC().Format(http.TimeFormat))
	if d.CacheControl != "" {
		w.Header().Set("Cache-Control", d.CacheControl)
	}
	for name, value := range d.Metadata {
		w.Header().Set("x-ms-meta-"+name, value)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(d.Content)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(d.Content) // the client is gone
	}
	return nil
}

func (s *Server) delete(w http.ResponseWriter, r *http.Request, p path) error {
	d, err := s.find(p)
	if err != nil {
		return err
	}
	if d == nil {
		return refuse(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	}
	if err := check(r, d); err != nil {
		return err
	}
	if err := s.Store.Update(func(tx *store.Tx) error { return tx.Delete(blobs, p.key()) }); err != nil {
		return err
	}
	w.Header().Set("x-ms-delete-type-permanent", "true")
	w.WriteHeader(http.StatusAccepted)
	return nil
}

type listing struct {
	XMLName   xml.Name `xml:"EnumerationResults"`
	Endpoint  string   `xml:"ServiceEndpoint,attr"`
	Container string   `xml:"ContainerName,attr"`
	Prefix    string   `xml:"Prefix,omitempty"`
	Blobs     []item   `xml:"Blobs>Blob"`
	Next      string   `xml:"NextMarker"`
}

type item struct {
	Name       string
	Properties struct {
		Created  string `xml:"Creation-Time"`
		Modified string `xml:"Last-Modified"`
		ETag     string `xml:"Etag"`
		Length   int    `xml:"Content-Length"`
		Type     string `xml:"Content-Type"`
		BlobType string
	}
}

func (s *Server) list(w http.ResponseWriter, p path, prefix string) error {
	if _, err := s.existing(p); err != nil {
		return err
	}
	l := listing{Endpoint: "/" + p.account + "/", Container: p.container, Prefix: prefix}
	err := s.Store.View(func(tx *store.Tx) error {
		all, err := store.All[document](tx, blobs, p.account+"/"+p.container+"/"+prefix)
		for _, d := range all {
			i := item{Name: d.Name}
			i.Properties.Created, i.Properties.Modified = d.Created.UTC().Format(http.TimeFormat), d.Modified.UTC().Format(http.TimeFormat)
			i.Properties.ETag, i.Properties.Length, i.Properties.Type, i.Properties.BlobType = d.ETag, len(d.Content), d.ContentType, "BlockBlob"
			l.Blobs = append(l.Blobs, i)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(http.StatusOK)
	_, _ = io.WriteString(w, xml.Header) // the client is gone
	_ = xml.NewEncoder(w).Encode(l)
	return nil
}

package blob

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// authorize returns an error if the caller may not send the request. Reads that Public reports need no right.
func (s *Server) authorize(r *http.Request) error {
	if public, err := s.Public(r); err != nil || public {
		return err
	}
	p := parsePath(r.URL.Path)
	scope, _, err := s.account(p.account)
	if err != nil {
		return err
	}
	if p.container != "" {
		scope += "/blobServices/default/containers/" + p.container
	}
	wanted := action(r.Method, p, r.URL.Query())
	err = s.Access.Authorize(r.Context(), wanted, scope)
	if err != nil && s.adds(r, p) {
		wanted.Name = strings.TrimSuffix(wanted.Name, "write") + "add/action"
		err = s.Access.Authorize(r.Context(), wanted, scope)
		if !r.URL.Query().Has("comp") {
			r.Header.Set("If-None-Match", "*") // this right does not permit to replace a blob that appears meanwhile
		}
	}
	var denied *rbac.Denied
	if errors.As(err, &denied) {
		return newError(http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission. %s", denied.Error())
	}
	return err
}

// adds reports whether a request only adds content, for which the right blobs/add/action suffices: it appends a block or creates a blob.
func (s *Server) adds(r *http.Request, p path) bool {
	if r.Method != http.MethodPut || p.blob == "" {
		return false
	}
	if r.URL.Query().Get("comp") == "appendblock" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := s.findBlob(p)
	return err == nil && d == nil && !r.URL.Query().Has("comp")
}

// action returns the action of a request: on the data for blobs and lists of blobs, on the container otherwise.
func action(method string, p path, query url.Values) rbac.Action {
	name := "Microsoft.Storage/storageAccounts/blobServices/containers/"
	data := p.blob != "" || query.Get("comp") == "list"
	if data {
		name += "blobs/"
	}
	switch method {
	case http.MethodGet, http.MethodHead:
		name += "read"
	case http.MethodPut:
		name += "write"
	case http.MethodDelete:
		name += "delete"
	default:
		name += "unknown"
	}
	return rbac.Action{Name: name, Data: data, Blob: p.blob}
}

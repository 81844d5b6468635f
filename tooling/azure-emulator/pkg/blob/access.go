package blob

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

// authorize returns an error if the caller may not send the request. Reads that Public reports need no right.
func (s *Server) authorize(r *http.Request) error {
	if public, err := s.Public(r); err != nil || public {
		return err
	}
	p := parsePath(r.URL.Path)
	scope := s.Accounts[p.account]
	if p.container != "" {
		scope += "/blobServices/default/containers/" + p.container
	}
	err := s.Access.Authorize(r.Context(), action(r.Method, p, r.URL.Query()), scope)
	var denied *rbac.Denied
	if errors.As(err, &denied) {
		return newError(http.StatusForbidden, "AuthorizationPermissionMismatch", "This request is not authorized to perform this operation using this permission. %s", denied.Error())
	}
	return err
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
	return rbac.Action{Name: name, Data: data}
}

package mesh

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// maxLoggedPath bounds the path or topic of a refused request in its audit record, in bytes.
const maxLoggedPath = 256

// Handler returns a handler that calls next for requests that a rule allows, with the identity of the caller in their context.
// It responds to other requests with status 403, or with 401 if the caller has no identity. The rules are matched to the
// cleaned path, as http.ServeMux does. The server must use the listener of Listener with the same transport.
func (a *Authorizer) Handler(transport Transport, next http.Handler) http.Handler {
	return a.HandlerFor(transport, next, func(r *http.Request) string {
		// A request that matches no pattern has the pattern "", for which there is no rule.
		_, pattern := a.paths.Handler(r)
		return pattern
	})
}

// HandlerFor is Handler for a server that routes requests itself. patternOf returns the pattern of the route that the server uses
// for a request, or Unrouted.
func (a *Authorizer) HandlerFor(transport Transport, next http.Handler, patternOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pattern := patternOf(r)
		id, err := transport.requestPeer(r, a.clients)
		if notAllowed := (*notAllowedError)(nil); errors.As(err, &notAllowed) {
			respond(w, a.refuseCaller(r.Context(), Refusal{Err: err}))
			return
		}
		if err == nil {
			_, err = a.condition(HTTP, pattern, id.Peer)
		}
		if err != nil {
			a.refuse(w, r, id.Peer, pattern, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ContextWithPeer(r.Context(), id)))
	})
}

// refuse responds to a request that no rule allows.
func (a *Authorizer) refuse(w http.ResponseWriter, r *http.Request, client Peer, pattern string, err error) {
	e := apierror.As(err)
	if e.Kind == apierror.PermissionDenied {
		e = apierror.As(a.denied(client, "this method and path", ""))
	}
	if pattern == "" || pattern == Unrouted {
		pattern = r.Method[:min(len(r.Method), maxLoggedPath)] + " " + Unrouted
	}
	path := r.URL.Path
	a.audit(r.Context(), Refusal{Client: client, Method: pattern, Object: path[:min(len(path), maxLoggedPath)], Err: e})
	respond(w, e)
}

// respond responds with an error in the form of ARM's errors.
func respond(w http.ResponseWriter, err error) {
	e := apierror.As(err)
	body, _ := json.Marshal(map[string]any{"error": map[string]string{"code": e.Kind.ARMCode(), "message": e.Message}}) // strings
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Kind.HTTPStatus())
	_, _ = w.Write(append(body, '\n'))
}

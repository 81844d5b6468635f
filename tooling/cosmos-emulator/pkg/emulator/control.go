package emulator

import (
	"net/http"
	"strings"
)

// controlPrefix is the path of the endpoints for tests.
const controlPrefix = "/_emulator/"

// isControl reports whether a request is for an endpoint for tests.
func isControl(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, controlPrefix) }

// control serves the endpoints for tests: /_emulator/faults and POST /_emulator/split?db=&container=&range=.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	switch strings.TrimPrefix(r.URL.Path, controlPrefix) {
	case "faults":
		s.faults.ServeHTTP(w, r)
	case "split":
		if r.Method != http.MethodPost {
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		q := r.URL.Query()
		if _, err := s.store.Split(r.Context(), q.Get("db"), q.Get("container"), q.Get("range")); err != nil {
			http.Error(w, err.Error(), toStatusError(err).status)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "unknown control endpoint", http.StatusNotFound)
	}
}

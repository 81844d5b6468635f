// Package tickets stands in for a ticket system in a local region. It answers admin's questions about tickets by a rule: every
// ticket of the form LETTERS-NUMBER, for example INC-42, exists and is open, unless a file lists it as closed. It keeps no data.
package tickets

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Path is the path of the validator.
const Path = "/tickets/validate"

// maxBody is the maximum size of a question in bytes.
const maxBody = 16 << 10

// form is the form of tickets that exist.
var form = regexp.MustCompile(`^[A-Z]{2,10}-[1-9][0-9]{0,8}$`)

// Server is the HTTP handler.
type Server struct {
	// PublicURL is the URL of the server, for links.
	PublicURL string
	// Token is the bearer token of callers.
	Token string
	// ClosedFile has the IDs of closed tickets, one in each line. It may be missing, and may change at any time.
	ClosedFile string
}

// state is the body of the response to the question whether a ticket is open.
type state struct {
	Open   bool   `json:"open"`
	Reason string `json:"reason,omitempty"`
}

// answer is the body of the response to any other question.
type answer struct {
	Valid  bool   `json:"valid"`
	Title  string `json:"title,omitempty"`
	Link   string `json:"link,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.Token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.Token)) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "the bearer token is missing or wrong", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	var question struct{ Ticket, Check string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&question); err != nil {
		http.Error(w, "the body is not a question: "+err.Error(), http.StatusBadRequest)
		return
	}
	result, err := s.find(question.Ticket)
	if err != nil {
		http.Error(w, "the closed tickets cannot be read", http.StatusInternalServerError)
		return
	}
	var body any = result
	switch question.Check {
	case "":
	case "open":
		body = state{Open: result.Valid, Reason: result.Reason}
	default:
		http.Error(w, "check: supported values: open", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // an error means that the client has disconnected
}

func (s *Server) find(id string) (answer, error) {
	if !form.MatchString(id) {
		return answer{Reason: "it does not exist; tickets have the form INC-42"}, nil
	}
	closed, err := os.ReadFile(s.ClosedFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return answer{}, err
	}
	if slices.Contains(strings.Fields(string(closed)), id) {
		return answer{Reason: "it is closed"}, nil
	}
	return answer{Valid: true, Title: "Ticket " + id + " of the local region", Link: s.PublicURL + "/tickets/" + id}, nil
}

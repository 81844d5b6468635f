// Package alertmanagertest simulates the part of Alertmanager's API, version 2, that silences use. It keeps the rules of the original: a new
// silence is active, an ended one is expired and stays readable, and a silence without matchers is rejected.
package alertmanagertest

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Alertmanager is the API. It is safe for concurrent use.
type Alertmanager struct {
	mu       sync.Mutex
	silences []*silence
}

type silence struct {
	ID        string            `json:"id"`
	Status    map[string]string `json:"status"`
	UpdatedAt time.Time         `json:"updatedAt"`
	Matchers  json.RawMessage   `json:"matchers"`
	StartsAt  time.Time         `json:"startsAt"`
	EndsAt    time.Time         `json:"endsAt"`
	CreatedBy string            `json:"createdBy"`
	Comment   string            `json:"comment"`
}

// ServeHTTP implements http.Handler.
func (a *Alertmanager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v2/silences", func(w http.ResponseWriter, _ *http.Request) { respond(w, a.silences) })
	mux.HandleFunc("POST /api/v2/silences", a.create)
	mux.HandleFunc("GET /api/v2/silence/{id}", func(w http.ResponseWriter, r *http.Request) {
		if s := a.find(w, r); s != nil {
			respond(w, s)
		}
	})
	mux.HandleFunc("DELETE /api/v2/silence/{id}", func(w http.ResponseWriter, r *http.Request) {
		if s := a.find(w, r); s != nil {
			s.Status, s.EndsAt, s.UpdatedAt = map[string]string{"state": "expired"}, time.Now().UTC(), time.Now().UTC()
		}
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	mux.ServeHTTP(w, r)
}

func (a *Alertmanager) create(w http.ResponseWriter, r *http.Request) {
	s := &silence{}
	var matchers []struct{ Name, Value string }
	if json.NewDecoder(r.Body).Decode(s) != nil || json.Unmarshal(s.Matchers, &matchers) != nil || len(matchers) == 0 || !s.EndsAt.After(time.Now()) || s.CreatedBy == "" || s.Comment == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	s.ID, s.Status, s.UpdatedAt = uuid.NewString(), map[string]string{"state": "active"}, time.Now().UTC()
	a.silences = append(a.silences, s)
	respond(w, map[string]string{"silenceID": s.ID})
}

// find returns the silence in the path, or responds that there is none.
func (a *Alertmanager) find(w http.ResponseWriter, r *http.Request) *silence {
	for _, s := range a.silences {
		if s.ID == r.PathValue("id") {
			return s
		}
	}
	w.WriteHeader(http.StatusNotFound)
	return nil
}

func respond(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

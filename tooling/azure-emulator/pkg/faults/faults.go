// Package faults lets a test make the emulator misbehave as Azure does on a bad day: refuse with 429, 409, 500 or 503,
// answer late, lose a request, or do what was asked and then lose the answer. Rules are matched against requests in the
// order in which they were added and fire with a probability, at most a number of times. The package decides; the emulator
// carries it out. Randomness comes from a seed, so that a run can be repeated.
package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rule is one fault.
type Rule struct {
	ID string `json:"id"`

	// What it matches; an empty field matches everything.
	Methods  []string `json:"methods,omitempty"`  // HTTP methods
	Services []string `json:"services,omitempty"` // arm, vault, blob, issuer
	// Path is a part of the request's path, without regard to case.
	Path string `json:"path,omitempty"`

	// Probability of firing, 0 to 1; 1 when absent.
	Probability *float64 `json:"probability,omitempty"`
	// Skip lets this many matching requests pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how often it fires before it is used up; 0 is without end.
	Count int `json:"count,omitempty"`

	// What happens. Status refuses before anything is done, with Code in the answer. DropResponse lets the request do its
	// work and then closes the connection; DropRequest closes it before. LatencyMS delays before, whatever else happens.
	Status       int    `json:"status,omitempty"`
	Code         string `json:"code,omitempty"`
	RetryAfterMS int    `json:"retryAfterMs,omitempty"`
	LatencyMS    int    `json:"latencyMs,omitempty"`
	DropResponse bool   `json:"dropResponse,omitempty"`
	DropRequest  bool   `json:"dropRequest,omitempty"`

	Matched int `json:"matched"`
	Fired   int `json:"fired"`
}

// Request is what rules are matched against.
type Request struct {
	Method, Service, Path string
	// Named says that only rules that name the service match.
	Named bool
}

// Set is the rules of one emulator.
type Set struct {
	mu    sync.Mutex
	rules []*Rule
	next  int
	rand  *rand.Rand
}

// New makes a set whose probabilities follow the seed.
func New(seed uint64) *Set { return &Set{rand: rand.New(rand.NewPCG(seed, seed))} }

// Add checks a rule and puts it at the end; it returns the rule's id.
func (s *Set) Add(r Rule) (string, error) {
	switch {
	case r.Status == 0 && r.LatencyMS == 0 && !r.DropResponse && !r.DropRequest:
		return "", errors.New("the rule does nothing: set status, latencyMs, dropResponse or dropRequest")
	case r.Status != 0 && (r.Status < 400 || r.Status > 599):
		return "", fmt.Errorf("status %d is not that of an error", r.Status)
	case r.Status != 0 && r.DropResponse:
		return "", errors.New("status and dropResponse exclude each other: a refused request does nothing")
	case r.Probability != nil && (*r.Probability < 0 || *r.Probability > 1):
		return "", fmt.Errorf("probability %v is not between 0 and 1", *r.Probability)
	case r.Count < 0 || r.Skip < 0 || r.LatencyMS < 0 || r.RetryAfterMS < 0:
		return "", errors.New("counts and durations cannot be negative")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.ID == "" {
		s.next++
		r.ID = "fault-" + strconv.Itoa(s.next)
	}
	r.Matched, r.Fired = 0, 0
	s.rules = slices.DeleteFunc(s.rules, func(old *Rule) bool { return old.ID == r.ID })
	s.rules = append(s.rules, &r)
	return r.ID, nil
}

// Remove takes a rule out; it says whether there was one.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.rules)
	s.rules = slices.DeleteFunc(s.rules, func(r *Rule) bool { return r.ID == id })
	return len(s.rules) < n
}

// Clear takes all rules out.
func (s *Set) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// List returns copies of the rules with their counters.
func (s *Set) List() []Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Rule, len(s.rules))
	for i, r := range s.rules {
		out[i] = *r
	}
	return out
}

// Next decides what happens to a request: the first rule that matches and fires, or nil.
func (s *Set) Next(request Request) *Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rules {
		if r.Count > 0 && r.Fired >= r.Count || !r.matches(request) {
			continue
		}
		r.Matched++
		if r.Matched <= r.Skip {
			continue
		}
		if r.Probability != nil && s.rand.Float64() >= *r.Probability {
			continue
		}
		r.Fired++
		fired := *r
		return &fired
	}
	return nil
}

func (r *Rule) matches(request Request) bool {
	if request.Named && len(r.Services) == 0 {
		return false
	}
	return oneOf(r.Methods, request.Method) && oneOf(r.Services, request.Service) &&
		strings.Contains(strings.ToLower(request.Path), strings.ToLower(r.Path))
}

func oneOf(want []string, got string) bool {
	return len(want) == 0 || slices.ContainsFunc(want, func(w string) bool { return strings.EqualFold(w, got) })
}

// Latency is how long the request waits.
func (r *Rule) Latency() time.Duration { return time.Duration(r.LatencyMS) * time.Millisecond }

// RetryAfter is what the answer asks the caller to wait.
func (r *Rule) RetryAfter() time.Duration { return time.Duration(r.RetryAfterMS) * time.Millisecond }

// ServeHTTP is the control endpoint: GET lists the rules, POST adds one, DELETE removes all or, with ?id=, one.
func (s *Set) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		writeJSON(w, http.StatusOK, s.List())
	case http.MethodPost:
		body := json.NewDecoder(io.LimitReader(r.Body, 1<<20))
		body.DisallowUnknownFields()
		var rule Rule
		if err := body.Decode(&rule); err != nil {
			http.Error(w, "malformed fault: "+err.Error(), http.StatusBadRequest)
			return
		}
		id, err := s.Add(rule)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		writeJSON(w, http.StatusCreated, map[string]string{"id": id})
	case http.MethodDelete:
		id := r.URL.Query().Get("id")
		if id == "" {
			s.Clear()
		} else if !s.Remove(id) {
			http.Error(w, "no such fault: "+id, http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone
}

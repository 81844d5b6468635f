// Package faults lets a test make an emulator misbehave as the service does on a bad day: refuse with 429, 409, 449, 412, 500
// or 503, answer late, lose a request, or do what was asked and then lose the answer. Rules are matched against requests in
// the order in which they were added and fire with a probability, at most a number of times. The package decides; the
// emulator carries it out, and refuses rules about what it does not tell of its requests. Randomness comes from a seed, so
// that a run can be repeated.
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

	// What it matches; an empty field matches everything. These every emulator tells.
	Methods []string `json:"methods,omitempty"` // HTTP methods

	// These the emulator of Azure tells.
	Services []string `json:"services,omitempty"` // arm, vault, blob; issuer is only matched by rules that name it
	// Path is a part of the request's path, without regard to case.
	Path string `json:"path,omitempty"`

	// These the emulator of Cosmos DB tells.
	ResourceTypes []string `json:"resourceTypes,omitempty"` // dbs, colls, docs, pkranges, offers
	Operations    []string `json:"operations,omitempty"`    // create, upsert, replace, delete, read, patch, batch, query, changefeed, list
	Database      string   `json:"database,omitempty"`
	Container     string   `json:"container,omitempty"`
	PartitionKey  string   `json:"partitionKey,omitempty"` // the header's text, such as ["a"]
	ItemID        string   `json:"itemId,omitempty"`

	// Probability of firing, 0 to 1; 1 when absent.
	Probability *float64 `json:"probability,omitempty"`
	// Skip lets this many matching requests pass first.
	Skip int `json:"skip,omitempty"`
	// Count is how often it fires before it is used up; 0 is without end.
	Count int `json:"count,omitempty"`

	// What happens. Status refuses before anything is done, with Code (of Azure) or SubStatus (of Cosmos DB) in the answer.
	// DropResponse lets the request do its work and then closes the connection; DropRequest closes it before. LatencyMS delays
	// before, whatever else happens.
	Status       int    `json:"status,omitempty"`
	Code         string `json:"code,omitempty"`
	SubStatus    int    `json:"subStatus,omitempty"`
	RetryAfterMS int    `json:"retryAfterMs,omitempty"`
	LatencyMS    int    `json:"latencyMs,omitempty"`
	DropResponse bool   `json:"dropResponse,omitempty"`
	DropRequest  bool   `json:"dropRequest,omitempty"`

	Matched int `json:"matched"`
	Fired   int `json:"fired"`
}

// Request is what rules are matched against.
type Request struct {
	Method string
	// What the emulator of Azure tells. Named says that only rules that name the service match.
	Service, Path string
	Named         bool
	// What the emulator of Cosmos DB tells.
	ResourceType, Operation, Database, Container, PartitionKey, ItemID string
}

// Emulator is whose requests the rules of a set are about.
type Emulator string

// The emulators.
const (
	Azure    Emulator = "Azure"
	CosmosDB Emulator = "Cosmos DB"
)

// emulatorFields are the fields of a rule that only one emulator knows, by their names in JSON.
var emulatorFields = map[Emulator]map[string]func(r *Rule) bool{
	Azure: {
		"services": func(r *Rule) bool { return len(r.Services) > 0 },
		"path":     func(r *Rule) bool { return r.Path != "" },
		"code":     func(r *Rule) bool { return r.Code != "" },
	},
	CosmosDB: {
		"resourceTypes": func(r *Rule) bool { return len(r.ResourceTypes) > 0 },
		"operations":    func(r *Rule) bool { return len(r.Operations) > 0 },
		"database":      func(r *Rule) bool { return r.Database != "" },
		"container":     func(r *Rule) bool { return r.Container != "" },
		"partitionKey":  func(r *Rule) bool { return r.PartitionKey != "" },
		"itemId":        func(r *Rule) bool { return r.ItemID != "" },
		"subStatus":     func(r *Rule) bool { return r.SubStatus != 0 },
	},
}

// Set is the rules of one emulator.
type Set struct {
	of    Emulator
	mu    sync.Mutex
	rules []*Rule
	next  int
	rand  *rand.Rand
}

// New makes an emulator's set, whose probabilities follow the seed.
func New(of Emulator, seed uint64) *Set { return &Set{of: of, rand: rand.New(rand.NewPCG(seed, seed))} }

var errNoEffect = errors.New("the rule does nothing: set status, latencyMs, dropResponse or dropRequest")

// Add checks a rule and puts it at the end; it returns the rule's id.
func (s *Set) Add(r Rule) (string, error) {
	if r.Status == 0 && r.LatencyMS == 0 && !r.DropResponse && !r.DropRequest {
		return "", errNoEffect
	}
	if r.Status != 0 && (r.Status < 400 || r.Status > 599) {
		return "", fmt.Errorf("status %d is not that of an error", r.Status)
	}
	if r.Status != 0 && r.DropResponse {
		return "", errors.New("status and dropResponse exclude each other: a refused request commits nothing")
	}
	if p := r.Probability; p != nil && (*p < 0 || *p > 1) {
		return "", fmt.Errorf("probability %v is not between 0 and 1", *p)
	}
	if r.Count < 0 || r.Skip < 0 || r.LatencyMS < 0 || r.RetryAfterMS < 0 {
		return "", errors.New("counts and durations cannot be negative")
	}
	for of, fields := range emulatorFields {
		for name, set := range fields {
			if of != s.of && set(&r) {
				return "", fmt.Errorf("%s is the emulator of %s's: that of %s does not know it", name, of, s.of)
			}
		}
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
		strings.Contains(strings.ToLower(request.Path), strings.ToLower(r.Path)) &&
		oneOf(r.ResourceTypes, request.ResourceType) && oneOf(r.Operations, request.Operation) &&
		same(r.Database, request.Database) && same(r.Container, request.Container) &&
		same(r.PartitionKey, request.PartitionKey) && same(r.ItemID, request.ItemID)
}

func oneOf(want []string, got string) bool {
	return len(want) == 0 || slices.ContainsFunc(want, func(w string) bool { return strings.EqualFold(w, got) })
}

func same(want, got string) bool { return want == "" || want == got }

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

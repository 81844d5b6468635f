// Package faults lets a test inject faults into an emulator: responses with status 429, 409, 449, 412, 500 or 503, latency, lost
// requests, lost responses of requests that had an effect, and stale reads. Rules are matched against requests in the order in which they were
// added. A rule fires with a probability and a bounded number of times. The package decides and the emulator executes; it rejects
// rules with attributes that its requests do not have. A seed makes a run repeatable.
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

	// The attributes of matching requests; an empty field matches all. All emulators support these:
	Methods []string `json:"methods,omitempty"` // HTTP methods

	// The Azure emulator supports these:
	Services []string `json:"services,omitempty"` // arm, vault, blob, identity; issuer is only matched by rules that name it
	// Path is a substring of the path of the request. The comparison ignores case.
	Path string `json:"path,omitempty"`

	// The Cosmos DB emulator supports these:
	ResourceTypes []string `json:"resourceTypes,omitempty"` // dbs, colls, docs, pkranges
	Operations    []string `json:"operations,omitempty"`    // create, upsert, replace, delete, read, batch, query, changefeed, list
	Database      string   `json:"database,omitempty"`
	Container     string   `json:"container,omitempty"`
	PartitionKey  string   `json:"partitionKey,omitempty"` // the value of the header, for example ["a"]
	ItemID        string   `json:"itemId,omitempty"`

	// Probability is the probability of firing, 0 to 1; nil means 1.
	Probability *float64 `json:"probability,omitempty"`
	// Skip is the number of matching requests before the rule fires.
	Skip int `json:"skip,omitempty"`
	// Count bounds how often the rule fires; 0 means no bound.
	Count int `json:"count,omitempty"`

	// The fault. Status is the status of an error response to a request that has no effect, with Code (Azure) or SubStatus (Cosmos
	// DB). DropResponse closes the connection after the request had its effect, DropRequest before. LatencyMS delays the
	// request in all cases.
	Status       int    `json:"status,omitempty"`
	Code         string `json:"code,omitempty"`
	SubStatus    int    `json:"subStatus,omitempty"`
	RetryAfterMS int    `json:"retryAfterMs,omitempty"`
	LatencyMS    int    `json:"latencyMs,omitempty"`
	DropResponse bool   `json:"dropResponse,omitempty"`
	DropRequest  bool   `json:"dropRequest,omitempty"`
	// StaleRead serves a read or a query from a replica without the last write, if the consistency level of the request allows it (Cosmos DB).
	StaleRead bool `json:"staleRead,omitempty"`

	Matched int `json:"matched"`
	Fired   int `json:"fired"`
}

// Request contains the attributes of a request.
type Request struct {
	Method string
	// Attributes of the Azure emulator. Named means that only rules with a service match.
	Service, Path string
	Named         bool
	// Attributes of the Cosmos DB emulator.
	ResourceType, Operation, Database, Container, PartitionKey, ItemID string
}

// Emulator identifies the emulator that a set of rules is for.
type Emulator string

// Emulators with fault injection.
const (
	Azure    Emulator = "Azure"
	CosmosDB Emulator = "Cosmos DB"
)

// emulatorFields contains the fields of a rule that only one emulator supports, by their JSON names.
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
		"staleRead":     func(r *Rule) bool { return r.StaleRead },
	},
}

// Set contains the rules of one emulator. It is safe for concurrent use.
type Set struct {
	of    Emulator
	mu    sync.Mutex
	rules []*Rule
	next  int
	rand  *rand.Rand
}

// New returns an empty set. The seed determines its random decisions.
func New(of Emulator, seed uint64) *Set { return &Set{of: of, rand: rand.New(rand.NewPCG(seed, seed))} }

var errNoEffect = errors.New("the rule has no effect: set status, latencyMs, dropResponse, dropRequest or staleRead")

// Add validates a rule, appends it and returns its ID. A rule with the same ID is replaced.
func (s *Set) Add(r Rule) (string, error) {
	if r.Status == 0 && r.LatencyMS == 0 && !r.DropResponse && !r.DropRequest && !r.StaleRead {
		return "", errNoEffect
	}
	if r.Status != 0 && (r.Status < 400 || r.Status > 599) {
		return "", fmt.Errorf("status %d is not an error", r.Status)
	}
	if r.Status != 0 && r.DropResponse {
		return "", errors.New("status and dropResponse exclude each other: a rejected request has no effect")
	}
	if p := r.Probability; p != nil && (*p < 0 || *p > 1) {
		return "", fmt.Errorf("probability %v is not between 0 and 1", *p)
	}
	if r.Count < 0 || r.Skip < 0 || r.LatencyMS < 0 || r.RetryAfterMS < 0 {
		return "", errors.New("counts and durations must not be negative")
	}
	for of, fields := range emulatorFields {
		for name, set := range fields {
			if of != s.of && set(&r) {
				return "", fmt.Errorf("%s is an attribute of the %s emulator, not of the %s emulator", name, of, s.of)
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

// Remove removes a rule and reports whether it existed.
func (s *Set) Remove(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.rules)
	s.rules = slices.DeleteFunc(s.rules, func(r *Rule) bool { return r.ID == id })
	return len(s.rules) < n
}

// Clear removes all rules.
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

// Next returns a copy of the first rule that matches a request and fires, or nil.
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

// Latency returns the delay of the request.
func (r *Rule) Latency() time.Duration { return time.Duration(r.LatencyMS) * time.Millisecond }

// RetryAfter returns the time in the Retry-After of the response.
func (r *Rule) RetryAfter() time.Duration { return time.Duration(r.RetryAfterMS) * time.Millisecond }

// ServeHTTP serves the control endpoint: GET lists the rules, POST adds one, DELETE removes all or, with ?id=, one.
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
	_ = json.NewEncoder(w).Encode(v) // the client has disconnected
}

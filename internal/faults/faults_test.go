package faults

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func probability(p float64) *float64 { return &p }

func TestNext(t *testing.T) {
	write := Request{Method: "PUT", ResourceType: "docs", Operation: "replace", Database: "db", Container: "c", PartitionKey: `["p"]`, ItemID: "a"}
	cases := map[string]struct {
		rule   Rule
		want   string // one character per request: F fires, . does not
		reason string
	}{
		"always":      {Rule{Status: 503}, "FFFF", "no end"},
		"twice":       {Rule{Status: 503, Count: 2}, "FF..", "used up"},
		"after two":   {Rule{Status: 503, Skip: 2, Count: 1}, "..F.", "the third"},
		"never":       {Rule{Status: 503, Probability: probability(0)}, "....", "probability 0"},
		"certain":     {Rule{Status: 503, Probability: probability(1)}, "FFFF", "probability 1"},
		"method":      {Rule{Status: 503, Methods: []string{"get"}}, "....", "another method"},
		"methods":     {Rule{Status: 503, Methods: []string{"get", "put"}}, "FFFF", "one of them, whatever the case"},
		"resource":    {Rule{Status: 503, ResourceTypes: []string{"colls"}}, "....", "another resource"},
		"partition":   {Rule{Status: 503, PartitionKey: `["p"]`}, "FFFF", "this partition"},
		"other item":  {Rule{Status: 503, ItemID: "b"}, "....", "another item"},
		"everything":  {Rule{Status: 503, Methods: []string{"PUT"}, Operations: []string{"replace"}, Database: "db", Container: "c", ItemID: "a"}, "FFFF", "all match"},
		"only delays": {Rule{LatencyMS: 5}, "FFFF", "a delay is a fault"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := New(CosmosDB, 1)
			must.Get(s.Add(tc.rule))(t)
			got := ""
			for range 4 {
				if s.Next(write) != nil {
					got += "F"
				} else {
					got += "."
				}
			}
			if got != tc.want {
				t.Errorf("%s, want %s: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// TestNextOfAzure matches attributes that only the Azure emulator has.
func TestNextOfAzure(t *testing.T) {
	write := Request{Method: "PUT", Service: "arm", Path: "/subscriptions/s/resourceGroups/g"}
	issue := Request{Service: "issuer", Path: "/certificates/kas", Named: true}
	cases := map[string]struct {
		rule    Rule
		request Request
		want    bool
		reason  string
	}{
		"path":         {Rule{Status: 503, Path: "/RESOURCEGROUPS/"}, write, true, "a part of it, whatever the case"},
		"other path":   {Rule{Status: 503, Path: "/dnsZones/"}, write, false, "another path"},
		"service":      {Rule{Status: 503, Services: []string{"arm", "blob"}}, write, true, "one of them"},
		"other":        {Rule{Status: 503, Services: []string{"vault"}}, write, false, "another service"},
		"not named":    {Rule{Status: 503}, issue, false, "a rule for everything is none for who issues certificates"},
		"named":        {Rule{Status: 503, Services: []string{"issuer"}}, issue, true, "it is named"},
		"named, other": {Rule{Status: 503, Services: []string{"issuer"}, Path: "other"}, issue, false, "another certificate"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := New(Azure, 1)
			must.Get(s.Add(tc.rule))(t)
			if got := s.Next(tc.request) != nil; got != tc.want {
				t.Errorf("%v, want %v: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestProbabilityFollowsTheSeed(t *testing.T) {
	run := func(seed uint64) string {
		s := New(CosmosDB, seed)
		must.Get(s.Add(Rule{Status: 429, Probability: probability(0.3)}))(t)
		out := ""
		for range 200 {
			if s.Next(Request{}) != nil {
				out += "F"
			} else {
				out += "."
			}
		}
		return out
	}
	first, again, other := run(1), run(1), run(2)
	if first != again || first == other {
		t.Error("equal seeds must lead to equal faults, and different seeds to different ones")
	}
	if n := strings.Count(first, "F"); n < 30 || n > 90 {
		t.Errorf("%d of 200 fired at a probability of 0.3", n)
	}
}

func TestControlEndpoint(t *testing.T) {
	s := New(CosmosDB, 1)
	call := func(method, target, body string) (int, string) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, target, strings.NewReader(body)))
		return w.Code, strings.TrimSpace(w.Body.String())
	}
	steps := []struct {
		method, target, body string
		status               int
		contains             string
	}{
		{"POST", "/faults", `{"status":429,"retryAfterMs":5,"operations":["upsert"]}`, 201, `{"id":"fault-1"}`},
		{"POST", "/faults", `{"id":"mine","dropResponse":true,"count":1}`, 201, `{"id":"mine"}`},
		{"GET", "/faults", "", 200, `"retryAfterMs":5`},
		{"POST", "/faults", `{"status":200}`, 400, "status 200 is not an error"},
		{"POST", "/faults", `{"sttus":429}`, 400, "sttus"},
		{"POST", "/faults", `{"status":429,"path":"/docs"}`, 400, "path is an attribute of the Azure emulator"},
		{"POST", "/faults", `{}`, 400, "has no effect"},
		{"POST", "/faults", `{"staleRead":true,"count":1}`, 201, `{"id":"fault-2"}`},
		{"POST", "/faults", `{"status":503,"probability":2}`, 400, "probability"},
		{"POST", "/faults", `{"status":503,"dropResponse":true}`, 400, "exclude"},
		{"DELETE", "/faults?id=mine", "", 204, ""},
		{"DELETE", "/faults?id=mine", "", 404, "no such fault"},
		{"DELETE", "/faults", "", 204, ""},
		{"GET", "/faults", "", 200, "[]"},
		{"PUT", "/faults", "", http.StatusMethodNotAllowed, ""},
	}
	for _, step := range steps {
		if code, body := call(step.method, step.target, step.body); code != step.status || !strings.Contains(body, step.contains) {
			t.Errorf("%s %s %s: %d %s, want %d %s", step.method, step.target, step.body, code, body, step.status, step.contains)
		}
	}
}

// Package servertest checks a run of admin's cases as a whole, whether in process or against a region: each route succeeded and
// was rejected for each lower role, each response matches the OpenAPI document, and the audit is complete and contains no
// secrets. It records the responses in the HTTP client.
package servertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hcpmesh/hcpmesh/admin/openapi"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// Record is an http.RoundTripper that records all responses. In a case the name of an engineer replaces the token.
type Record struct {
	next   http.RoundTripper
	routes *http.ServeMux

	mu      sync.Mutex
	answers []answer
}

// answer is a recorded response.
type answer struct {
	// route is a method and a pattern; who is the engineer, empty for a request without a token.
	route, who string
	status     int
	// contentType is the media type of the body.
	contentType string
	body        []byte
}

// New returns a Record of the responses of next.
func New(next http.RoundTripper) *Record {
	r := &Record{next: next, routes: http.NewServeMux()}
	for _, route := range server.Routes() {
		r.routes.Handle(route.Method+" "+route.Path, http.NotFoundHandler())
	}
	return r
}

// RoundTrip implements http.RoundTripper.
func (r *Record) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := r.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	_, route := r.routes.Handler(request)
	who := strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")
	r.mu.Lock()
	r.answers = append(r.answers, answer{route, who, response.StatusCode, response.Header.Get("Content-Type"), body})
	r.mu.Unlock()
	return response, nil
}

func (r *Record) taken() []answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.answers)
}

// EveryRoute checks that each route succeeded and that it was rejected for each lower role. The engineers reader, operator and
// oncall have the roles reader, operator and break-glass; guest has none. The run has no cases of the routes except.
func (r *Record) EveryRoute(t *testing.T, except ...string) {
	t.Helper()
	statuses := map[string]map[string][]int{}
	for _, a := range r.taken() {
		if statuses[a.route] == nil {
			statuses[a.route] = map[string][]int{}
		}
		statuses[a.route][a.who] = append(statuses[a.route][a.who], a.status)
	}
	below := map[adminv1.Role][]string{adminv1.Reader: {"guest"}, adminv1.Operator: {"reader"}, adminv1.BreakGlass: {"reader", "operator"}}
	for _, route := range server.Routes() {
		if slices.Contains(except, route.Name) {
			continue
		}
		answers := statuses[route.Method+" "+route.Path]
		answered := false
		for _, of := range answers {
			answered = answered || slices.Contains(of, route.Status)
		}
		if !answered {
			t.Errorf("%s: no case has it answered with %d", route.Name, route.Status)
		}
		for _, who := range below[route.Role] {
			of := answers[who]
			if len(of) == 0 || slices.ContainsFunc(of, func(status int) bool { return status != http.StatusForbidden }) {
				t.Errorf("%s needs the role %s, and %s was answered with %v", route.Name, route.Role, who, of)
			}
		}
	}
}

// EveryAnswer validates the bodies against the schemas of the OpenAPI document.
func (r *Record) EveryAnswer(t *testing.T) {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(openapi.Document()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource("https://admin.invalid/document", document); err != nil {
		t.Fatal(err)
	}
	escape := strings.NewReplacer("~", "~0", "/", "~1")
	for _, a := range r.taken() {
		method, path, ok := strings.Cut(a.route, " ")
		if !ok {
			continue
		}
		at := "#/components/responses/Failure/content/application~1json/schema"
		if a.status < http.StatusBadRequest {
			at = "#/paths/" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(escape.Replace(path)) + "/" + strings.ToLower(method) + "/responses/" +
				strconv.Itoa(a.status) + "/content/application~1json/schema"
		}
		if a.contentType != "application/json" {
			at = strings.Replace(at, "application~1json", escape.Replace(a.contentType), 1)
			if _, err := compiler.Compile("https://admin.invalid/document" + at); err != nil {
				t.Errorf("%s %d has the type %s: %v", a.route, a.status, a.contentType, err)
			}
			continue
		}
		schema, err := compiler.Compile("https://admin.invalid/document" + at)
		if err != nil {
			t.Fatalf("%s %d: %v", a.route, a.status, err)
		}
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.body))
		if err != nil {
			t.Fatalf("%s: %v", a.route, err)
		}
		if err := schema.Validate(body); err != nil {
			t.Errorf("%s %d: %v", a.route, a.status, err)
		}
	}
}

// NoAnswerShows checks that no body contains one of the secrets, which are keyed by a description.
func (r *Record) NoAnswerShows(t *testing.T, secrets map[string]string) {
	t.Helper()
	for _, a := range r.taken() {
		for what, text := range secrets {
			if bytes.Contains(a.body, []byte(text)) {
				t.Errorf("%s shows %s", a.route, what)
			}
		}
	}
}

// Line is an audit record in a log.
type Line struct {
	Record, Actor, Reason, Ticket, Action, Target, Outcome string
	ObjectID                                               string `json:"object_id"`
	OperationID                                            string `json:"operation_id"`
	Status                                                 int
}

// Lines returns the audit records of a log. It skips lines that are not JSON.
func Lines(log string) []Line {
	var lines []Line
	for text := range strings.SplitSeq(log, "\n") {
		var l Line
		if json.Unmarshal([]byte(text), &l) == nil && l.Record == "audit" {
			lines = append(lines, l)
		}
	}
	return lines
}

// EveryMutation checks the audit: each change and each rejection has a record with the caller, each accepted change also has the
// reason, all stored audit entries are logged, and the log contains no secrets.
func EveryMutation(t *testing.T, log string, durable []adminv1.AuditEntry, secrets map[string]string, except ...string) {
	t.Helper()
	accepted, logged, refused := map[string]int{}, map[string]bool{}, 0
	for _, l := range Lines(log) {
		switch l.Outcome {
		case "accepted":
			accepted[l.Action]++
			logged[l.OperationID] = true
			if l.Actor == "" || l.ObjectID == "" || l.Reason == "" || l.Ticket == "" || l.Target == "" || l.OperationID == "" {
				t.Errorf("a line does not say all: %+v", l)
			}
		case "refused":
			refused++
			if l.Status != http.StatusUnauthorized && l.Actor == "" {
				t.Errorf("a refusal does not say who: %+v", l)
			}
		}
	}
	for _, route := range server.Routes() {
		if route.Method != http.MethodGet && accepted[route.Name] == 0 && !slices.Contains(except, route.Name) {
			t.Errorf("the log has no line of %s", route.Name)
		}
	}
	if refused < len(server.Routes())-len(except) {
		t.Errorf("the log has %d refusals for %d routes", refused, len(server.Routes()))
	}
	if len(durable) == 0 {
		t.Error("the durable audit is empty")
	}
	for _, entry := range durable {
		if v := entry.Elevation; v != nil && (!logged[v.ID] || v.Name == "" || v.Reason == "" || v.Ticket == "") {
			t.Errorf("the elevation %+v is not in the log, or does not say all", v)
		}
		if o := entry.Operation; o != nil && (!logged[o.ID] || o.Actor.Name == "" || o.Actor.Reason == "" || o.Actor.Ticket == "") {
			t.Errorf("the operation %+v is not in the log, or does not say all", o)
		}
	}
	for what, text := range secrets {
		if strings.Contains(log, text) {
			t.Errorf("the log shows %s", what)
		}
	}
}

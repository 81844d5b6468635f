package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/hcpmesh/hcpmesh/admin/openapi"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/httpcase"
)

// csr stands for a signing request, which no log may show.
const csr = "-----BEGIN CERTIFICATE REQUEST-----"

// TestCases runs every case of testdata/cases, and then looks at what they were together: every route was answered and
// refused to each role that may not, every answer is of the document, and the audit says who did what and why.
func TestCases(t *testing.T) {
	suite := httpcase.Suite{Dir: "../../testdata"}
	cases, err := suite.Load()
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	h.populate(t)
	target := httpcase.Target{
		BaseURL: h.url, Client: h.client, Patience: 10 * time.Second, Settle: h.execute,
		Headers:   [][2]string{{"Content-Type", "application/json"}},
		Variables: map[string]string{"cluster": uid, "cluster-id": clusterID, "subscription": subscription, "csr": csr},
	}
	for _, c := range cases {
		if err := suite.Run(t.Context(), target, c); err != nil {
			t.Errorf("%s: %s: %v", c.Name, c.Reason, err)
		}
	}
	t.Run("every route", func(t *testing.T) { h.everyRoute(t) })
	t.Run("the document", func(t *testing.T) { h.everyAnswer(t) })
	t.Run("the audit", func(t *testing.T) { h.everyMutation(t) })
}

// execute does what the backend would: whatever was accepted succeeds.
func (h *harness) execute(ctx context.Context, _ string) error {
	records, _, err := h.db.AdminRecords(ctx, database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, Underway: true}, "", 100)
	if err != nil {
		return err
	}
	for _, r := range records {
		r.Operation.Value.End(database.AdminSucceeded, nil, time.Now().UTC())
		batch := h.db.NewBatch(database.AdminPartition)
		database.Replace(batch, r.Operation)
		if err := batch.Commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// everyRoute checks that each was answered to somebody who may, and refused to each role below.
func (h *harness) everyRoute(t *testing.T) {
	below := map[adminv1.Role][]string{adminv1.Reader: {"stranger"}, adminv1.Operator: {"reader"}, adminv1.BreakGlass: {"reader", "operator"}}
	for _, route := range server.Routes() {
		answers := h.answered[route.Method+" "+route.Path]
		answered := false
		for _, statuses := range answers {
			answered = answered || slices.Contains(statuses, route.Status)
		}
		if !answered {
			t.Errorf("%s: no case has it answered with %d", route.Name, route.Status)
		}
		for _, who := range below[route.Role] {
			statuses := answers[who]
			if len(statuses) == 0 || slices.ContainsFunc(statuses, func(status int) bool { return status != http.StatusForbidden }) {
				t.Errorf("%s needs the role %s, and %s was answered with %v", route.Name, route.Role, who, statuses)
			}
		}
	}
}

// everyAnswer compares the bodies with the schemas of the document.
func (h *harness) everyAnswer(t *testing.T) {
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
	for _, answer := range h.bodies {
		method, path, ok := strings.Cut(answer.route, " ")
		if !ok {
			continue
		}
		at := "#/components/responses/Failure/content/application~1json/schema"
		if answer.status < http.StatusBadRequest {
			at = "#/paths/" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(escape.Replace(path)) + "/" + strings.ToLower(method) + "/responses/" +
				strconv.Itoa(answer.status) + "/content/application~1json/schema"
		}
		schema, err := compiler.Compile("https://admin.invalid/document" + at)
		if err != nil {
			t.Fatalf("%s %d: %v", answer.route, answer.status, err)
		}
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer.body))
		if err != nil {
			t.Fatalf("%s: %v", answer.route, err)
		}
		if err := schema.Validate(body); err != nil {
			t.Errorf("%s %d: %v", answer.route, answer.status, err)
		}
	}
}

// everyMutation checks the log: each mutation and each refusal has a line that says who, and each that was accepted also
// why; the durable audit has them too; and nothing of what was sent or is secret is in either.
func (h *harness) everyMutation(t *testing.T) {
	log := h.log.String()
	type line struct {
		Record, Actor, Reason, Ticket, Action, Target, Outcome string
		ObjectID                                               string `json:"object_id"`
		OperationID                                            string `json:"operation_id"`
		Status                                                 int
	}
	accepted, logged, refused := map[string]int{}, map[string]bool{}, 0
	for text := range strings.SplitSeq(strings.TrimSpace(log), "\n") {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		switch {
		case l.Record != "audit":
		case l.Outcome == "accepted":
			accepted[l.Action]++
			logged[l.OperationID] = true
			if l.Actor == "" || l.ObjectID == "" || l.Reason == "" || l.Ticket == "" || l.Target == "" || l.OperationID == "" {
				t.Errorf("a line does not say all: %s", text)
			}
		case l.Outcome == "refused":
			refused++
			if l.Status != http.StatusUnauthorized && l.Actor == "" {
				t.Errorf("a refusal does not say who: %s", text)
			}
		}
	}
	for _, route := range server.Routes() {
		if route.Method != http.MethodGet && accepted[route.Name] == 0 {
			t.Errorf("the log has no line of %s", route.Name)
		}
	}
	if refused < len(server.Routes()) {
		t.Errorf("the log has %d refusals for %d routes", refused, len(server.Routes()))
	}
	for continuation := ""; ; {
		records, next, err := h.db.AdminRecords(t.Context(), database.AdminFilter{}, continuation, 50)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			id, actor := "", database.AdminActor{}
			if r.Operation != nil {
				id, actor = r.Operation.Value.OperationID, r.Operation.Value.Actor
			} else {
				id, actor = r.Elevation.Value.ElevationID, r.Elevation.Value.Actor
			}
			if !logged[id] || actor.Name == "" || actor.Reason == "" || actor.Ticket == "" {
				t.Errorf("%s of %+v is not in the log, or does not say all", id, actor)
			}
		}
		if next == "" {
			break
		}
		continuation = next
	}
	for what, text := range map[string]string{"a secret": secret, "a token": "Bearer", "what was sent": csr} {
		if strings.Contains(log, text) {
			t.Errorf("the log shows %s", what)
		}
	}
	for _, answer := range h.bodies {
		if bytes.Contains(answer.body, []byte(secret)) {
			t.Errorf("%s shows a secret", answer.route)
		}
	}
}

package server_test

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/openapi"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// exampleSubscription is the subscription in all examples of the contract.
const exampleSubscription = "6a4b9c1e-2f0d-4a57-9d3a-0c5e8b7f1d42"

// TestExamples replays every example of the contract at every api-version, each in a new subscription with the
// resources that the example requires. The response must be one of the example's, and the resource must have the
// requested values afterwards. The harness checks that responses comply with the contract.
func TestExamples(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, version := range openapi.Versions() {
		t.Run(version, func(t *testing.T) {
			found := must.Get(examples.Of(version))(t)
			r := &replay{harness: h, examples: map[string]*examples.Example{}}
			for i := range found {
				r.examples[found[i].Name] = &found[i]
			}
			for name := range r.examples {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r.run(h.newSubscription(t), name)
				})
			}
		})
	}
}

// replay replays the examples of one api-version.
type replay struct {
	*harness
	examples map[string]*examples.Example
}

// requiredExamples returns the names of the examples that must run before another one.
func requiredExamples(e *examples.Example) []string {
	const small, full = "HcpOpenShiftClusters_CreateOrUpdate", "HcpOpenShiftClusters_CreateOrUpdate_Full"
	switch {
	case e.Name == "HcpOpenShiftClusters_Update_Version":
		return []string{small}
	case e.OperationID == "HcpOpenShiftClusters_CreateOrUpdate" || !strings.Contains(e.Path, "/hcpOpenShiftClusters"):
		return nil
	case e.OperationID == "NodePools_CreateOrUpdate" || e.OperationID == "ExternalAuths_CreateOrUpdate":
		return []string{full}
	case strings.HasPrefix(e.OperationID, "NodePools_"):
		return []string{full, "NodePools_CreateOrUpdate", "NodePools_CreateOrUpdate_AutoScaling"}
	case strings.HasPrefix(e.OperationID, "ExternalAuths_"):
		return []string{full, "ExternalAuths_CreateOrUpdate_Full"}
	}
	return []string{full}
}

// run runs the required examples and then the example itself, and checks the result.
func (r *replay) run(y *testSubscription, name string) {
	for _, before := range requiredExamples(r.examples[name]) {
		r.send(y, before)
		must.Do(y.t, y.finishOperationsOf(context.Background(), y.subscription))
	}
	target, sent := r.send(y, name)
	if sent == "" || r.examples[name].Method == http.MethodPost {
		return
	}
	must.Do(y.t, y.finishOperationsOf(context.Background(), y.subscription))
	status, _, shown := y.do(http.MethodGet, target, "")
	if status != http.StatusOK {
		y.t.Fatalf("GET %s status %d: %s", target, status, shown)
	}
	if at := missing("", decode[any](y.t, sent), decode[any](y.t, shown)); at != "" {
		y.t.Errorf("the response does not contain %s: %s", at, shown)
	}
}

// send sends an example's request. It returns the target and body that were sent.
func (r *replay) send(y *testSubscription, name string) (target, body string) {
	y.t.Helper()
	e := r.examples[name]
	target = must.Get(e.Target())(y.t)
	target = strings.ReplaceAll(target, exampleSubscription, y.subscription)
	body = strings.ReplaceAll(string(e.Body()), exampleSubscription, y.subscription)
	status, header, answer := y.do(e.Method, target, body)
	example, ok := e.Responses[status]
	if !ok {
		y.t.Fatalf("%s %s answered %d, which example %s does not have: %s", e.Method, target, status, name, answer)
	}
	for name := range example.Headers {
		if header.Get(name) == "" {
			y.t.Errorf("%s %s status %d without %s", e.Method, target, status, name)
		}
	}
	return target, body
}

// missing returns the first path at which shown lacks a value of sent, or the empty string.
func missing(at string, sent, shown any) string {
	switch sent := sent.(type) {
	case map[string]any:
		object, ok := shown.(map[string]any)
		if !ok {
			return at
		}
		for name, value := range sent {
			if found := missing(at+"."+name, value, object[name]); found != "" {
				return found
			}
		}
		return ""
	case []any:
		array, ok := shown.([]any)
		if !ok || len(array) != len(sent) {
			return at
		}
		for i, value := range sent {
			if found := missing(at+"[]", value, array[i]); found != "" {
				return found
			}
		}
		return ""
	}
	if !reflect.DeepEqual(sent, shown) {
		encoded, _ := json.Marshal(shown)
		return at + " (" + string(encoded) + ")"
	}
	return ""
}

package httpcase

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/internal/backoff"

	"github.com/hcpmesh/hcpmesh/api/armheader"
)

// Target is the implementation that cases run against.
type Target struct {
	// BaseURL is the URL of the API without a trailing slash.
	BaseURL string
	Client  *http.Client
	// Location is the region that the implementation serves.
	Location string
	// APIVersion is the value of the variable api-version.
	APIVersion string
	// ProcessOperations takes the place of the backend for an implementation without one: it brings the operations of a
	// subscription to their terminal states. It is called before each repetition of an `eventually` step. It may be nil.
	ProcessOperations func(ctx context.Context, subscription string) error
	// Timeout bounds the repetition of an `eventually` step; 0 means 10 minutes.
	Timeout time.Duration
	// RetryInterval is the pause between two repetitions of such a step; 0 means 20 ms.
	RetryInterval time.Duration
	// CleanUp waits after each case until every resource of its subscription is terminal, because accepted operations must
	// end. It then sets the subscription to Deleted, so that the implementation deletes the resources of the case.
	CleanUp bool
	// Variables, if not nil, are the only variables of a case, for an API other than ARM's: no subscription is registered or
	// cleaned up. Headers then replace ARM's headers in every request.
	Variables map[string]string
	Headers   [][2]string
}

const (
	defaultTimeout       = 10 * time.Minute
	defaultRetryInterval = 20 * time.Millisecond
)

// Run runs one case in a new subscription, which it registers first. The error names the step that failed and the
// difference to the expected response.
func (s Suite) Run(ctx context.Context, target Target, c Case) error {
	if target.Variables != nil {
		return s.runSteps(ctx, target, c.Steps, maps.Clone(target.Variables))
	}
	target.Headers = defaults
	subscription := uuid.NewString()
	variables := map[string]string{
		"subscription":       subscription,
		"other-subscription": uuid.NewString(),
		"location":           target.Location,
		"LOCATION":           strings.ToUpper(target.Location),
		"api-version":        target.APIVersion,
		"provider":           "/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift",
		"clusters":           "/subscriptions/" + subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters",
		"cluster":            "/subscriptions/" + subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster",
		"pool":               "/subscriptions/" + subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/cluster/nodePools/pool",
		"group":              "/subscriptions/" + subscription + "/resourceGroups/group",
		"network":            "/subscriptions/" + subscription + "/resourceGroups/network/providers/Microsoft.Network",
		"identity":           "/subscriptions/" + subscription + "/resourceGroups/identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities",
		"tenant":             uuid.NewString(),
		"client":             uuid.NewString(),
	}
	register := Step{
		Name: "register the subscription", Method: http.MethodPut, Target: "/subscriptions/{{subscription}}?api-version=2.0",
		Body:   `{"state":"Registered","registrationDate":"Mon, 02 Mar 2026 10:00:00 GMT","properties":{"tenantId":"{{tenant}}"}}`,
		Status: "200",
	}
	if err := s.runSteps(ctx, target, append([]Step{register}, c.Steps...), variables); err != nil || !target.CleanUp {
		return err
	}
	register.Name, register.Body = "delete the subscription", strings.ReplaceAll(register.Body, "Registered", "Deleted")
	return errors.Join(target.waitTerminal(ctx, variables), s.runSteps(ctx, target, []Step{register}, variables))
}

func (s Suite) runSteps(ctx context.Context, target Target, steps []Step, variables map[string]string) error {
	for _, step := range steps {
		if err := s.runStep(ctx, target, step, variables); err != nil {
			return fmt.Errorf("%s: %w", step.Name, err)
		}
	}
	return nil
}

func (s Suite) runStep(ctx context.Context, target Target, step Step, variables map[string]string) error {
	body, err := s.body(step, variables)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(target.timeout())
	for {
		if step.Eventually && target.ProcessOperations != nil {
			if err := target.ProcessOperations(ctx, variables["subscription"]); err != nil {
				return fmt.Errorf("processing operations: %w", err)
			}
		}
		difference, err := try(ctx, target, step, body, variables)
		if err != nil {
			return err
		}
		if difference == "" {
			return nil
		}
		if !step.Eventually || time.Now().After(deadline) {
			return fmt.Errorf("%s %s: %s", step.Method, expand(step.Target, variables), difference)
		}
		if err := backoff.Sleep(ctx, target.retryInterval()); err != nil {
			return err
		}
	}
}

// defaults are the headers that ARM sends with every request.
var defaults = [][2]string{
	{"Content-Type", "application/json"},
	{armheader.HomeTenantID, "{{tenant}}"},
	{armheader.ClientObjectID, "{{client}}"},
	{armheader.IdentityURL, "https://identity.example/{{subscription}}"},
	{armheader.SystemData, `{"createdBy":"alice@example.com","createdByType":"User","createdAt":"2026-03-02T10:00:00Z",` +
		`"lastModifiedBy":"alice@example.com","lastModifiedByType":"User","lastModifiedAt":"2026-03-02T10:00:00Z"}`},
	{"Referer", "https://management.example{{target}}"},
}

func try(ctx context.Context, target Target, step Step, body []byte, variables map[string]string) (difference string, err error) {
	at := expand(step.Target, variables)
	// Captured URLs are absolute; their path is the same at the target.
	if rest, ok := strings.CutPrefix(at, "https://management.example"); ok {
		at = rest
	}
	request, err := http.NewRequestWithContext(ctx, step.Method, target.BaseURL+at, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for _, header := range target.Headers {
		request.Header.Set(header[0], expand(strings.ReplaceAll(header[1], "{{target}}", at), variables))
	}
	for _, header := range step.Headers {
		if name, remove := strings.CutPrefix(header[0], "-"); remove {
			request.Header.Del(name)
			continue
		}
		request.Header.Set(header[0], expand(header[1], variables))
	}
	response, err := target.Client.Do(request)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return "", err
	}
	return compare(step, response, content, variables), nil
}

func compare(step Step, response *http.Response, content []byte, variables map[string]string) string {
	m := matcher{variables: variables, captured: map[string]string{}}
	if !m.text(step.Status, fmt.Sprint(response.StatusCode)) {
		return fmt.Sprintf("status %d, want %s: %s", response.StatusCode, step.Status, content)
	}
	for _, header := range step.ExpectedHeaders {
		got := response.Header.Get(header[0])
		if header[1] == "{{absent}}" && got == "" {
			continue
		}
		if got == "" || !m.text(header[1], got) {
			return fmt.Sprintf("header %s is %q, want %q", header[0], got, expand(header[1], variables))
		}
	}
	switch expected := expand(step.ExpectedBody, variables); expected {
	case "":
	case "empty":
		if len(content) > 0 {
			return fmt.Sprintf("the body is not empty: %s", content)
		}
	default:
		var want, got any
		if err := json.Unmarshal([]byte(expected), &want); err != nil {
			return fmt.Sprintf("the expected body is not JSON: %v", err)
		}
		if err := json.Unmarshal(content, &got); err != nil {
			return fmt.Sprintf("the body is not JSON: %s", content)
		}
		if difference := m.value("", want, got); difference != "" {
			return difference + " in " + string(content)
		}
	}
	for name, value := range m.captured {
		variables[name] = value
	}
	return ""
}

// matcher compares values with expected ones and collects the captured texts.
type matcher struct {
	variables map[string]string
	captured  map[string]string
}

// value returns the first difference between two JSON values, or the empty string.
func (m matcher) value(path string, want, got any) string {
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("%s is %v, want an object", path, got)
		}
		for name, value := range want {
			got, present := object[name]
			if value == "{{absent}}" {
				if present {
					return fmt.Sprintf("%s.%s is present, want it absent", path, name)
				}
				continue
			}
			if !present {
				return fmt.Sprintf("%s.%s is absent", path, name)
			}
			if difference := m.value(path+"."+name, value, got); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		array, ok := got.([]any)
		if !ok || len(array) != len(want) {
			return fmt.Sprintf("%s is %v, want %d items", path, got, len(want))
		}
		for i, value := range want {
			if difference := m.value(fmt.Sprintf("%s[%d]", path, i), value, array[i]); difference != "" {
				return difference
			}
		}
		return ""
	case string:
		text, ok := got.(string)
		if !ok && want == "{{any}}" {
			return ""
		}
		if !ok || !m.text(want, text) {
			return fmt.Sprintf("%s is %#v, want %q", path, got, want)
		}
		return ""
	}
	if want != got {
		return fmt.Sprintf("%s is %#v, want %#v", path, got, want)
	}
	return ""
}

var wildcard = regexp.MustCompile(`\{\{(any|capture:[a-z0-9-]+)\}\}`)

// text reports whether got matches want, which may contain wildcards.
func (m matcher) text(want, got string) bool {
	want = expand(want, m.variables)
	marks := wildcard.FindAllStringSubmatch(want, -1)
	if marks == nil {
		return want == got
	}
	pattern := "^"
	for i, literal := range wildcard.Split(want, -1) {
		pattern += regexp.QuoteMeta(literal)
		if i < len(marks) {
			pattern += "(.*)"
		}
	}
	found := regexp.MustCompile("(?s)" + pattern + "$").FindStringSubmatch(got)
	if found == nil {
		return false
	}
	for i, mark := range marks {
		if name, ok := strings.CutPrefix(mark[1], "capture:"); ok {
			m.captured[name] = found[i+1]
		}
	}
	return true
}

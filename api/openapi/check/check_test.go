package check_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/examples"
	"github.com/hcpmesh/hcpmesh/api/openapi/check"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

const version = "2026-09-01-preview"

// example returns an example: a valid request with its responses.
func example(t *testing.T, name string) examples.Example {
	t.Helper()
	all, err := examples.Of(version)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no example %s", name)
	return examples.Example{}
}

func contract(t *testing.T) *check.Contract {
	t.Helper()
	made, err := check.New(version)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// patched returns body with an RFC 7396 merge patch applied.
func patched(t *testing.T, body json.RawMessage, patch string) []byte {
	t.Helper()
	fields, err := wire.ParseObject(body)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := wire.ParseObject([]byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	made, err := json.Marshal(wire.MergePatch(fields, changes))
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestRequestViolations(t *testing.T) {
	made := contract(t)
	for name, test := range map[string]struct {
		reason  string
		example string
		patch   string
		// want is part of the error message. It is empty if the request is valid.
		want string
	}{
		"nothing changed":      {reason: "the example itself", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{}`},
		"unknown field":        {reason: "a misspelt field is lost silently", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"netwerk":{}}}`, want: "netwerk"},
		"unknown at the top":   {reason: "the resource's own fields come from several schemas", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"etag":"x"}`, want: "etag"},
		"missing field":        {reason: "platform.subnetId is required", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"platform":{"subnetId":null}}}`, want: "subnetId"},
		"missing from a base":  {reason: "location is required by the common type", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"location":null}`, want: "location"},
		"read-only field":      {reason: "only the service sets the provisioning state", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"provisioningState":"Succeeded"}}`, want: "provisioningState"},
		"read-only in a base":  {reason: "only the service sets the ID", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"id":"/subscriptions/x"}`, want: "/id"},
		"wrong type":           {reason: "a number is not a string", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"network":{"hostPrefix":"23"}}}`, want: "hostPrefix"},
		"over 32 bits":         {reason: "the format bounds it", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"network":{"hostPrefix":4294967296}}}`, want: "32-bit"},
		"not in the enum":      {reason: "each version has its own values", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"api":{"visibility":"Secret"}}}`, want: "visibility"},
		"id of another type":   {reason: "a subnet is not a virtual network", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"platform":{"subnetId":"/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"}}}`, want: "subnetId"},
		"bound":                {reason: "draining takes a week at most", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"properties":{"nodeDrainTimeoutMinutes":10081}}`, want: "nodeDrainTimeoutMinutes"},
		"empty identity":       {reason: "ARM fills in what an identity is", example: "HcpOpenShiftClusters_CreateOrUpdate_Full", patch: `{"identity":{"userAssignedIdentities":{"/subscriptions/s":{}}}}`},
		"create-only in patch": {reason: "it is not in the version's update", example: "HcpOpenShiftClusters_Update", patch: `{"properties":{"dns":{"baseDomainPrefix":"x"}}}`, want: "dns"},
		"required in patch":    {reason: "a patch need not repeat what is required", example: "NodePools_Update", patch: `{"properties":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			one := example(t, test.example)
			requireViolation(t, made.Request(one.OperationID, patched(t, one.Body(), test.patch)), test.want, test.reason)
		})
	}
	requireViolation(t, made.Request("NodePools_Get", nil), "", "a GET has no body")
	requireViolation(t, made.Request("NodePools_Get", []byte(`{}`)), "takes no body", "a GET has no body")
	requireViolation(t, made.Request("NodePools_CreateOrUpdate", []byte(`{`)), "not JSON", "the body is truncated")
	requireViolation(t, made.Request("NodePools_Put", nil), "no operation", "the id is wrong")
}

func TestResponseViolations(t *testing.T) {
	made := contract(t)
	one := example(t, "NodePools_CreateOrUpdate")
	good := one.Responses[http.StatusCreated].Body
	for name, test := range map[string]struct {
		reason string
		status int
		header http.Header
		body   []byte
		want   string
	}{
		"as in the example":   {reason: "the example itself", status: 201, body: good},
		"unlisted status":     {reason: "a poller expects only listed statuses", status: 204, want: "never responds with 204"},
		"error":               {reason: "every error has the same body", status: 409, body: []byte(`{"error":{"code":"Conflict","message":"busy","details":[{"code":"Conflict","message":"busy","target":"name"}]}}`)},
		"other body of error": {reason: "clients read error.code", status: 409, body: []byte(`{"code":"Conflict"}`), want: "code"},
		"unknown field":       {reason: "clients of this version do not know it", status: 200, body: patched(t, good, `{"properties":{"uid":"x"}}`), want: "uid"},
		"no date":             {reason: "clients parse it", status: 200, body: patched(t, good, `{"systemData":{"createdAt":"yesterday"}}`), want: "createdAt"},
		"no number":           {reason: "pollers parse it", status: 201, header: http.Header{"Retry-After": {"soon"}}, body: good, want: "Retry-After"},
	} {
		t.Run(name, func(t *testing.T) {
			requireViolation(t, made.Response(one.OperationID, test.status, test.header, test.body), test.want, test.reason)
		})
	}
}

func TestWatchValidatesResponsesOfTheContract(t *testing.T) {
	const pool = "/subscriptions/6a4b9c1e-2f0d-4a57-9d3a-0c5e8b7f1d42/resourceGroups/g/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/c/nodePools/p"
	for name, test := range map[string]struct {
		reason string
		method string
		target string
		status int
		want   string
	}{
		"violation":        {reason: "GET responds with a resource", method: http.MethodGet, target: pool + "?api-version=" + version, status: 200, want: "NodePools_Get"},
		"other case":       {reason: "ARM paths are case-insensitive", method: http.MethodGet, target: strings.ToLower(pool) + "?api-version=" + version, status: 200, want: "NodePools_Get"},
		"other method":     {reason: "PUT has its own responses", method: http.MethodPut, target: pool + "?api-version=" + version, status: 204, want: "NodePools_CreateOrUpdate"},
		"error":            {reason: "errors have their own body", method: http.MethodGet, target: pool + "?api-version=" + version, status: 404, want: "NodePools_Get"},
		"empty answer":     {reason: "a DELETE of nothing has no body", method: http.MethodDelete, target: pool + "?api-version=" + version, status: 204},
		"no such version":  {reason: "it is not in the contract", method: http.MethodGet, target: pool + "?api-version=2020-01-01", status: 200},
		"path of our own":  {reason: "it is not in the contract", method: http.MethodGet, target: "/healthz?api-version=" + version, status: 200},
		"path that begins": {reason: "a longer path is another path", method: http.MethodGet, target: pool + "/upgrade?api-version=" + version, status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			var violations []error
			handler := check.NewContracts().Watch(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = w.Write([]byte(`{"surprise":true}`))
			}), func(err error) { violations = append(violations, err) })
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(test.method, test.target, nil))
			requireViolation(t, errors.Join(violations...), test.want, test.reason)
		})
	}
}

func requireViolation(t *testing.T, err error, want, reason string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", reason, err)
	case want != "" && err == nil:
		t.Errorf("found no violation: %s", reason)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("the violation does not contain %q: %v", want, err)
	}
}

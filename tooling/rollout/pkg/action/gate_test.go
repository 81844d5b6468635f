package action

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func gates() Gates { return Gates{HTTP: HTTP{http.DefaultClient}, Hcpctl: "hcpctl"} }

// TestHTTPGateWaits returns 503 before 200.
func TestHTTPGateWaits(t *testing.T) {
	var requests atomic.Int64
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	gate := definition.Gate{Name: "ready", Timeout: definition.Duration(time.Minute), HTTP: &definition.HTTPGate{URL: url, Status: 200}}
	if err := gates().Check(t.Context(), gate, Request{Log: io.Discard}); err != nil || requests.Load() != 3 {
		t.Errorf("%v after %d requests", err, requests.Load())
	}
}

// TestFailedGateNamesTheCause expects the last status in the error, and a class that does not repeat the action.
func TestFailedGateNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const url = "http://service.example"
		client := &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Status: "503 Service Unavailable", Body: http.NoBody}, nil
		})}
		gate := definition.Gate{Name: "ready", Timeout: definition.Duration(time.Minute), HTTP: &definition.HTTPGate{URL: url, Status: 200}}
		err := Gates{HTTP: HTTP{client}}.Check(t.Context(), gate, Request{Log: io.Discard})
		if err == nil || !strings.Contains(err.Error(), "gate ready: GET "+url+" returned 503 Service Unavailable; expected 200") || ClassOf(err) != ClassFailed {
			t.Errorf("%v, class %s", err, ClassOf(err))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestMetricGate(t *testing.T) {
	low, high := 0.0, 0.01
	for reason, c := range map[string]struct{ body, want string }{
		"within the limits": {`{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "0.005"]}, {"value": [1, "0"]}]}}`, ""},
		"a scalar":          {`{"status": "success", "data": {"resultType": "scalar", "result": [1, "0.01"]}}`, ""},
		"above":             {`{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1, "0"]}, {"value": [1, "0.5"]}]}}`, "errors is 0.5; it must be at least 0 and at most 0.01"},
		"below":             {`{"status": "success", "data": {"resultType": "scalar", "result": [1, "-1"]}}`, "errors is -1"},
		"not a number":      {`{"status": "success", "data": {"resultType": "scalar", "result": [1, "NaN"]}}`, "errors is NaN"},
		"no sample":         {`{"status": "success", "data": {"resultType": "vector", "result": []}}`, "errors returned no sample"},
		"a matrix":          {`{"status": "success", "data": {"resultType": "matrix", "result": []}}`, "a gate needs a vector or a scalar"},
		"an error":          {`{"status": "error", "error": "parse error"}`, "querying errors: 200 OK parse error"},
		"no JSON":           {`<html>`, "querying errors: 200 OK"},
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/query" || r.URL.Query().Get("query") != "errors" {
				t.Errorf("the request is %s", r.URL)
			}
			fmt.Fprint(w, c.body)
		})
		err := gates().metric(t.Context(), definition.MetricGate{URL: url + "/", Query: "errors", AtLeast: &low, AtMost: &high})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", reason, err, c.want)
		}
	}
}

// TestExplainGate runs a program in place of hcpctl that prints explanations of admin.
func TestExplainGate(t *testing.T) {
	for reason, c := range map[string]struct{ explanation, want string }{
		"ready":         {`{"components": [{"name": "backend", "state": "Ready"}]}`, ""},
		"away":          {`{"components": [{"name": "backend", "state": "Unreachable"}, {"name": "admin", "state": "Ready"}]}`, "components of the region are away: backend"},
		"partial":       {`{"components": [{"name": "backend", "state": "Ready"}], "partial": true}`, "could not read all layers"},
		"no facts":      {`{}`, "could not read all layers"},
		"not an answer": {`hello`, "reading the explanation"},
	} {
		program := filepath.Join(t.TempDir(), "hcpctl")
		text := "#!/bin/sh\n[ \"$*\" = 'explain -o json --admin-endpoint https://admin --admin-audience api://admin' ] || exit 9\necho '" + c.explanation + "'\n"
		must.Do(t, os.WriteFile(program, []byte(text), 0o755))
		err := Gates{Hcpctl: program}.explain(t.Context(), definition.ExplainGate{Endpoint: "https://admin", Audience: "api://admin"}, Request{Log: io.Discard})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", reason, err, c.want)
		}
	}
}

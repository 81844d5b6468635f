package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// journal records log lines for tests.
type journal struct{ logtest.Log }

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the decoded records with a message.
func (j *journal) lines(t testing.TB, message string) []map[string]any {
	t.Helper()
	var found []map[string]any
	for line := range strings.Lines(j.String()) {
		var decoded map[string]any
		if err := json.Unmarshal([]byte(line), &decoded); err != nil {
			t.Fatalf("a line of the log is not JSON: %s", line)
		}
		if decoded["msg"] == message {
			found = append(found, decoded)
		}
	}
	return found
}

// wordAuthenticator is an Authenticator that accepts requests with a word in their Authorization header.
type wordAuthenticator struct{ word string }

func (g wordAuthenticator) Ready(context.Context) error { return nil }

func (g wordAuthenticator) Authenticate(_ context.Context, r *http.Request) (authn.Caller, error) {
	switch r.Header.Get("Authorization") {
	case g.word:
		return authn.Caller{TenantID: "arm-tenant", AppID: "arm-app", ObjectID: "arm-object"}, nil
	case "":
		return authn.Caller{}, &authn.ChallengeError{Response: apierror.New(apierror.Unauthenticated, "The request carries no token."), Challenge: "Bearer"}
	case "broken":
		return authn.Caller{}, apierror.New(apierror.Unavailable, "The request cannot be authenticated now.").WithCause(errors.New("no answer"))
	}
	return authn.Caller{}, apierror.New(apierror.PermissionDenied, "The caller may not use this service.")
}

// TestAuthentication: an unauthenticated request is rejected before anything else, except for health endpoints.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	const word = "Bearer word"
	h := newHarness(t, func(c *server.Config) {
		c.Authenticator = wordAuthenticator{word}
		c.Health = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	})
	y := &testSubscription{h, t, "11111111-1111-1111-1111-111111111111"}
	subscription := "/subscriptions/" + y.subscription + "?api-version=2.0"
	const document = `{"state":"Registered","registrationDate":"now"}`
	y.mustDo(http.StatusOK, http.MethodPut, subscription, document, "Authorization", word)
	cases := map[string]struct {
		reason, method, target, authorization string
		status                                int
		code, challenge, retryAfter           string
	}{
		"nothing":     {reason: "a token is required", method: http.MethodPut, target: subscription, status: 401, code: "Unauthorized", challenge: "Bearer"},
		"wrong":       {reason: "a token of another caller is rejected", method: http.MethodGet, target: subscription, authorization: "x", status: 403, code: "Forbidden"},
		"undecided":   {reason: "a failed authentication is not a permission", method: http.MethodGet, target: subscription, authorization: "broken", status: 503, code: "ServiceUnavailable", retryAfter: "1"},
		"no path":     {reason: "unauthenticated callers cannot discover paths", method: http.MethodGet, target: "/x?api-version=1", status: 401, code: "Unauthorized", challenge: "Bearer"},
		"no method":   {reason: "unauthenticated callers cannot discover methods", method: http.MethodDelete, target: subscription, status: 401, code: "Unauthorized", challenge: "Bearer"},
		"no version":  {reason: "unauthenticated requests are not validated", method: http.MethodGet, target: y.cluster("c") + "?api-version=1", status: 401, code: "Unauthorized", challenge: "Bearer"},
		"health":      {reason: "health needs no authentication", method: http.MethodGet, target: "/healthz", status: 200},
		"readiness":   {reason: "readiness needs no authentication", method: http.MethodGet, target: "/readyz", status: 200},
		"known":       {reason: "ARM is accepted", method: http.MethodGet, target: subscription, authorization: word, status: 200},
		"known, path": {reason: "an authenticated request with an unknown path returns 404", method: http.MethodGet, target: "/x?api-version=1", authorization: word, status: 404, code: "NotFound"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status, header, body := y.in(t).do(tc.method, tc.target, document, "Authorization", tc.authorization)
			if status != tc.status || header.Get("X-Ms-Error-Code") != tc.code || header.Get("WWW-Authenticate") != tc.challenge || header.Get("Retry-After") != tc.retryAfter {
				t.Errorf("%s: %d %v %s", tc.reason, status, header, body)
			}
			if header.Get("X-Ms-Request-Id") == "" || header.Get("X-Ms-Correlation-Request-Id") == "" {
				t.Errorf("the response has no IDs: %v", header)
			}
		})
	}
}

// TestAudit: each request for a change has one record with the caller, the action and the result.
func TestAudit(t *testing.T) {
	t.Parallel()
	var log, audit journal
	h := newHarness(t, func(c *server.Config) {
		c.Log, c.Audit = log.logger(), audit.logger()
		c.Authenticator = wordAuthenticator{"word"}
	})
	y := &testSubscription{h, t, "11111111-1111-1111-1111-111111111111"}
	do := func(method, target, body string, headers ...string) {
		t.Helper()
		y.do(method, target, body, append([]string{"Authorization", "word", "X-Ms-Home-Tenant-Id", "tenant", "X-Ms-Client-Object-Id", "alice", "X-Ms-Client-Tenant-Id", "partner",
			"X-Ms-Client-App-Id", "cli", "X-Ms-Client-Principal-Name", "alice@example.com", "X-Ms-Correlation-Request-Id", "correlation"}, headers...)...)
	}
	do(http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"Registered","registrationDate":"now"}`)
	do(http.MethodPut, y.cluster("cluster"), y.body("cluster.json", "{}"))
	do(http.MethodGet, y.cluster("cluster"), "")
	do(http.MethodPatch, y.cluster("cluster"), `{"tags":{"a":1}}`)
	do(http.MethodPost, "/subscriptions/"+y.subscription+"/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01", "{}")
	do(http.MethodDelete, y.cluster("cluster"), "", "Authorization", "other-caller")
	do(http.MethodDelete, y.cluster("absent"), "")
	do(http.MethodPut, "/nowhere", "{}")

	records := audit.lines(t, "audit")
	var got [][]any
	for _, r := range records {
		got = append(got, []any{r["action"], r["target"], r["result"], r["status"], r["error_code"]})
	}
	const clusters = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	want := [][]any{
		{"Microsoft.Resources/subscriptions/write", "/subscriptions/" + y.subscription, "Success", 200.0, ""},
		{clusters + "/write", y.cluster("cluster"), "Success", 201.0, ""},
		{clusters + "/write", y.cluster("cluster"), "Failure", 409.0, "Conflict"},
		{clusters + "/delete", y.cluster("cluster"), "Denied", 403.0, "Forbidden"},
		{clusters + "/delete", y.cluster("absent"), "Success", 204.0, ""},
		{"write", "/nowhere", "Failure", 404.0, "NotFound"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	created := records[1]
	if diff := cmp.Diff(map[string]any{"tenant_id": "tenant", "client_tenant_id": "partner", "object_id": "alice", "app_id": "cli", "name": "alice@example.com"}, created["caller"]); diff != "" {
		t.Errorf("caller (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"tenant_id": "arm-tenant", "app_id": "arm-app", "object_id": "arm-object"}, created["sender"]); diff != "" {
		t.Errorf("sender (-want +got):\n%s", diff)
	}
	if created["operation_id"] == "" || created["correlation_id"] != "correlation" || created["request_id"] == "" {
		t.Errorf("the record has no IDs: %v", created)
	}
	if strings.Contains(log.String(), `"msg":"audit"`) || strings.Contains(audit.String(), "Standard_") {
		t.Error("unexpected records, or records with parts of a request")
	}
}

// TestNothingSecretIsLogged sends secrets in every part of a request that a caller controls, with the log at its lowest
// level.
func TestNothingSecretIsLogged(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	var log journal
	h := newHarness(t, func(c *server.Config) {
		c.Log = log.logger()
		c.Authenticator = wordAuthenticator{"Bearer " + secret}
	})
	y := &testSubscription{h, t, "11111111-1111-1111-1111-111111111111"}
	do := func(method, target, body string, headers ...string) (int, http.Header, string) {
		return y.do(method, target, body, append([]string{"Authorization", "Bearer " + secret, "Cookie", secret}, headers...)...)
	}
	do(http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"Registered","registrationDate":"`+secret+`","properties":{"accountOwner":{"email":"`+secret+`"}}}`)
	do(http.MethodPut, "/subscriptions/"+y.subscription+"?api-version=2.0", `{"state":"`+secret+`"}`)
	bodies := []string{
		y.body("cluster.json", `{"tags":{"`+secret+`":"`+secret+`"}}`),
		y.body("cluster.json", `{"tags":{"aro-hcp.experimental.`+secret+`":"x"}}`),
		y.body("cluster.json", `{"properties":{"version":{"id":"`+secret+`"},"network":{"podCidr":"`+secret+`"}}}`),
		y.body("cluster.json", `{"properties":{"etcd":"`+secret+`"}}`),
		y.body("cluster.json", `{"identity":{"userAssignedIdentities":{"`+secret+`":{}}}}`),
		secret, `{"a":` + secret + `}`, `"` + secret + `"`, `{"name":"` + secret + `"}`,
	}
	for _, body := range bodies {
		do(http.MethodPut, y.cluster("cluster"), body)
		do(http.MethodPatch, y.cluster("cluster"), body)
		do(http.MethodPut, y.cluster("cluster")+"/nodePools/pool", body)
		do(http.MethodPut, y.cluster("cluster")+"/externalAuths/auth", body)
		do(http.MethodPost, y.cluster("cluster")+"/requestAdminCredential", body)
		do(http.MethodPost, "/subscriptions/"+y.subscription+"/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01", `{"resources":[`+body+`]}`)
		must.Do(t, y.finishOperations(context.Background()))
	}
	for _, header := range []string{"X-Ms-Arm-Resource-System-Data", "Content-Type", "If-Match", "X-Ms-Identity-Url", "Referer", "User-Agent", "Traceparent",
		"Azure-AsyncNotificationUri", "X-Forwarded-Host"} {
		do(http.MethodPut, y.cluster("other"), y.body("cluster.json", "{}"), header, "https://"+secret+".example/"+secret)
	}
	list := strings.TrimSuffix(y.cluster(""), "/")
	for _, query := range []string{"$skipToken=" + secret, "$top=" + secret, "api-version=" + secret, "code=" + secret} {
		do(http.MethodGet, list+"?"+query, "")
		do(http.MethodGet, list+"?api-version="+newestVersion+"&"+query, "")
	}
	y.do(http.MethodGet, list, "", "Authorization", "Bearer not-"+secret)

	if len(log.lines(t, "request")) < 50 {
		t.Fatalf("too few log lines: %d", len(log.lines(t, "request")))
	}
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("a secret is logged: %s", line)
		}
	}
}

// TestPanic: a panic results in a response, one count in each metric, a log record and an audit record of a failure.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log journal
	h := newHarness(t, func(c *server.Config) {
		c.Log = log.logger()
		c.Health = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("what now") })
	})
	y := &testSubscription{h, t, ""}
	status, header, body := y.do(http.MethodGet, "/healthz", "")
	if status != http.StatusInternalServerError || header.Get("X-Ms-Error-Code") != "InternalServerError" || header.Get("X-Ms-Request-Id") == "" || strings.Contains(body, "what now") {
		t.Errorf("status %d %v %s", status, header, body)
	}
	counted := `
# HELP frontend_http_request_panics_total Number of requests whose handling panicked.
# TYPE frontend_http_request_panics_total counter
frontend_http_request_panics_total 1
# HELP frontend_http_requests_total Number of completed requests.
# TYPE frontend_http_requests_total counter
frontend_http_requests_total{api_version="",code="500",method="GET",route="/healthz",state="",user_agent="other"} 1
`
	if err := testutil.GatherAndCompare(h.metrics, strings.NewReader(counted), "frontend_http_request_panics_total", "frontend_http_requests_total"); err != nil {
		t.Error(err)
	}
	if lines := log.lines(t, "request handling panicked"); len(lines) != 1 || lines[0]["request_id"] != header.Get("X-Ms-Request-Id") {
		t.Errorf("logged %v", lines)
	}
}

// TestTrace: a request has a span in its caller's trace, and the operation that it starts refers to the trace.
func TestTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	h := newHarness(t, func(c *server.Config) { c.Tracing = tracing.With(provider, provider.Shutdown) })
	y := h.newSubscription(t)
	spans.Reset()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	header := y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", "{}"), "Traceparent", "00-"+trace+"-"+parent+"-01")
	y.mustDo(http.StatusNotFound, http.MethodGet, "/nowhere", "", "Traceparent", "not a trace")
	ended := spans.GetSpans()
	if len(ended) != 2 {
		t.Fatalf("%d spans", len(ended))
	}
	span := ended[0]
	const route = "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroup}/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/{cluster}"
	if span.Name != "PUT "+route || span.SpanContext.TraceID().String() != trace || span.Parent.SpanID().String() != parent {
		t.Errorf("the span is %s in the trace %s below %s", span.Name, span.SpanContext.TraceID(), span.Parent.SpanID())
	}
	if ended[1].SpanContext.TraceID().String() == trace {
		t.Error("a request without a trace got an existing trace")
	}
	of := header.Get("Azure-AsyncOperation")
	id := of[strings.LastIndex(of, "/")+1 : strings.Index(of, "?")]
	operation := must.Get(h.db.Operations().Get(context.Background(), database.OperationKey(y.subscription, location, id)))(t)
	link, ok := tracing.Link(operation.Value.TraceParent)
	if !ok || link.SpanContext.TraceID() != span.SpanContext.TraceID() || link.SpanContext.SpanID() != span.SpanContext.SpanID() {
		t.Errorf("the operation refers to %q", operation.Value.TraceParent)
	}
}

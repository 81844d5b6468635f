package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/version"
)

// answerable checks the response to arbitrary bytes: it is not a server error, and an error has a code.
func answerable(t *testing.T, status int, header http.Header, body string) {
	t.Helper()
	if status >= http.StatusInternalServerError {
		t.Fatalf("status %d: %s", status, body)
	}
	if status >= http.StatusBadRequest {
		e := decode[struct {
			Error struct{ Code, Message string }
		}](t, body)
		if e.Error.Code == "" || e.Error.Message == "" || header.Get("X-Ms-Error-Code") != e.Error.Code {
			t.Fatalf("status %d with %s and the header %q", status, body, header.Get("X-Ms-Error-Code"))
		}
	}
}

// at returns a target at one of the api-versions.
func at(target string, number uint8) string {
	apis := version.All()
	return target + "?api-version=" + apis[int(number)%len(apis)].Name
}

// seed adds a body at every api-version.
func seed(f *testing.F, bodies ...string) {
	for version := range version.All() {
		for _, body := range bodies {
			f.Add([]byte(body), uint8(version))
		}
	}
}

// putAny sends a PUT of any bytes for a new resource and removes the resource. It is created, so that every version can
// encode it, or is rejected, so that nothing is stored.
func (y *testSubscription) putAny(t *testing.T, target string, body []byte, number uint8) {
	t.Helper()
	status, header, answer := y.do(http.MethodPut, at(target, number), string(body))
	answerable(t, status, header, answer)
	for other := range version.All() {
		got, _, _ := y.do(http.MethodGet, at(target, uint8(other)), "")
		if got == http.StatusBadRequest && strings.Contains(target, "/externalAuths/") {
			continue // the version does not have the type
		}
		if stored := got == http.StatusOK; stored != (status == http.StatusCreated) {
			t.Fatalf("status %d, then GET %d", status, got)
		}
	}
	if status == http.StatusCreated {
		y.mustDo(http.StatusAccepted, http.MethodDelete, target, "")
		y.finishAndRemoveOperations()
	}
}

// patchAny sends a PATCH of any bytes, which changes the resource, or is rejected and changes nothing.
func (y *testSubscription) patchAny(t *testing.T, target string, body []byte, number uint8) {
	t.Helper()
	before := y.mustDo(http.StatusOK, http.MethodGet, target, "").Get("ETag")
	status, header, answer := y.do(http.MethodPatch, at(target, number), string(body))
	answerable(t, status, header, answer)
	after := y.mustDo(http.StatusOK, http.MethodGet, target, "").Get("ETag")
	if changed := before != after; changed != (status == http.StatusAccepted) {
		t.Fatalf("status %d, and the resource changed: %v", status, changed)
	}
	if status == http.StatusAccepted {
		y.finishAndRemoveOperations()
	}
}

// FuzzClusterBody: a PUT of any bytes at any version creates a cluster that every version can encode, or is rejected
// and stores nothing.
func FuzzClusterBody(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	seed(f, y.body("cluster.json", "{}"),
		y.body("cluster.json", `{"properties":{"etcd":{"dataEncryption":{"keyManagementMode":"CustomerManaged"}},"api":{"authorizedCidrs":["0.0.0.0/0"]}}}`),
		y.body("cluster.json", `{"properties":{"version":null,"platform":{"vnetIntegrationSubnetId":null}}}`),
		y.body("cluster.json", `{"properties":{"etcd":{"dataEncryption":{"keyManagementMode":"CustomerManaged","customerManaged":{"kms":{"activeKey":{"vaultName":"v","name":"k","version":"1"}}}}}}}`),
		`{"properties":{"network":{"hostPrefix":1e400}}}`, `[]`, "\xff\x00")
	var count atomic.Int64
	f.Fuzz(func(t *testing.T, body []byte, number uint8) {
		y.in(t).putAny(t, y.cluster(fmt.Sprintf("cluster-%d", count.Add(1))), body, number)
	})
}

// FuzzNodePoolBody is FuzzClusterBody for node pools.
func FuzzNodePoolBody(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	// The last node pool of a cluster cannot be deleted.
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster")+"/nodePools/other", y.body("nodepool.json", "{}"))
	seed(f, y.body("nodepool.json", "{}"),
		y.body("nodepool.json", `{"properties":{"labels":[{"key":"a/b"}],"taints":[{"key":"a","effect":"NoSchedule"}],"replicas":null,"autoScaling":{"min":1,"max":2}}}`))
	var count atomic.Int64
	f.Fuzz(func(t *testing.T, body []byte, number uint8) {
		y.in(t).putAny(t, fmt.Sprintf("%s/nodePools/p-%d", y.cluster("cluster"), count.Add(1)), body, number)
	})
}

// FuzzPatch: a PATCH of any bytes changes the cluster, or is rejected and changes nothing.
func FuzzPatch(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	seed(f, `{"tags":{"a":null}}`, `{"properties":{"autoscaling":{"maxNodesTotal":3},"imageDigestMirrors":[{"source":"a","mirrors":["b"]}]}}`,
		`{"properties":null,"identity":null,"location":null}`)
	f.Fuzz(func(t *testing.T, body []byte, number uint8) {
		y.in(t).patchAny(t, y.cluster("cluster"), body, number)
	})
}

// FuzzPath: requests with any path, query and method never cause a server error.
func FuzzPath(f *testing.F) {
	h := newHarness(f)
	y := h.newSubscription(f)
	f.Add("GET", y.cluster("cluster"), "api-version=2026-09-01-preview")
	f.Add("GET", y.cluster(""), "api-version=2026-09-01-preview&$top=1&$skipToken=x")
	f.Add("PUT", "/subscriptions/"+y.subscription, "api-version=2.0")
	f.Add("DELETE", y.cluster("cluster")+"/nodePools/%2e%2e", "api-version=2026-09-01-preview")
	f.Add("GET", "/subscriptions/"+y.subscription+"/providers/Microsoft.RedHatOpenShift/locations/westus3/hcpOperationStatuses/1", "api-version=2026-09-01-preview")
	f.Add("PUT", y.cluster("cluster")+"/externalAuths/a%00b", "api-version=2026-09-01-preview")
	f.Add("POST", y.cluster("cluster")+"/requestAdminCredential", "api-version=2025-12-23-preview")
	f.Add("POST", y.cluster("cluster")+"/revokeCredentials/", "api-version=2026-09-01-preview&API-VERSION=2025-12-23-preview")
	f.Add("GET", y.cluster("cluster")+"/externalAuths", "api-version=2026-09-01-preview&$skiptoken=AAAA&$filter=x")
	f.Add("GET", strings.Replace(y.cluster("cluster"), "resourceGroups", "re%C5%BFourceGroups", 1), "api-version=2026-09-01-preview")
	f.Add("GET", "//%2f", "%zz")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		switch method {
		case http.MethodGet, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodPost:
		default:
			return
		}
		u, err := url.Parse("http://frontend" + path)
		if err != nil || !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "healthz") || strings.HasSuffix(path, "readyz") {
			return
		}
		request := httptest.NewRequestWithContext(context.Background(), method, "/", nil)
		request.URL.Path, request.URL.RawPath, request.URL.RawQuery = u.Path, u.RawPath, query
		recorder := httptest.NewRecorder()
		h.server.ServeHTTP(recorder, request)
		if recorder.Code == http.StatusNotFound && recorder.Body.Len() == 0 {
			return
		}
		answerable(t, recorder.Code, recorder.Header(), recorder.Body.String())
	})
}

// FuzzHeaders: requests with any values of the parsed headers never cause a server error.
func FuzzHeaders(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	f.Add(`{"createdBy":"a","createdAt":"2026-03-02T10:00:00Z"}`, `"etag"`, "https://management.example/path?x=y")
	f.Add(`null`, `*, W/"a"`, "://")
	f.Add(`{"createdAt":"9999999-03-02T10:00:00Z"}`, ``, "http://[::1")
	f.Fuzz(func(t *testing.T, systemData, match, referer string) {
		y := y.in(t)
		status, header, answer := y.do(http.MethodPatch, y.cluster("cluster"), `{"tags":{"a":"b"}}`,
			"X-Ms-Arm-Resource-System-Data", systemData, "If-Match", match, "Referer", referer)
		answerable(t, status, header, answer)
		status, header, answer = y.do(http.MethodGet, strings.TrimSuffix(y.cluster(""), "/")+"?$top=1", "", "Referer", referer)
		answerable(t, status, header, answer)
		y.finishAndRemoveOperations()
	})
}

// FuzzPreflight: a deployment of any bytes gets status 200, and stores nothing.
func FuzzPreflight(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.createCluster("cluster")
	target := "/subscriptions/" + y.subscription + "/resourceGroups/group/providers/Microsoft.RedHatOpenShift/deployments/d/preflight?api-version=2020-06-01"
	resource := func(kind, name, body string) string {
		return fmt.Sprintf(`{"resources":[{"type":"Microsoft.RedHatOpenShift/%s","name":"%s","apiVersion":"2026-09-01-preview",%s]}`, kind, name, body[1:])
	}
	f.Add([]byte(resource("hcpOpenShiftClusters", "cluster", y.body("cluster.json", "{}"))))
	f.Add([]byte(resource("hcpOpenShiftClusters", "other", y.body("cluster.json", `{"properties":{"platform":{"subnetId":"[reference('x')]"}},"tags":{"[k]":"[[v]"}}`))))
	f.Add([]byte(resource("hcpOpenShiftClusters/nodePools", "cluster/pool", y.body("nodepool.json", "{}"))))
	f.Add([]byte(resource("hcpOpenShiftClusters/nodePools", "[x]/", `{"scope":"/subscriptions/a/resourceGroups/%2f"}`)))
	f.Add([]byte(`{"resources":[{"type":"Microsoft.RedHatOpenShift/","name":"//"},null,[]]}`))
	before := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag")
	f.Fuzz(func(t *testing.T, body []byte) {
		y := y.in(t)
		status, _, answer := y.do(http.MethodPost, target, string(body))
		judged := decode[struct {
			Status string
			Error  *struct{ Code, Message string }
		}](t, answer)
		if status != http.StatusOK || (judged.Status == "Succeeded") != (judged.Error == nil) || judged.Error != nil && judged.Error.Message == "" {
			t.Fatalf("status %d: %s", status, answer)
		}
		if after := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag"); before != after {
			t.Fatal("the cluster changed")
		}
	})
}

// FuzzSubscription: a subscription's document of any bytes is stored as the response shows it, or rejected without a
// change.
func FuzzSubscription(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	target := "/subscriptions/" + y.subscription + "?api-version=2.0"
	f.Add([]byte(`{"state":"Registered","registrationDate":"now","properties":{"tenantId":"11111111-1111-1111-1111-111111111111","registeredFeatures":[{"name":"a","state":"b"}]}}`), "")
	f.Add([]byte(`{"state":"Warned","registrationDate":"","properties":{"registeredFeatures":[null],"managedByTenants":{}}}`), "*")
	f.Add([]byte(`{"state":[],"registrationDate":{}}`), `"x"`)
	f.Add([]byte(`{"state":"Registered","registrationDate":"now","properties":{"availabilityZones":[1E2,{"a":-0.0}],"additionalProperties":{"n":12345678901234567890,"t":"\u2028<\ud800"}}}`), "")
	f.Add([]byte(`{"state":"Registered","registrationDate":"now","properties":{"availabilityZones":"","additionalProperties":{"n":1e400}}}`), "")
	f.Fuzz(func(t *testing.T, body []byte, match string) {
		if strings.Contains(string(body), "Deleted") {
			return // Deleted is final and would affect all later inputs
		}
		y := y.in(t)
		_, header, before := y.do(http.MethodGet, target, "")
		etag := header.Get("ETag")
		status, header, answer := y.do(http.MethodPut, target, string(body), "If-Match", match)
		answerable(t, status, header, answer)
		_, shown, after := y.do(http.MethodGet, target, "")
		if status == http.StatusOK && (after != answer || shown.Get("ETag") != header.Get("ETag")) {
			t.Fatalf("response %s, then GET %s", answer, after)
		}
		if status != http.StatusOK && (after != before || shown.Get("ETag") != etag) {
			t.Fatalf("status %d, and %s changed to %s", status, before, after)
		}
	})
}

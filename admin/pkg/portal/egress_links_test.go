package portal

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
)

// fillEgressLinks sets the responses about the links of the egress gateway.
func (f *fakeAPI) fillEgressLinks(text string) {
	removed, reusable := ago(time.Minute), testTime.Add(14*time.Minute)
	cluster := adminv1.EgressCluster{UID: testUID, ResourceID: text}
	f.responses["/egress-links"] = adminv1.EgressLinkList{Items: []adminv1.EgressLink{
		{LinkID: "4001", Cluster: cluster, Hosts: []string{"quay.io", text}, OperationID: testOperation, RequestTime: ago(time.Hour)},
		{LinkID: "4002", Cluster: cluster, OperationID: testOperation, RequestTime: ago(time.Hour), RemovedTime: &removed, ReusableTime: &reusable},
		{LinkID: text, Cluster: cluster, OperationID: testOperation}}}
	f.responses["PUT /clusters/"+testUID+"/egress-links/4001"] = f.responses["/operations/"+testOperation]
}

// TestHostsOfEgressLinkAreReplaced changes the hosts of a link. Its form has the hosts that the link has. A removed link has no form.
func TestHostsOfEgressLinkAreReplaced(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.api.fill("text")
	b := h.signedIn("oncall@example.com", "/me")
	const path = "/egress-links/4001/actions/set"
	form := formValues(t, b.get(path).body)
	if got := form.Get("hosts"); got != "quay.io\ntext" {
		t.Errorf("the form has the hosts %q", got)
	}
	if response := b.post(path, url.Values{"key": {form.Get("key")}, "hosts": {"quay.io\r\nregistry.example.com"}}); response.location() != "/operations/"+testOperation {
		t.Fatalf("%s: %s", response.Status, response.body)
	}
	last := h.api.requests[len(h.api.requests)-1]
	want := apiRequest{Method: http.MethodPut, Path: "/clusters/" + testUID + "/egress-links/4001", Key: form.Get("key"), Person: "oncall@example.com", Body: `{"hosts":["quay.io","registry.example.com"]}`}
	if diff := cmp.Diff(want, last); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}
	if page := b.get("/egress-links/4002/actions/set"); page.StatusCode != http.StatusNotFound {
		t.Errorf("a removed link: %s", page.Status)
	}
}

package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
)

func reasonOf(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

// TestPublish covers every response to a request.
func TestPublish(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	consumer, elsewhere := r.consumer(server), r.consumer(server)
	cs := r.source(server, "cluster-service")
	other := r.source(server, "another-source")

	base := newBundle(consumer, "one")
	cs.must("create", base)
	deleting := newBundle(consumer, "one")
	cs.must("create", deleting)
	cs.must("delete", deleting)

	at := func(b bundle, version int64) bundle { b.Version = version; return b }
	large := newBundle(consumer, strings.Repeat("x", 600<<10))
	moved := base.with("moved")
	moved.Consumer = elsewhere
	empty := newBundle(consumer, "x")
	empty.Manifests = nil
	unknownConsumer := newBundle("nobody", "x")

	cases := map[string]struct {
		reason      string
		source      *source
		action      string
		bundle      bundle
		code        codes.Code
		errorReason maestroapi.Reason
		version     int64
	}{
		"CreateAgainSame":      {"a repeated request succeeds", cs, "create", base, codes.OK, "", 1},
		"CreateAgainOther":     {"an ID has one content", cs, "create", base.with("other"), codes.AlreadyExists, maestroapi.ReasonAlreadyExists, 0},
		"CreateForeign":        {"an id belongs to its source", other, "create", base, codes.PermissionDenied, maestroapi.ReasonForeignSource, 0},
		"CreateWhileDeleted":   {"the deletion must finish first", cs, "create", deleting, codes.FailedPrecondition, maestroapi.ReasonBeingDeleted, 0},
		"CreateTooLarge":       {"it could never be delivered", cs, "create", large, codes.InvalidArgument, maestroapi.ReasonTooLarge, 0},
		"CreateEmpty":          {"no manifest can be applied", cs, "create", empty, codes.InvalidArgument, maestroapi.ReasonMalformed, 0},
		"CreateNoConsumer":     {"no agent would apply it", cs, "create", unknownConsumer, codes.FailedPrecondition, maestroapi.ReasonUnknownConsumer, 0},
		"UpdateSame":           {"nothing changes", cs, "update", base, codes.OK, "", 1},
		"UpdateWrongVersion":   {"the decision was based on another version", cs, "update", at(base.with("two"), 7), codes.Aborted, maestroapi.ReasonVersionConflict, 0},
		"UpdateUnknown":        {"the resource does not exist", cs, "update", newBundle(consumer, "x"), codes.NotFound, maestroapi.ReasonNotFound, 0},
		"UpdateForeign":        {"an id belongs to its source", other, "update", base.with("two"), codes.PermissionDenied, maestroapi.ReasonForeignSource, 0},
		"UpdateMoved":          {"a resource stays on its consumer", cs, "update", moved, codes.InvalidArgument, maestroapi.ReasonMalformed, 0},
		"UpdateWhileDeleted":   {"a deletion is not revoked", cs, "update", deleting.with("two"), codes.FailedPrecondition, maestroapi.ReasonBeingDeleted, 0},
		"DeleteUnknown":        {"the resource does not exist", cs, "delete", newBundle(consumer, "x"), codes.OK, "", 0},
		"DeleteAgain":          {"a repeated request succeeds", cs, "delete", deleting, codes.OK, "", 0},
		"DeleteWrongVersion":   {"the decision was based on another version", cs, "delete", at(base, 7), codes.Aborted, maestroapi.ReasonVersionConflict, 0},
		"DeleteForeign":        {"an id belongs to its source", other, "delete", base, codes.PermissionDenied, maestroapi.ReasonForeignSource, 0},
		"UnknownAction":        {"no such action", cs, "explode", base, codes.InvalidArgument, maestroapi.ReasonMalformed, 0},
		"NegativeVersion":      {"versions are positive", cs, "update", at(base.with("two"), -1), codes.InvalidArgument, maestroapi.ReasonMalformed, 0},
		"MetadataIsNoMetadata": {"names are strings", cs, "create", bundle{ID: uuid.NewString(), Consumer: consumer, Manifests: base.Manifests, Metadata: map[string]any{"name": 5}}, codes.InvalidArgument, maestroapi.ReasonMalformed, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			version, err := c.source.publish(c.action, c.bundle)
			if got := status.Code(err); got != c.code {
				t.Fatalf("got %s (%v), want %s: %s", got, err, c.code, c.reason)
			}
			if got := reasonOf(err); got != string(c.errorReason) {
				t.Errorf("reason %q, want %q: %s", got, c.errorReason, c.reason)
			}
			if version != c.version {
				t.Errorf("version %d, want %d: %s", version, c.version, c.reason)
			}
		})
	}
}

// TestUpdateWithoutVersionMeansNewest: a source that stores no versions sends 0.
func TestUpdateWithoutVersionMeansNewest(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	cs := r.source(server, "cluster-service")
	b := newBundle(r.consumer(server), "one")
	cs.must("create", b)
	for want := int64(2); want < 5; want++ {
		if got := cs.must("update", b.with(strings.Repeat("x", int(want)))); got != want {
			t.Errorf("updated to version %d, want %d", got, want)
		}
	}
	b.Version = 4
	if got := cs.must("update", b.with("last")); got != 5 {
		t.Errorf("updated to version %d, want 5", got)
	}
}

// TestDeletionOfUnknownResourceIsConfirmed: a repeated deletion leads to the same event as the first.
func TestDeletionOfUnknownResourceIsConfirmed(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	cs := r.source(server, "cluster-service")
	cs.subscribe()
	b := newBundle(r.consumer(server), "x")
	cs.must("delete", b)
	cs.untilDeleted(b.ID)
}

// TestHeartbeats: a subscriber without statuses receives heartbeats.
func TestHeartbeats(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	cs := r.source(r.StartServer(), "cluster-service")
	cs.subscribe()
	eventually.Soon(t, "two heartbeats are received", func() error {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if cs.beats < 2 {
			return fmt.Errorf("%d are received", cs.beats)
		}
		return nil
	})

}

type page struct {
	Kind  string
	Page  int
	Size  int
	Total int
	Items []struct {
		ID           string
		Kind         string
		Name         string
		Href         string
		ConsumerName string `json:"consumer_name"`
		Version      int
		Metadata     map[string]any
		Manifests    []map[string]any
		Status       map[string]any
		DeletedAt    string `json:"deleted_at"`
	}
}

// TestREST covers the REST API: schemas, stable paging, searches, rejections.
func TestREST(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	server := r.StartServer()
	cs := r.source(server, "cluster-service")
	one, two := r.consumer(server), r.consumer(server)
	ids := map[string]bool{}
	for i := range 25 {
		b := newBundle(one, "x")
		b.Metadata = map[string]any{"name": b.ID, "labels": map[string]string{"team": []string{"red", "blue"}[i%2], "it": "is"}}
		cs.must("create", b)
		ids[b.ID] = true
	}
	lone := newBundle(two, "x")
	cs.must("create", lone)

	seen := map[string]bool{}
	for n := 1; len(seen) < 25; n++ {
		var p page
		if code := r.Call(server, "GET", "/resource-bundles?size=10&page="+string(rune('0'+n))+"&search="+url.QueryEscape("consumer_name='"+one+"'"), nil, &p); code != 200 {
			t.Fatalf("list: %d", code)
		}
		if p.Kind != "ResourceBundleList" || p.Total != 25 || p.Size != len(p.Items) || p.Size == 0 {
			t.Fatalf("page %d: %+v", n, p)
		}
		for _, item := range p.Items {
			if seen[item.ID] || !ids[item.ID] {
				t.Fatalf("resource %s is on two pages or is of another consumer", item.ID)
			}
			if item.Kind != "ResourceBundle" || item.Version != 1 || len(item.Manifests) != 1 || item.Metadata["name"] != item.ID {
				t.Fatalf("item %+v", item)
			}
			seen[item.ID] = true
		}
	}

	searches := map[string]int{
		"": 26, "source='cluster-service'": 26, "source='nobody'": 0,
		"source = 'cluster-service' and (consumer_name='" + one + "' or consumer_name='" + two + "')": 26,
		"consumer_name in ('" + two + "')":                                                        1,
		"not consumer_name = '" + one + "'":                                                       1,
		"version >= 1 and version < 2":                                                            26,
		`payload->'metadata'->'labels'@>'{"team":"red"}'`:                                         13,
		`source='cluster-service' and payload->'metadata'->'labels'@>'{"team":"blue","it":"is"}'`: 12,
		`payload->'metadata'->'labels'->>'team'in('red','blue')`:                                  25,
		`payload->'metadata'->'labels'->>'team'<>'red'`:                                           13,
		`payload->'metadata'->'labels'->>'team'<>null`:                                            25,
		"id = '" + lone.ID + "'":                                                                  1,
		"name like '%' and id = '" + lone.ID + "'":                                                1,
		"source = 'cluster-service' and id = 'a'' or ''1''=''1'":                                  0,
	}
	for search, want := range searches {
		var p page
		if code := r.Call(server, "GET", "/resource-bundles?size=0&search="+url.QueryEscape(search), nil, &p); code != 200 || p.Total != want {
			t.Errorf("search %q: %d with %d, want %d", search, code, p.Total, want)
		}
	}
	rejected := []string{"search=" + url.QueryEscape("password='x'"), "search=" + url.QueryEscape("id='x"), "search=" + url.QueryEscape("id='x';drop table resources"),
		"search=" + url.QueryEscape(strings.Repeat("(", 100)+"id='x'"), "search=" + url.QueryEscape(`payload->'metadata'->'labels'@>'{'`), "page=0", "size=-1", "size=many", "orderBy=password", "fields=id",
		"search=" + url.QueryEscape("version='many'")}
	for _, query := range rejected {
		var failure struct{ Kind, Code, Reason string }
		if code := r.Call(server, "GET", "/resource-bundles?"+query, nil, &failure); code != http.StatusBadRequest || failure.Kind != "Error" || failure.Reason == "" {
			t.Errorf("%s: %d %+v", query, code, failure)
		}
	}

	var consumers page
	r.Call(server, "GET", "/consumers?orderBy=name%20desc&search="+url.QueryEscape("name='"+one+"'"), nil, &consumers)
	if len(consumers.Items) != 1 || consumers.Items[0].Name != one {
		t.Fatalf("consumers: %+v", consumers)
	}
	path := "/consumers/" + consumers.Items[0].ID
	for _, c := range []struct {
		method, path string
		body         any
		want         int
	}{
		{"GET", path, nil, 200},
		{"PATCH", path, map[string]any{"labels": map[string]string{"a": "b"}}, 200},
		{"PATCH", path, map[string]any{"name": "other"}, 400},
		{"DELETE", path, nil, 409},
		{"POST", "/consumers", map[string]any{"name": one}, 409},
		{"POST", "/consumers", map[string]any{"name": "Not A Name"}, 400},
		{"POST", "/consumers", map[string]any{"nmae": "typo"}, 400},
		{"GET", "/consumers/none", nil, 404},
		{"DELETE", "/consumers/none", nil, 404},
		{"GET", "/resource-bundles/none", nil, 404},
		{"DELETE", "/resource-bundles/none", nil, 204},
		{"POST", "/resource-bundles", map[string]any{}, 403},
		{"DELETE", "/resource-bundles/" + lone.ID, nil, 204},
		{"DELETE", "/resource-bundles/" + lone.ID, nil, 204},
	} {
		if got := r.Call(server, c.method, c.path, c.body, nil); got != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.want)
		}
	}
	var deleted json.RawMessage
	if r.Call(server, "GET", "/resource-bundles/"+lone.ID, nil, &deleted); !strings.Contains(string(deleted), "deleted_at") {
		t.Errorf("a resource that is being deleted has no deletion time: %s", deleted)
	}
}

package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

func pk(s string) azcosmos.PartitionKey { return azcosmos.NewPartitionKeyString(s) }

// status returns the HTTP status of an azcosmos error, followed by the sub-status if there is one.
func status(err error) string {
	if err == nil {
		return ""
	}
	var r *azcore.ResponseError
	if !errors.As(err, &r) {
		return err.Error()
	}
	if sub := r.RawResponse.Header.Get("x-ms-substatus"); sub != "" {
		return fmt.Sprintf("%d/%s", r.StatusCode, sub)
	}
	return fmt.Sprint(r.StatusCode)
}

func etag(s azcore.ETag) *azcore.ETag { return &s }

func TestConditionalWrites(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	body := []byte(`{"id":"a","partitionKey":"p","n":1}`)
	r := must.Get(c.CreateItem(ctx, pk("p"), body, nil))(t)
	if r.SessionToken == nil || r.RequestCharge <= 0 || r.ActivityID == "" || r.ETag == "" || r.RawResponse.StatusCode != http.StatusCreated {
		t.Errorf("the response is incomplete: %+v", r.Response)
	}
	stale := &azcosmos.ItemOptions{IfMatchEtag: etag(`"stale"`)}
	current := &azcosmos.ItemOptions{IfMatchEtag: etag(r.ETag)}
	calls := []struct {
		name string
		do   func() error
		want string
	}{
		{"create again", func() error { _, err := c.CreateItem(ctx, pk("p"), body, nil); return err }, "409"},
		{"replace stale", func() error { _, err := c.ReplaceItem(ctx, pk("p"), "a", body, stale); return err }, "412"},
		{"upsert stale", func() error { _, err := c.UpsertItem(ctx, pk("p"), body, stale); return err }, "412"},
		{"delete stale", func() error { _, err := c.DeleteItem(ctx, pk("p"), "a", stale); return err }, "412"},
		{"replace current", func() error { _, err := c.ReplaceItem(ctx, pk("p"), "a", body, current); return err }, ""},
		{"replace with old etag", func() error { _, err := c.ReplaceItem(ctx, pk("p"), "a", body, current); return err }, "412"},
		{"replace nothing", func() error {
			_, err := c.ReplaceItem(ctx, pk("p"), "b", []byte(`{"id":"b","partitionKey":"p"}`), nil)
			return err
		}, "404"},
		{"wrong partition", func() error { _, err := c.UpsertItem(ctx, pk("q"), body, nil); return err }, "400/1001"},
		{"read elsewhere", func() error { _, err := c.ReadItem(ctx, pk("q"), "a", nil); return err }, "404"},
		{"not json", func() error { _, err := c.UpsertItem(ctx, pk("p"), []byte(`{"id":`), nil); return err }, "400"},
		{"too large", func() error {
			_, err := c.UpsertItem(ctx, pk("p"), fmt.Appendf(nil, `{"id":"a","partitionKey":"p","x":%q}`, strings.Repeat("x", 2<<20)), nil)
			return err
		}, "413"},
		{"session ahead", func() error {
			_, err := c.ReadItem(ctx, pk("p"), "a", &azcosmos.ItemOptions{SessionToken: new("0:-1#999999")})
			return err
		}, "404/1002"},
		{"current session", func() error {
			_, err := c.ReadItem(ctx, pk("p"), "a", &azcosmos.ItemOptions{SessionToken: r.SessionToken})
			return err
		}, ""},
		{"no such container", func() error {
			other, _ := newClientOf(t, c).NewContainer("db", "nothing")
			_, err := other.ReadItem(ctx, pk("p"), "a", nil)
			return err
		}, "404/1003"},
		{"delete", func() error { _, err := c.DeleteItem(ctx, pk("p"), "a", nil); return err }, ""},
		{"delete again", func() error { _, err := c.DeleteItem(ctx, pk("p"), "a", nil); return err }, "404"},
	}
	for _, call := range calls {
		if got := status(call.do()); got != call.want {
			t.Errorf("%s: status %q, want %q", call.name, got, call.want)
		}
	}
}

func TestBatchStatuses(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	item := func(id string) []byte { return fmt.Appendf(nil, `{"id":%q,"partitionKey":"p"}`, id) }
	must.Get(c.CreateItem(ctx, pk("p"), item("existing"), nil))(t)
	stale := &azcosmos.TransactionalBatchItemOptions{IfMatchETag: etag(`"stale"`)}
	cases := map[string]struct {
		fill   func(b *azcosmos.TransactionalBatch)
		want   []int32
		reason string
	}{
		"success": {func(b *azcosmos.TransactionalBatch) { b.CreateItem(item("x"), nil); b.DeleteItem("x", nil) }, []int32{201, 204}, "one status per operation"},
		"conflict": {func(b *azcosmos.TransactionalBatch) {
			b.CreateItem(item("y"), nil)
			b.CreateItem(item("existing"), nil)
		}, []int32{424, 409}, "the other operations have status 424"},
		"stale": {func(b *azcosmos.TransactionalBatch) {
			b.ReplaceItem("existing", item("existing"), stale)
			b.DeleteItem("existing", nil)
		}, []int32{412, 424}, "per-operation ETags"},
		"missing":   {func(b *azcosmos.TransactionalBatch) { b.DeleteItem("existing", nil); b.DeleteItem("nope", nil) }, []int32{424, 404}, "a failed deletion fails the batch"},
		"other key": {func(b *azcosmos.TransactionalBatch) { b.CreateItem([]byte(`{"id":"z","partitionKey":"q"}`), nil) }, []int32{400}, "one logical partition"},
		"own writes": {func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("w"), nil)
			b.ReplaceItem("w", item("w"), nil)
			b.DeleteItem("w", nil)
		}, []int32{201, 200, 204}, "an operation has the results of earlier ones"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := c.NewTransactionalBatch(pk("p"))
			tc.fill(&b)
			r := must.Get(c.ExecuteTransactionalBatch(ctx, b, nil))(t)
			var got []int32
			for _, o := range r.OperationResults {
				got = append(got, o.StatusCode)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
			if r.Success != (slices.Max(got) < 400) {
				t.Errorf("success is %v with %v", r.Success, got)
			}
		})
	}
	for _, id := range []string{"x", "y", "z", "w"} {
		if _, err := c.ReadItem(ctx, pk("p"), id, nil); status(err) != "404" {
			t.Errorf("%s exists: %v", id, err)
		}
	}
	large := func(ops, size int) string {
		b := c.NewTransactionalBatch(pk("p"))
		for i := range ops {
			b.UpsertItem(fmt.Appendf(nil, `{"id":"l%d","partitionKey":"p","x":%q}`, i, strings.Repeat("x", size)), nil)
		}
		_, err := c.ExecuteTransactionalBatch(ctx, b, nil)
		return status(err)
	}
	if got := []string{large(100, 10), large(101, 10), large(3, 1<<20)}; !slices.Equal(got, []string{"", "400", "413"}) {
		t.Errorf("100 operations, 101, and 3 MiB: %q", got)
	}
}

func TestNotModified(t *testing.T) {
	_, c, h := openContainer(t, emulator.Options{})
	r := must.Get(c.CreateItem(context.Background(), pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil))(t)
	for condition, want := range map[string]int{string(r.ETag): http.StatusNotModified, `"other"`: http.StatusOK} {
		resp := send(t, h.URL, emulator.WellKnownKey, http.MethodGet, "docs", "dbs/db/colls/items/docs/a", "", map[string]string{
			"If-None-Match": condition, "x-ms-documentdb-partitionkey": `["p"]`})
		if resp.StatusCode != want || resp.Header.Get("etag") != string(r.ETag) {
			t.Errorf("If-None-Match %s: status %d and ETag %s, want %d and %s", condition, resp.StatusCode, resp.Header.Get("etag"), want, r.ETag)
		}
	}
}

// TestUnsupportedRequests checks that requests that no part of hcpmesh sends are rejected and have no effect.
func TestUnsupportedRequests(t *testing.T) {
	_, c, h := openContainer(t, emulator.Options{})
	must.Get(c.CreateItem(t.Context(), pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil))(t)
	const coll, item = "dbs/db/colls/items", "dbs/db/colls/items/docs/a"
	type header = map[string]string
	for name, tc := range map[string]struct {
		method, resourceType, link, path, body string
		header                                 header
		want                                   int
	}{
		"patch":              {"PATCH", "docs", item, item, `{"operations":[{"op":"set","path":"/n","value":1}]}`, nil, 405},
		"list of items":      {"GET", "docs", coll, coll + "/docs", "", nil, 405},
		"list of containers": {"GET", "colls", "dbs/db", "dbs/db/colls", "", nil, 405},
		"list of databases":  {"GET", "dbs", "", "dbs", "", nil, 405},
		"replace container":  {"PUT", "colls", coll, coll, `{"id":"items","partitionKey":{"paths":["/partitionKey"],"version":2}}`, nil, 405},
		"delete container":   {"DELETE", "colls", coll, coll, "", nil, 405},
		"offers":             {"GET", "offers", "", "offers", "", nil, 400},
		"users":              {"POST", "users", "dbs/db", "dbs/db/users", `{"id":"u"}`, nil, 400},
		"stored procedure":   {"POST", "sprocs", coll + "/sprocs/s", coll + "/sprocs/s", "[]", nil, 400},
		"throughput":         {"POST", "dbs", "", "dbs", `{"id":"new"}`, header{"x-ms-offer-throughput": "400"}, 400},
		"unique keys":        {"POST", "colls", "dbs/db", "dbs/db/colls", `{"id":"n","partitionKey":{"paths":["/a"]},"uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/u"]}]}}`, nil, 400},
		"hierarchical key":   {"POST", "colls", "dbs/db", "dbs/db/colls", `{"id":"n","partitionKey":{"kind":"MultiHash","paths":["/a","/b"],"version":2}}`, nil, 400},
		"version 1":          {"POST", "colls", "dbs/db", "dbs/db/colls", `{"id":"n","partitionKey":{"paths":["/a"],"version":1}}`, nil, 400},
		"If-None-Match":      {"DELETE", "docs", item, item, "", header{"If-None-Match": `"x"`}, 400},
		"trigger":            {"DELETE", "docs", item, item, "", header{"x-ms-documentdb-pre-trigger-include": "t"}, 400},
		"number as key":      {"GET", "docs", item, item, "", header{"x-ms-documentdb-partitionkey": "[1]"}, 400},
		"query plan":         {"POST", "docs", coll, coll + "/docs", `{"query":"SELECT * FROM c"}`, header{"x-ms-documentdb-isquery": "true", "x-ms-cosmos-is-query-plan-request": "true"}, 400},
		"all versions":       {"GET", "docs", coll, coll + "/docs", "", header{"A-IM": "Full-Fidelity Feed"}, 400},
		"changes from now":   {"GET", "docs", coll, coll + "/docs", "", header{"A-IM": "Incremental Feed", "If-None-Match": "*"}, 400},
		"read in a batch":    {"POST", "docs", coll, coll + "/docs", `[{"operationType":"Delete","id":"a"},{"operationType":"Read","id":"a"}]`, header{"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}, 400},
		"not atomic":         {"POST", "docs", coll, coll + "/docs", `[{"operationType":"Delete","id":"a"}]`, header{"x-ms-cosmos-is-batch-request": "true"}, 400},
	} {
		headers := header{"x-ms-documentdb-partitionkey": `["p"]`}
		maps.Copy(headers, tc.header)
		if resp := send(t, h.URL, emulator.WellKnownKey, tc.method, tc.resourceType, tc.path, tc.body, headers, tc.link); resp.StatusCode != tc.want {
			t.Errorf("%s: status %d, want %d", name, resp.StatusCode, tc.want)
		}
	}
	if _, err := c.ReadItem(t.Context(), pk("p"), "a", nil); err != nil {
		t.Errorf("the item: %v", err)
	}
}

func TestAuthentication(t *testing.T) {
	_, _, h := openContainer(t, emulator.Options{})
	wrong := "AAAA" + emulator.WellKnownKey[4:]
	get := func(key string, headers map[string]string) *http.Response {
		return send(t, h.URL, key, http.MethodGet, "colls", "dbs/db/colls/items", "", headers)
	}
	cases := map[string]struct {
		resp *http.Response
		want int
	}{
		"valid":        {get(emulator.WellKnownKey, nil), 200},
		"wrong key":    {get(wrong, nil), 401},
		"no signature": {get("", nil), 401},
		"old":          {get(emulator.WellKnownKey, map[string]string{"x-ms-date": "Mon, 02 Jan 2006 15:04:05 GMT"}), 403},
		"changed date": {get(emulator.WellKnownKey, map[string]string{"override-date": "Mon, 02 Jan 2006 15:04:05 GMT"}), 401},
		"other link":   {send(t, h.URL, emulator.WellKnownKey, http.MethodGet, "docs", "dbs/db/colls/items", "", nil), 401},
		"resource":     {get(emulator.WellKnownKey, map[string]string{"Authorization": "type=resource&ver=1.0&sig=x"}), 401},
		"junk":         {get(emulator.WellKnownKey, map[string]string{"Authorization": "%zz"}), 401},
	}
	for name, tc := range cases {
		if tc.resp.StatusCode != tc.want {
			t.Errorf("%s: status %d, want %d", name, tc.resp.StatusCode, tc.want)
		}
	}
}

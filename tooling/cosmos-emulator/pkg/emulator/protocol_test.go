package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/google/go-cmp/cmp"

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
	r, err := c.CreateItem(ctx, pk("p"), body, nil)
	if err != nil {
		t.Fatal(err)
	}
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

func TestNotModified(t *testing.T) {
	_, c, h := openContainer(t, emulator.Options{})
	r, err := c.CreateItem(context.Background(), pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for condition, want := range map[string]int{string(r.ETag): http.StatusNotModified, `"other"`: http.StatusOK} {
		resp := send(t, h.URL, emulator.WellKnownKey, http.MethodGet, "docs", "dbs/db/colls/items/docs/a", "", map[string]string{
			"If-None-Match": condition, "x-ms-documentdb-partitionkey": `["p"]`})
		if resp.StatusCode != want || resp.Header.Get("etag") != string(r.ETag) {
			t.Errorf("If-None-Match %s: status %d and ETag %s, want %d and %s", condition, resp.StatusCode, resp.Header.Get("etag"), want, r.ETag)
		}
	}
}

func TestPatch(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	const before = `{"id":"a","partitionKey":"p","n":1,"list":["x","y"],"o":{"k":"v"}}`
	cases := map[string]struct {
		ops    func(p *azcosmos.PatchOperations)
		want   string // the changed document without its system properties, or a status
		reason string
	}{
		"add":               {func(p *azcosmos.PatchOperations) { p.AppendAdd("/new", 1) }, `{"id":"a","partitionKey":"p","n":1,"list":["x","y"],"o":{"k":"v"},"new":1}`, "a new property"},
		"add to the list":   {func(p *azcosmos.PatchOperations) { p.AppendAdd("/list/1", "z") }, `{"id":"a","partitionKey":"p","n":1,"list":["x","z","y"],"o":{"k":"v"}}`, "inserts"},
		"append":            {func(p *azcosmos.PatchOperations) { p.AppendAdd("/list/-", "z") }, `{"id":"a","partitionKey":"p","n":1,"list":["x","y","z"],"o":{"k":"v"}}`, "- is the end of the list"},
		"set in the list":   {func(p *azcosmos.PatchOperations) { p.AppendSet("/list/0", "z") }, `{"id":"a","partitionKey":"p","n":1,"list":["z","y"],"o":{"k":"v"}}`, "set overwrites"},
		"replace":           {func(p *azcosmos.PatchOperations) { p.AppendReplace("/o/k", "w") }, `{"id":"a","partitionKey":"p","n":1,"list":["x","y"],"o":{"k":"w"}}`, "nested"},
		"replace nothing":   {func(p *azcosmos.PatchOperations) { p.AppendReplace("/nope", 1) }, "400", "replace requires an existing value"},
		"remove":            {func(p *azcosmos.PatchOperations) { p.AppendRemove("/list/0") }, `{"id":"a","partitionKey":"p","n":1,"list":["y"],"o":{"k":"v"}}`, "an element"},
		"remove nothing":    {func(p *azcosmos.PatchOperations) { p.AppendRemove("/nope") }, "400", "remove requires an existing value"},
		"increment":         {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/n", -3) }, `{"id":"a","partitionKey":"p","n":-2,"list":["x","y"],"o":{"k":"v"}}`, "a negative increment"},
		"increment new":     {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/m", 3) }, `{"id":"a","partitionKey":"p","n":1,"list":["x","y"],"o":{"k":"v"},"m":3}`, "creates"},
		"increment text":    {func(p *azcosmos.PatchOperations) { p.AppendIncrement("/o/k", 3) }, "400", "not a number"},
		"all or nothing":    {func(p *azcosmos.PatchOperations) { p.AppendSet("/n", 9); p.AppendRemove("/nope") }, "400", "the first operation has no effect"},
		"no parent":         {func(p *azcosmos.PatchOperations) { p.AppendSet("/x/y", 9) }, "400", "parents are not created"},
		"id":                {func(p *azcosmos.PatchOperations) { p.AppendSet("/id", "b") }, "400", "the ID is immutable"},
		"partition key":     {func(p *azcosmos.PatchOperations) { p.AppendSet("/partitionKey", "b") }, "400", "the partition key is immutable"},
		"condition holds":   {func(p *azcosmos.PatchOperations) { p.SetCondition("from c where c.n = 1"); p.AppendSet("/n", 2) }, `{"id":"a","partitionKey":"p","n":2,"list":["x","y"],"o":{"k":"v"}}`, "the condition is met"},
		"condition fails":   {func(p *azcosmos.PatchOperations) { p.SetCondition("from c where c.n = 2"); p.AppendSet("/n", 2) }, "412/1110", "the condition is not met"},
		"invalid condition": {func(p *azcosmos.PatchOperations) { p.SetCondition("from c wher c.n"); p.AppendSet("/n", 2) }, "400", "the condition is not a query"},
		"too many": {func(p *azcosmos.PatchOperations) {
			for range 11 {
				p.AppendIncrement("/n", 1)
			}
		}, "400", "at most ten operations"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := c.UpsertItem(ctx, pk("p"), []byte(before), nil); err != nil {
				t.Fatal(err)
			}
			var ops azcosmos.PatchOperations
			tc.ops(&ops)
			_, err := c.PatchItem(ctx, pk("p"), "a", ops, nil)
			want := tc.want
			if !strings.HasPrefix(want, "{") {
				if got := status(err); got != want {
					t.Errorf("status %q, want %q: %s", got, want, tc.reason)
				}
				want = before
			} else if err != nil {
				t.Fatal(err)
			}
			r, err := c.ReadItem(ctx, pk("p"), "a", nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, withoutSystem(t, r.Value)); diff != "" {
				t.Errorf("%s: %s", tc.reason, diff)
			}
		})
	}
}

// withoutSystem removes the system properties, which are the last ones.
func withoutSystem(t *testing.T, body []byte) string {
	t.Helper()
	at := strings.Index(string(body), `,"_rid":`)
	if at < 0 {
		t.Fatalf("no system properties in %s", body)
	}
	return string(body[:at]) + "}"
}

func TestBatchStatuses(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	item := func(id string) []byte { return fmt.Appendf(nil, `{"id":%q,"partitionKey":"p"}`, id) }
	if _, err := c.CreateItem(ctx, pk("p"), item("existing"), nil); err != nil {
		t.Fatal(err)
	}
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
			b.ReadItem("existing", nil)
		}, []int32{412, 424}, "per-operation ETags"},
		"missing":   {func(b *azcosmos.TransactionalBatch) { b.ReadItem("existing", nil); b.ReadItem("nope", nil) }, []int32{424, 404}, "a failed read fails the batch"},
		"other key": {func(b *azcosmos.TransactionalBatch) { b.CreateItem([]byte(`{"id":"z","partitionKey":"q"}`), nil) }, []int32{400}, "one logical partition"},
		"bad patch": {func(b *azcosmos.TransactionalBatch) { b.PatchItem("existing", azcosmos.PatchOperations{}, nil) }, []int32{400}, "a patch without operations"},
		"own writes": {func(b *azcosmos.TransactionalBatch) {
			b.UpsertItem(item("w"), nil)
			b.ReadItem("w", nil)
			b.DeleteItem("w", nil)
		}, []int32{201, 200, 204}, "a batch reads its own writes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := c.NewTransactionalBatch(pk("p"))
			tc.fill(&b)
			r, err := c.ExecuteTransactionalBatch(ctx, b, nil)
			if err != nil {
				t.Fatal(err)
			}
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

func TestUniqueKeysAndHierarchy(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	db, err := newClientOf(t, c).NewDatabase("db")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "tree",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/tenant", "/user"}, Version: 2},
		UniqueKeyPolicy:        &azcosmos.UniqueKeyPolicy{UniqueKeys: []azcosmos.UniqueKey{{Paths: []string{"/mail"}}}}}, nil); err != nil {
		t.Fatal(err)
	}
	tree, err := db.NewContainer("tree")
	if err != nil {
		t.Fatal(err)
	}
	add := func(id, tenant, user, mail string) string {
		_, err := tree.CreateItem(ctx, pk(tenant).AppendString(user), fmt.Appendf(nil, `{"id":%q,"tenant":%q,"user":%q,"mail":%q}`, id, tenant, user, mail), nil)
		return status(err)
	}
	got := []string{add("1", "t", "u", "m"), add("2", "t", "u", "m"), add("3", "t", "v", "m"), add("4", "s", "u", "x")}
	if diff := cmp.Diff([]string{"", "409", "", ""}, got); diff != "" {
		t.Errorf("unique keys are unique within a logical partition: %s", diff)
	}
	for query, want := range map[string]string{
		"SELECT VALUE c.id FROM c":                                                    `"1","3"`,
		"SELECT VALUE c.id FROM c ORDER BY c.id DESC":                                 `"3","1"`,
		"SELECT VALUE COUNT(1) FROM c":                                                "2",
		"SELECT VALUE c.id FROM c WHERE c.user = 'v' ORDER BY c.id OFFSET 0 LIMIT 10": `"3"`,
	} {
		if got := query1(t, tree, query, pk("t"), nil); got != want {
			t.Errorf("%s within the prefix: %s, want %s", query, got, want)
		}
	}
	if _, err := tree.ReadItem(ctx, pk("t"), "1", nil); status(err) != "400/1001" {
		t.Errorf("a read with a prefix of the key: %v", err)
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

package emulator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// query1 returns the results of all pages of a query, or the status of its error.
func query1(t *testing.T, c *azcosmos.ContainerClient, query string, key azcosmos.PartitionKey, o *azcosmos.QueryOptions) string {
	t.Helper()
	var out []string
	pager := c.NewQueryItemsPager(query, key, o)
	for pager.More() {
		page, err := pager.NextPage(context.Background())
		if err != nil {
			return status(err)
		}
		for _, item := range page.Items {
			out = append(out, string(item))
		}
	}
	return strings.Join(out, ",")
}

func TestGatewayQueries(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	_, all, _ := openContainer(t, emulator.Options{ServeCrossPartition: true})
	ctx := context.Background()
	for i := range 6 {
		key := fmt.Sprint("p", i%2)
		for _, c := range []*azcosmos.ContainerClient{c, all} {
			if _, err := c.CreateItem(ctx, pk(key), fmt.Appendf(nil, `{"id":"%d","partitionKey":%q,"n":%d}`, i, key, i*7%5), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	allPartitions := azcosmos.NewPartitionKey()
	cases := map[string]struct {
		query         string
		key           azcosmos.PartitionKey
		gateway, full string
	}{
		"scan":          {"SELECT VALUE c.id FROM c", allPartitions, `"0","1","2","3","4","5"`, ""},
		"filter":        {"SELECT VALUE c.id FROM c WHERE c.n > 2", allPartitions, `"2","4"`, ""},
		"order":         {"SELECT VALUE c.id FROM c ORDER BY c.n", allPartitions, "400/1004", `"0","5","3","1","4","2"`},
		"count":         {"SELECT VALUE COUNT(1) FROM c", allPartitions, "400/1004", "6"},
		"top":           {"SELECT TOP 1 VALUE c.id FROM c", allPartitions, "400/1004", `"0"`},
		"distinct":      {"SELECT DISTINCT VALUE c.n FROM c", allPartitions, "400/1004", "0,2,4,1,3"},
		"one partition": {"SELECT VALUE c.id FROM c ORDER BY c.n", pk("p1"), `"5","3","1"`, ""},
		"key in filter": {"SELECT VALUE COUNT(1) FROM c WHERE c.partitionKey = 'p1' AND c.n < 2", allPartitions, "2", ""},
		"two keys":      {"SELECT VALUE c.id FROM c ORDER BY c.n, c.id", pk("p1"), "400", ""},
		"by expression": {"SELECT VALUE c.id FROM c ORDER BY c.n + 1", pk("p1"), "400", ""},
		"unsupported":   {"SELECT VALUE c.id FROM c WHERE ST_DISTANCE(c.a, c.b) < 1", pk("p1"), "400", ""},
		"other key":     {"SELECT VALUE c.id FROM c WHERE c.partitionKey = 'p0'", pk("p1"), "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.full == "" {
				tc.full = tc.gateway
			}
			if got := query1(t, c, tc.query, tc.key, nil); got != tc.gateway {
				t.Errorf("%s: %s, want %s", tc.query, got, tc.gateway)
			}
			for _, size := range []int32{1, 2, 100} {
				if got := query1(t, all, tc.query, tc.key, &azcosmos.QueryOptions{PageSizeHint: size}); got != tc.full {
					t.Errorf("%s over all partitions in pages of %d: %s, want %s", tc.query, size, got, tc.full)
				}
			}
		})
	}
}

// TestContinuationUnderWrites reads the pages of a query while items before and after the position are created and deleted.
func TestContinuationUnderWrites(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	put := func(id string, n int) {
		if _, err := c.UpsertItem(ctx, pk("p"), fmt.Appendf(nil, `{"id":%q,"partitionKey":"p","n":%d}`, id, n), nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 9 {
		put(fmt.Sprintf("i%d", i), 10*i)
	}
	for query, want := range map[string]string{
		"SELECT VALUE c.id FROM c ORDER BY c.n": `"i0","i1","i2","i3","i5","late","i6","i7","i8"`,
		"SELECT VALUE c.id FROM c":              `"i0","i1","i2","i3","i5","i6","i7","i8","early","late"`,
	} {
		put("i1", 10)
		put("i4", 40)
		for _, id := range []string{"early", "late"} {
			if _, err := c.DeleteItem(ctx, pk("p"), id, nil); err != nil && status(err) != "404" {
				t.Fatal(err)
			}
		}
		var got []string
		pager := c.NewQueryItemsPager(query, pk("p"), &azcosmos.QueryOptions{PageSizeHint: 3})
		for n := 0; pager.More(); n++ {
			page, err := pager.NextPage(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				if s := string(item); s != `"i4"` || n == 0 {
					got = append(got, s)
				}
			}
			if n == 0 {
				put("early", 5)
				put("late", 55)
				if _, err := c.DeleteItem(ctx, pk("p"), "i4", nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		if diff := cmp.Diff(want, strings.Join(got, ",")); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

func TestReadManyOverManyPartitions(t *testing.T) {
	_, first, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	db, err := newClientOf(t, first).NewDatabase("db")
	if err != nil {
		t.Fatal(err)
	}
	ru := azcosmos.NewManualThroughputProperties(50000)
	if _, err := db.CreateContainer(ctx, azcosmos.ContainerProperties{ID: "wide",
		PartitionKeyDefinition: azcosmos.PartitionKeyDefinition{Paths: []string{"/partitionKey"}, Version: 2}}, &azcosmos.CreateContainerOptions{ThroughputProperties: &ru}); err != nil {
		t.Fatal(err)
	}
	c, err := db.NewContainer("wide")
	if err != nil {
		t.Fatal(err)
	}
	var want []azcosmos.ItemIdentity
	for i := range 60 {
		key := fmt.Sprint("p", i)
		if _, err := c.CreateItem(ctx, pk(key), fmt.Appendf(nil, `{"id":"a","partitionKey":%q}`, key), nil); err != nil {
			t.Fatal(err)
		}
		want = append(want, azcosmos.ItemIdentity{ID: "a", PartitionKey: pk(key)})
	}
	ranges, err := c.ReadFeedRanges(ctx, nil)
	if err != nil || len(ranges) != 5 {
		t.Fatalf("%d feed ranges, %v; want 5", len(ranges), err)
	}
	many, err := c.ReadManyItems(ctx, append(want, azcosmos.ItemIdentity{ID: "nope", PartitionKey: pk("p1")}), nil)
	if err != nil || len(many.Items) != len(want) {
		t.Errorf("read many: %d items, %v; want %d", len(many.Items), err, len(want))
	}
	total := 0
	for _, r := range ranges {
		feed, err := c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &r, MaxItemCount: 100})
		if err != nil {
			t.Fatal(err)
		}
		if len(feed.Items) == 60 || len(feed.Items) == 0 {
			t.Errorf("the feed of one of five ranges has %d of 60 items", len(feed.Items))
		}
		total += len(feed.Items)
	}
	if total != 60 {
		t.Errorf("the feeds of all ranges have %d items, want 60", total)
	}
}

func TestThroughputSplitsPartitions(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	ctx := context.Background()
	if _, err := c.CreateItem(ctx, pk("p"), []byte(`{"id":"a","partitionKey":"p"}`), nil); err != nil {
		t.Fatal(err)
	}
	// The client has cached the only range when the container is split.
	before, err := c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &azcosmos.FeedRange{MaxExclusive: "FF"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReplaceThroughput(ctx, azcosmos.NewManualThroughputProperties(40000), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		key := fmt.Sprint("q", i)
		if _, err := c.CreateItem(ctx, pk(key), fmt.Appendf(nil, `{"id":"b","partitionKey":%q}`, key), nil); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	token := before.ContinuationToken
	for range 20 {
		page, err := c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{Continuation: &token, MaxItemCount: 3})
		if err != nil {
			t.Fatal(err)
		}
		token = page.ContinuationToken
		for _, raw := range page.Items {
			var item struct{ PartitionKey string }
			if err := json.Unmarshal(raw, &item); err != nil {
				t.Fatal(err)
			}
			seen[item.PartitionKey] = true
		}
	}
	if len(seen) != 20 || seen["p"] {
		t.Errorf("after the split the feed has %d of 20 new items; old item repeated: %v", len(seen), seen["p"])
	}
}

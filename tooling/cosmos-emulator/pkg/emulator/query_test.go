package emulator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// query1 returns the IDs of the results of all pages of a query, or the status of its error.
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
			out = append(out, idOf(t, item))
		}
	}
	return strings.Join(out, ",")
}

// idOf returns the ID of an item.
func idOf(t *testing.T, item []byte) string {
	t.Helper()
	var v struct{ ID string }
	must.Do(t, json.Unmarshal(item, &v))
	return v.ID
}

func TestGatewayQueries(t *testing.T) {
	_, c, _ := openContainer(t, emulator.Options{})
	for i := range 6 {
		key := fmt.Sprint("p", i%2)
		must.Get(c.CreateItem(t.Context(), pk(key), fmt.Appendf(nil, `{"id":"%d","partitionKey":%q,"n":%d}`, i, key, i*7%5), nil))(t)
	}
	allPartitions := azcosmos.NewPartitionKey()
	cases := map[string]struct {
		query string
		key   azcosmos.PartitionKey
		want  string
	}{
		"scan":          {"SELECT * FROM c", allPartitions, "0,1,2,3,4,5"},
		"filter":        {"SELECT * FROM c WHERE c.n > @two", allPartitions, "2,4"},
		"order":         {"SELECT * FROM c ORDER BY c.n", allPartitions, "400/1004"},
		"one partition": {"SELECT c.id FROM c ORDER BY c.n", pk("p1"), "5,3,1"},
		"two orders":    {"SELECT * FROM c ORDER BY c.n, c.id", pk("p1"), "400"},
		"unsupported":   {"SELECT VALUE COUNT(1) FROM c", pk("p1"), "400"},
		"other key":     {"SELECT * FROM c WHERE c.partitionKey = 'p0'", pk("p1"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int32{1, 2, 100} {
				options := &azcosmos.QueryOptions{PageSizeHint: size, QueryParameters: []azcosmos.QueryParameter{{Name: "@two", Value: 2}}}
				if got := query1(t, c, tc.query, tc.key, options); got != tc.want {
					t.Errorf("%s in pages of %d: %s, want %s", tc.query, size, got, tc.want)
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
		must.Get(c.UpsertItem(ctx, pk("p"), fmt.Appendf(nil, `{"id":%q,"partitionKey":"p","n":%d}`, id, n), nil))(t)
	}
	for i := range 9 {
		put(fmt.Sprintf("i%d", i), 10*i)
	}
	for query, want := range map[string]string{
		"SELECT * FROM c ORDER BY c.n": "i0,i1,i2,i3,i5,late,i6,i7,i8",
		"SELECT * FROM c":              "i0,i1,i2,i3,i5,i6,i7,i8,early,late",
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
			page := must.Get(pager.NextPage(ctx))(t)
			for _, item := range page.Items {
				if s := idOf(t, item); s != "i4" || n == 0 {
					got = append(got, s)
				}
			}
			if n == 0 {
				put("early", 5)
				put("late", 55)
				must.Get(c.DeleteItem(ctx, pk("p"), "i4", nil))(t)
			}
		}
		if diff := cmp.Diff(want, strings.Join(got, ",")); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
}

// TestChangeFeedContinuesAfterSplit reads changes with a client that has cached the only range when it is split.
func TestChangeFeedContinuesAfterSplit(t *testing.T) {
	_, c, h := openContainer(t, emulator.Options{EnableFaults: true})
	ctx := t.Context()
	must.Get(c.CreateItem(ctx, pk("p"), []byte(`{"id":"p","partitionKey":"p"}`), nil))(t)
	before := must.Get(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &azcosmos.FeedRange{MaxExclusive: "FF"}}))(t)
	for _, of := range []string{"0", "1"} {
		response := must.Get(http.Post(h.URL+"/_emulator/split?db=db&container=items&range="+of, "", nil))(t)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusNoContent {
			t.Fatalf("splitting range %s: %s", of, response.Status)
		}
	}
	for i := range 20 {
		key := fmt.Sprint("q", i)
		must.Get(c.CreateItem(ctx, pk(key), fmt.Appendf(nil, `{"id":%q,"partitionKey":%[1]q}`, key), nil))(t)
	}
	seen := map[string]bool{}
	token := before.ContinuationToken
	for range 20 {
		page := must.Get(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{Continuation: &token, MaxItemCount: 3}))(t)
		token = page.ContinuationToken
		for _, item := range page.Items {
			seen[idOf(t, item)] = true
		}
	}
	if len(seen) != 20 || seen["p"] {
		t.Errorf("after the split the feed has %d of 20 new items; old item repeated: %v", len(seen), seen["p"])
	}
	ranges, err := c.ReadFeedRanges(ctx, nil)
	if err != nil || len(ranges) != 3 {
		t.Fatalf("%d feed ranges, %v; want 3", len(ranges), err)
	}
	total := 0
	for _, r := range ranges {
		feed := must.Get(c.ReadChangeFeed(ctx, &azcosmos.ChangeFeedOptions{FeedRange: &r, MaxItemCount: 100}))(t)
		total += len(feed.Items)
	}
	if total != 21 {
		t.Errorf("the feeds of all ranges have %d items, want 21", total)
	}
}

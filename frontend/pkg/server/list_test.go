package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fill stores clusters without the API.
func (y *testSubscription) fill(count int) {
	y.t.Helper()
	ctx := context.Background()
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster"), y.body("cluster.json", "{}"))
	first := must.Get(y.db.Clusters().Get(ctx, database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster("cluster")}))(y.t)
	document := first.Value
	for i := 1; i < count; {
		batch := y.db.NewBatch(y.subscription)
		for ; i < count && batch.Len() < database.MaxBatchDocuments; i++ {
			document.UID = uuid.NewString()
			document.Cluster.Name = fmt.Sprintf("cluster-%05d", i)
			document.Cluster.ID = y.cluster(document.Cluster.Name)
			document.ProvisioningState, document.ActiveOperationID = hub.Succeeded, ""
			database.Create(batch, y.db.Clusters(), database.Key{SubscriptionID: y.subscription, ResourceID: document.Cluster.ID}, document)
		}
		must.Do(y.t, batch.Commit(ctx))
	}
}

// allClusters returns the URL of the list of all clusters of the subscription.
func (y *testSubscription) allClusters() string {
	return "/subscriptions/" + y.subscription + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
}

type listed struct {
	Value []struct {
		Name string `json:"name"`
	} `json:"value"`
	NextLink string `json:"nextLink"`
}

// next returns the path and query of the next page; empty on the last page.
func (l listed) next(t testing.TB) string {
	t.Helper()
	u := must.Get(url.Parse(l.NextLink))(t)
	return u.RequestURI()
}

// TestLongList: the pages of a list of 1,000 clusters contain each cluster once and in order. No page exceeds the
// limit, whatever the client requests.
func TestLongList(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	const count = 1000
	y.fill(count)
	var names []string
	pages := 0
	for target := y.allClusters() + "?$skipToken=&$top=5000"; ; pages++ {
		status, _, body := y.do(http.MethodGet, target, "")
		if status != http.StatusOK {
			t.Fatal(status, body)
		}
		page := decode[listed](t, body)
		if len(page.Value) > 100 {
			t.Fatalf("a page has %d clusters", len(page.Value))
		}
		for _, cluster := range page.Value {
			names = append(names, cluster.Name)
		}
		if page.NextLink == "" {
			break
		}
		target = page.next(t)
	}
	if len(names) != count || !slices.IsSorted(names) || len(slices.Compact(names)) != count || pages != count/100-1 {
		t.Errorf("%d clusters in %d pages, sorted %v", len(names), pages+1, slices.IsSorted(names))
	}
}

// TestListMemory: a page of a long list needs no more memory than a page of a short one. The test counts the bytes that
// are read and written, which differ only in the digits of names.
func TestListMemory(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	page := func(y *testSubscription) (read, answered int64) {
		before := y.read.Load()
		status, _, body := y.do(http.MethodGet, y.allClusters()+"?$skipToken=&$top=50", "")
		if status != http.StatusOK {
			t.Fatal(status, body)
		}
		return y.read.Load() - before, int64(len(body))
	}
	y.fill(60)
	_, _ = page(y) // the first request reads the subscription too
	shortRead, shortAnswered := page(y)
	long := y.newSubscription(t)
	long.fill(1000)
	_, _ = page(long)
	if read, answered := page(long); read > shortRead*11/10 || answered > shortAnswered*11/10 || read == 0 {
		t.Errorf("a page of 50 reads %d and writes %d bytes in a list of 60, and %d and %d in one of 1,000", shortRead, shortAnswered, read, answered)
	}
}

// FuzzListOptions: a list with any options returns a page or an error, and never more than the list contains.
func FuzzListOptions(f *testing.F) {
	y := newHarness(f).newSubscription(f)
	y.fill(5)
	_, _, body := y.do(http.MethodGet, y.allClusters()+"?$skipToken=&$top=2", "")
	token := must.Get(url.Parse(decode[listed](f, body).NextLink))(f)
	f.Add("2", token.Query().Get("$skipToken"), "")
	f.Add("+3", "", "name eq 'a'")
	f.Add("0x10", strings.Repeat("A", 9000), "")
	f.Add("9223372036854775808", "%", "\x00")
	f.Fuzz(func(t *testing.T, top, skipToken, filter string) {
		y := y.in(t)
		query := url.Values{"$top": {top}, "$skipToken": {skipToken}}
		if filter != "" {
			query.Set("$filter", filter)
		}
		status, header, body := y.do(http.MethodGet, y.allClusters()+"?"+query.Encode(), "")
		answerable(t, status, header, body)
		if status != http.StatusOK {
			return
		}
		if page := decode[listed](t, body); len(page.Value) > 5 || page.NextLink != "" && len(page.Value) == 0 {
			t.Fatalf("the page has %d values and the next link %q", len(page.Value), page.NextLink)
		}
	})
}

// BenchmarkList measures a page of 20 clusters out of 1,000 and of 10,000. Bytes and time should be the same.
func BenchmarkList(b *testing.B) {
	for _, count := range []int{1000, 10000} {
		b.Run(fmt.Sprintf("of=%d", count), func(b *testing.B) {
			y := newHarness(b).newSubscription(b)
			y.fill(count)
			b.ReportAllocs()
			for b.Loop() {
				y.mustDo(http.StatusOK, http.MethodGet, y.allClusters(), "")
			}
		})
	}
}

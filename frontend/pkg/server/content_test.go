package server_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/traffic"
)

// TestContentOfAnyBytes tests contents that a file of testdata/cases cannot contain. Rejected content does not change
// the cluster.
func TestContentOfAnyBytes(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // recorded traffic must be JSON
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	for name, tc := range map[string]struct {
		reason, content string
		status          int
		code            string
	}{
		"byte order mark":        {"a byte order mark at the start is ignored", "\uFEFF" + `{"tags":{"a":"b"}}`, 202, ""},
		"two byte order marks":   {"a second byte order mark is not JSON", "\uFEFF\uFEFF" + `{}`, 400, "InvalidRequestContent"},
		"UTF-16":                 {"JSON is UTF-8", "\xff\xfe{\x00}\x00", 400, "InvalidRequestContent"},
		"not UTF-8":              {"invalid UTF-8 in a known field is rejected", `{"tags":{"a":"` + "\xff" + `"}}`, 400, "InvalidRequestContent"},
		"not UTF-8, unknown":     {"invalid UTF-8 in an unknown field is rejected", `{"unknown":"` + "\xc3" + `"}`, 400, "InvalidRequestContent"},
		"nothing but space":      {"white space is not an object", " \r\n\t ", 400, "InvalidRequestContent"},
		"null":                   {"null is not an object", "null", 400, "InvalidResource"},
		"number":                 {"a number is not an object", "1e999999", 400, "InvalidResource"},
		"two objects":            {"content after the object is rejected", "{}{}", 400, "InvalidRequestContent"},
		"a comma at the end":     {"a trailing comma is not JSON", `{"tags":{"a":"b",}}`, 400, "InvalidRequestContent"},
		"a comment":              {"a comment is not JSON", `{"tags":{} /* a */}`, 400, "InvalidRequestContent"},
		"a text without its end": {"truncated content is rejected", `{"tags":{"a":"b`, 400, "InvalidRequestContent"},
		"deep arrays":            {"deep arrays do not exhaust the stack while parsing", strings.Repeat("[", 1<<20), 400, "InvalidRequestContent"},
		"deep objects":           {"deep objects do not exhaust the stack while merging", `{"properties":` + strings.Repeat(`{"autoscaling":`, 5000) + "1" + strings.Repeat("}", 5001), 400, "InvalidRequestContent"},
		"deeper objects":         {"the nesting depth is limited", strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000), 400, "InvalidRequestContent"},
		"deep unknown objects":   {"deep unknown objects do not exhaust the stack", strings.Repeat(`{"a":`, 5000) + "1" + strings.Repeat("}", 5000), 400, "InvalidRequestContent"},
		"a number of a megabyte": {"the message contains only a part of the value", `{"properties":{"nodeDrainTimeoutMinutes":` + strings.Repeat("9", 1<<20) + `}}`, 400, "InvalidRequestContent"},
		"many unknown fields":    {"many unknown fields are ignored", `{` + fields(100_000) + `}`, 202, ""},
	} {
		t.Run(name, func(t *testing.T) {
			y := y.in(t)
			before := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag")
			status, header, answer := y.do(http.MethodPatch, y.cluster("cluster"), tc.content)
			answerable(t, status, header, answer)
			if status != tc.status || header.Get("X-Ms-Error-Code") != tc.code || len(answer) > 64<<10 {
				t.Errorf("%s: status %d with %.1000s", tc.reason, status, answer)
			}
			after := y.mustDo(http.StatusOK, http.MethodGet, y.cluster("cluster"), "").Get("ETag")
			if changed := before != after; changed != (tc.status == http.StatusAccepted) {
				t.Errorf("status %d, and the cluster changed: %v", status, changed)
			}
			must.Do(t, y.finishOperations(context.Background()))
		})
	}
}

func fields(count int) string {
	all := make([]string, count)
	for i := range all {
		all[i] = fmt.Sprintf(`"f%d":null`, i)
	}
	return strings.Join(all, ",")
}

// TestTooLargeContentGetsResponse: a client that reads nothing before it has sent everything receives the error response.
func TestTooLargeContentGetsResponse(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // a recorder would read all of the content before the server can reject it
	h := newHarness(t)
	y := h.newSubscription(t)
	const size = 8 << 20
	for name, framing := range map[string]struct {
		header, before, after string
		// waits is set for a client that waits for 100-continue.
		waits bool
	}{
		"with a length": {header: fmt.Sprintf("Content-Length: %d", size)},
		"in chunks":     {header: "Transfer-Encoding: chunked", before: fmt.Sprintf("%x\r\n", size), after: "\r\n0\r\n\r\n"},
		"asking first":  {header: fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue", size), waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			connection := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://")))(t)
			defer func() { _ = connection.Close() }()
			send := func(text string) {
				if _, err := connection.Write([]byte(text)); err != nil {
					t.Fatalf("sending: %v", err)
				}
			}
			send("PUT " + y.cluster("cluster") + "?api-version=2026-09-01-preview HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + framing.header + "\r\n\r\n")
			if !framing.waits {
				send(framing.before + strings.Repeat(" ", size) + framing.after)
			}
			request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, h.url, nil))(t)
			response := must.Get(http.ReadResponse(bufio.NewReader(connection), request))(t)
			defer func() { _ = response.Body.Close() }()
			if response.StatusCode != http.StatusBadRequest || response.Header.Get("X-Ms-Error-Code") != "InvalidResource" {
				t.Errorf("got %s %v", response.Status, response.Header)
			}
		})
	}
}

// TestTruncatedContentIsAnInvalidResource: content that ends before its announced length gets the published code, and
// nothing is stored.
func TestTruncatedContentIsAnInvalidResource(t *testing.T) {
	t.Setenv(traffic.DirVariable, "")
	h := newHarness(t)
	y := h.newSubscription(t)
	connection := must.Get((&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://")))(t)
	defer func() { _ = connection.Close() }()
	must.Get(connection.Write([]byte("PUT " + y.cluster("cluster") + "?api-version=2026-09-01-preview HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{}")))(t)
	must.Do(t, connection.(*net.TCPConn).CloseWrite())
	response := must.Get(http.ReadResponse(bufio.NewReader(connection), nil))(t)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusBadRequest || response.Header.Get("X-Ms-Error-Code") != "InvalidResource" {
		t.Errorf("got %s %v", response.Status, response.Header)
	}
}

// TestEquivalentPaths: a trailing slash and escaped letters are equivalent to the plain path (RFC 3986 for escapes).
func TestEquivalentPaths(t *testing.T) {
	t.Setenv(traffic.DirVariable, "") // readers of recorded traffic do not support such paths
	y := newHarness(t).newSubscription(t)
	y.mustDo(http.StatusCreated, http.MethodPut, y.cluster("cluster")+"/", y.body("cluster.json", "{}"))
	for _, target := range []string{
		y.cluster("cluster"), y.cluster("cluster") + "/", y.cluster("%63l%75ster"),
		strings.Replace(y.cluster("cluster"), "Microsoft.RedHatOpenShift/h", "Microsoft%2ERedHatOpenShift/%68", 1),
		strings.Replace(y.cluster("cluster"), y.subscription, strings.ToUpper(y.subscription), 1),
	} {
		status, _, body := y.do(http.MethodGet, target, "")
		if shown := decode[hub.Resource](t, body); status != http.StatusOK || shown.ID != y.cluster("cluster") || shown.Name != "cluster" {
			t.Errorf("%s: %d %s", target, status, body)
		}
	}
}

// TestLargePages: a page of large resources ends before ARM's limit, and the next page continues after it.
func TestLargePages(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.fill(1)
	ctx := context.Background()
	first := must.Get(y.db.Clusters().Get(ctx, database.Key{SubscriptionID: y.subscription, ResourceID: y.cluster("cluster")}))(t)
	const count, most = 30, 8 << 20
	for i := range count {
		document := first.Value
		document.UID = fmt.Sprint(i)
		document.Cluster.Name = fmt.Sprintf("Cluster-%05d", i)
		document.Cluster.ID = y.cluster(document.Cluster.Name)
		document.Cluster.Tags = map[string]string{"large": strings.Repeat("x", 512<<10)}
		batch := y.db.NewBatch(y.subscription)
		database.Create(batch, y.db.Clusters(), database.Key{SubscriptionID: y.subscription, ResourceID: document.Cluster.ID}, document)
		must.Do(t, batch.Commit(ctx))
	}
	seen := map[string]int{}
	pages := 0
	for target := y.allClusters(); target != ""; pages++ {
		status, _, body := y.do(http.MethodGet, target, "")
		page := decode[listed](t, body)
		if status != http.StatusOK || len(body) > most || len(page.Value) == 0 {
			t.Fatalf("status %d with %d bytes and %d clusters", status, len(body), len(page.Value))
		}
		for _, cluster := range page.Value {
			seen[cluster.Name]++
		}
		target = ""
		if page.NextLink != "" {
			target = page.next(t)
		}
	}
	if len(seen) != count+1 || pages < 3 {
		t.Errorf("%d clusters in %d pages", len(seen), pages)
	}
	for name, times := range seen {
		if times != 1 {
			t.Errorf("%s occurs %d times", name, times)
		}
	}
}

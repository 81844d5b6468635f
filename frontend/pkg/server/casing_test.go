package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/api/armheader"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// documentedRoute is a row of docs/routes.md, which lists all routes.
type documentedRoute struct{ path, method string }

func documentedRoutes(t *testing.T) []documentedRoute {
	t.Helper()
	content := must.Get(os.ReadFile("../../docs/routes.md"))(t)
	var routes []documentedRoute
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([A-Z]+) \\|").FindAllStringSubmatch(string(content), -1) {
		routes = append(routes, documentedRoute{row[1], row[2]})
	}
	if len(routes) < 30 {
		t.Fatalf("docs/routes.md has only %d routes", len(routes))
	}
	return routes
}

// message is a request of TestRequestsHaveNoCase.
type message struct {
	method   string
	segments []string
	query    [][2]string
	headers  [][2]string
	body     map[string]any
}

// casingVariants change the case of parts of a request that have no case. Tokens, ETags and the contents of resources are not
// among them. A read has a variant for each part, a write one for all parts.
func casingVariants(of message) map[string]message {
	everything := message{method: of.method, segments: inCase(of.segments, strings.ToUpper), body: of.body}
	for _, pair := range of.query {
		everything.query = append(everything.query, [2]string{strings.ToUpper(pair[0]), strings.ToUpper(pair[1])})
	}
	for _, pair := range of.headers {
		everything.headers = append(everything.headers, [2]string{strings.ToLower(pair[0]), strings.ToUpper(pair[1])})
	}
	if of.body["location"] != nil {
		everything.body = upperNames(of.body)
	}
	if resources, ok := of.body["resources"].([]any); ok {
		resource := upperNames(resources[0].(map[string]any))
		resource["apiVersion"] = strings.ToUpper(resource["apiVersion"].(string))
		everything.body = map[string]any{"resources": []any{resource}}
	}
	lower := of
	lower.segments = inCase(of.segments, strings.ToLower)
	variants := map[string]message{"everything": everything, "the path in lower case": lower}
	if of.method != http.MethodGet {
		return variants
	}
	for at := range of.segments {
		variant := of
		variant.segments = slices.Clone(of.segments)
		variant.segments[at] = everything.segments[at]
		variants[fmt.Sprintf("segment %d", at)] = variant
	}
	query, headers := of, of
	query.query, headers.headers = everything.query, everything.headers
	variants["the query"], variants["the headers"] = query, headers
	return variants
}

func inCase(segments []string, change func(string) string) []string {
	changed := make([]string, len(segments))
	for i, segment := range segments {
		changed[i] = change(segment)
	}
	return changed
}

// upperNames returns a body with its top-level values that have no case in upper case.
func upperNames(body map[string]any) map[string]any {
	changed := map[string]any{}
	for name, value := range body {
		if text, ok := value.(string); ok && (name == "name" || name == "type" || name == "location") {
			value = strings.ToUpper(text)
		}
		changed[name] = value
	}
	return changed
}

// casingScene has resources whose names have letters in both cases. Each write needs a scene of its own; number makes its names
// unique.
type casingScene struct {
	*testSubscription
	number    int
	operation string
}

func (y *testSubscription) casingScene(number int) casingScene {
	y.t.Helper()
	s := casingScene{testSubscription: y, number: number}
	cluster := y.cluster(s.name("Demo"))
	y.createCluster(s.name("Demo"))
	for _, pool := range []string{"Pool", "Other"} {
		s.operation = lastSegment(y.mustDo(http.StatusCreated, http.MethodPut, cluster+"/nodePools/"+pool, y.body("nodepool.json", "{}"), s.caller()...).Get(armheader.AsyncOperation))
	}
	y.mustDo(http.StatusCreated, http.MethodPut, cluster+"/externalAuths/Auth", y.body("external-auth.json", "{}"))
	must.Do(y.t, y.finishOperationsOf(context.Background(), y.subscription))
	return s
}

func lastSegment(url string) string {
	url, _, _ = strings.Cut(url, "?")
	return url[strings.LastIndexByte(url, '/')+1:]
}

func (s casingScene) name(name string) string { return fmt.Sprintf("%s%03d", name, s.number) }

// caller returns the headers that identify the caller.
func (s casingScene) caller() []string {
	return []string{armheader.HomeTenantID, "aaaaaaaa-0000-4000-8000-000000000001", armheader.ClientTenantID, "aaaaaaaa-0000-4000-8000-000000000002",
		armheader.ClientObjectID, "aaaaaaaa-0000-4000-8000-000000000003"}
}

// message returns the request of a route.
func (s casingScene) message(r documentedRoute) message {
	s.t.Helper()
	path := strings.NewReplacer("{subscriptionId}", s.subscription, "{resourceGroup}", "group", "{location}", location, "{cluster}", s.name("Demo"), "{nodePool}", "Pool",
		"{externalAuth}", "Auth", "{operationId}", s.operation, "hcpOpenShiftVersions/{version}", "hcpOpenShiftVersions/4.20.8-candidate", "{version}", "4.20",
		"{deployment}", "Deployment").Replace(r.path)
	m := message{method: r.method, segments: strings.Split(path[1:], "/"), query: [][2]string{{"api-version", newestVersion}}}
	if last := m.segments[len(m.segments)-1]; r.method == http.MethodGet && (last == "hcpOpenShiftClusters" || last == "nodePools" || last == "externalAuths") {
		m.query = append(m.query, [2]string{"$skipToken", ""}, [2]string{"$top", "2"})
	}
	m.headers = [][2]string{{armheader.ClientRequestID, "123"}, {armheader.ReturnClientRequestID, "true"}, {"X-Forwarded-Proto", "https"}, {"Content-Type", "application/json; charset=utf-8"}, {"Content-Encoding", "identity"}}
	caller := s.caller()
	for i := 0; i < len(caller); i += 2 {
		m.headers = append(m.headers, [2]string{caller[i], caller[i+1]})
	}
	clusterBody := s.testSubscription.body("cluster.json", s.platformPatch(s.name("Demo")))
	switch {
	case r.method == http.MethodGet || r.method == http.MethodDelete:
		return m
	case strings.HasSuffix(path, "/preflight"):
		m.body = decode[map[string]any](s.t, s.testSubscription.body("cluster.json", s.platformPatch(s.name("planned"))))
		m.body["type"], m.body["name"], m.body["apiVersion"] = "Microsoft.RedHatOpenShift/hcpOpenShiftClusters", "planned", newestVersion
		m.body["scope"] = "/subscriptions/" + s.subscription + "/resourceGroups/group"
		m.body = map[string]any{"resources": []any{m.body}}
	case r.path == "/subscriptions/{subscriptionId}":
		m.body = map[string]any{"state": "Registered", "registrationDate": "now"}
	case strings.HasSuffix(path, "/requestAdminCredential"):
		m.body = decode[map[string]any](s.t, s.testSubscription.body("credential-request.json", "{}"))
	case strings.HasSuffix(path, "/revokeCredentials"):
		m.body = map[string]any{}
	case r.method == http.MethodPatch && !strings.Contains(path, "/externalAuths/"):
		m.body = map[string]any{"location": location, "name": m.segments[len(m.segments)-1], "tags": map[string]any{"a": "b"}}
	case r.method == http.MethodPatch:
		m.body = map[string]any{}
	case strings.Contains(path, "/nodePools/"):
		m.body = decode[map[string]any](s.t, s.testSubscription.body("nodepool.json", `{"name":"Pool","type":"Microsoft.RedHatOpenShift/hcpOpenShiftClusters/nodePools"}`))
	case strings.Contains(path, "/externalAuths/"):
		m.body = decode[map[string]any](s.t, s.testSubscription.body("external-auth.json", "{}"))
	default:
		m.body = decode[map[string]any](s.t, clusterBody)
		m.body["name"], m.body["type"] = s.name("Demo"), "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	}
	return m
}

// send sends a message over HTTP and returns the status, the headers and the body, without the values that differ between two
// scenes and between two requests.
func (s casingScene) send(m message) string {
	s.t.Helper()
	target := s.url + "/" + strings.Join(m.segments, "/")
	for i, pair := range m.query {
		target += []string{"?", "&"}[min(i, 1)] + pair[0] + "=" + pair[1]
	}
	var body io.Reader
	if m.body != nil {
		content := must.Get(json.Marshal(m.body))(s.t)
		body = strings.NewReader(string(content))
	}
	r := must.Get(http.NewRequestWithContext(s.t.Context(), m.method, target, body))(s.t)
	r.Header[armheader.IdentityURL] = []string{"https://identity.example"}
	for _, pair := range m.headers {
		r.Header[pair[0]] = []string{pair[1]}
	}
	response := must.Get(s.client.Do(r))(s.t)
	defer func() { _ = response.Body.Close() }()
	content := must.Get(io.ReadAll(response.Body))(s.t)
	lines := []string{response.Status}
	for name, values := range response.Header {
		if !slices.Contains([]string{"Date", "Content-Length", "Etag", "Traceparent"}, name) {
			lines = append(lines, name+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(lines)
	return s.comparable(strings.Join(lines, "\n") + "\n" + string(content))
}

var (
	anyUUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	anyTime = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z`)
	// anyPrefix is a domain prefix that the service generates.
	anyPrefix = regexp.MustCompile(`\bc[a-z2-7]{14}\b`)
	// anyLink is a link to the next page, which is the client's own URL.
	anyLink = regexp.MustCompile(`"nextLink":"[^"]*"`)
)

func (s casingScene) comparable(answer string) string {
	answer = strings.ReplaceAll(answer, s.subscription, "{subscription}")
	answer = strings.ReplaceAll(answer, s.name("Demo"), "{Demo}")
	answer = anyLink.ReplaceAllString(answer, "{link}")
	return anyPrefix.ReplaceAllString(anyTime.ReplaceAllString(anyUUID.ReplaceAllString(answer, "{uuid}"), "{time}"), "{prefix}")
}

// TestRequestsHaveNoCase sends each route's request with another case of each part that has no case: segments of the path, names
// and values of query parameters and headers, names in the body. Every response is the same, and so are the IDs in it.
func TestRequestsHaveNoCase(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	y := h.newSubscription(t)
	number := 0
	read := y.casingScene(number)
	// scene returns the scene of a request: reads share one.
	scene := func(method string) casingScene {
		if method == http.MethodGet {
			return read
		}
		number++
		return y.casingScene(number)
	}
	succeeded := regexp.MustCompile(`(?m)^2[0-9]{2} `)
	for _, r := range documentedRoutes(t) {
		if !strings.HasPrefix(r.path, "/subscriptions/") && !strings.HasPrefix(r.path, "/providers/") {
			continue // probes
		}
		own := scene(r.method)
		want := own.send(own.message(r))
		if !succeeded.MatchString(want) {
			t.Errorf("%s %s does not succeed: %s", r.method, r.path, want)
			continue
		}
		for name := range casingVariants(own.message(r)) {
			own := scene(r.method)
			if diff := cmp.Diff(want, own.send(casingVariants(own.message(r))[name])); diff != "" {
				t.Errorf("%s %s with other case of %s (-as documented +changed):\n%s", r.method, r.path, name, diff)
			}
		}
	}
}

// TestChildrenHaveTheIDOfTheStoredCluster creates children and requests credentials through paths whose segments have another
// casing than the stored cluster. All IDs are composed from the stored one: in responses, lists, URLs, operations (and so in
// notifications), credentials and audit records.
func TestChildrenHaveTheIDOfTheStoredCluster(t *testing.T) {
	t.Parallel()
	var audit journal
	y := newHarness(t, func(c *server.Config) { c.Audit = audit.logger() }).newSubscription(t)
	y.createCluster("demo")
	cluster := y.cluster("demo")
	other := strings.ToUpper(cluster)
	operation := func(header http.Header) {
		t.Helper()
		for _, name := range []string{armheader.AsyncOperation, "Location"} {
			if url := header.Get(name); url != "" && !strings.Contains(url, "/subscriptions/"+y.subscription+"/providers/Microsoft.RedHatOpenShift/locations/"+location+"/") {
				t.Errorf("%s is %s", name, url)
			}
		}
	}
	for _, child := range []struct{ kind, name, body string }{{"nodePools", "p1", "nodepool.json"}, {"nodePools", "p2", "nodepool.json"}, {"externalAuths", "auth", "external-auth.json"}} {
		id := cluster + "/" + child.kind + "/" + child.name
		put := func(want int, path string) {
			t.Helper()
			status, header, body := y.do(http.MethodPut, path, y.body(child.body, "{}"))
			if got := decode[struct{ ID string }](t, body).ID; status != want || got != id {
				t.Errorf("PUT %s: %d, id %s, want %d, %s", path, status, got, want, id)
			}
			operation(header)
		}
		put(http.StatusCreated, other+"/"+strings.ToUpper(child.kind)+"/"+child.name)
		status, _, body := y.do(http.MethodPut, other+"/"+child.kind+"/"+strings.ToUpper(child.name), "{}", "If-Match", `"other"`)
		if target := decode[errorAnswer](t, body).Error.Target; status != http.StatusPreconditionFailed || target != id {
			t.Errorf("the error of a PUT does not have the target %s: %d %s", id, status, body)
		}
		must.Do(t, y.finishOperations(context.Background()))
		put(http.StatusOK, other+"/"+child.kind+"/"+strings.ToUpper(child.name))
		must.Do(t, y.finishOperations(context.Background()))
		operation(y.mustDo(http.StatusAccepted, http.MethodPatch, other+"/"+child.kind+"/"+strings.ToUpper(child.name), "{}"))
		must.Do(t, y.finishOperations(context.Background()))
		status, _, body = y.do(http.MethodGet, other+"/"+child.kind, "")
		listed := decode[struct{ Value []struct{ ID string } }](t, body).Value
		if status != http.StatusOK || !slices.ContainsFunc(listed, func(v struct{ ID string }) bool { return v.ID == id }) {
			t.Errorf("the list does not have %s: %d %s", id, status, body)
		}
	}
	operation(y.mustDo(http.StatusAccepted, http.MethodPost, other+"/REQUESTADMINCREDENTIAL", y.body("credential-request.json", "{}")))
	must.Do(t, y.finishOperations(context.Background()))
	operation(y.mustDo(http.StatusAccepted, http.MethodPost, other+"/revokeCredentials", ""))
	must.Do(t, y.finishOperations(context.Background()))
	operation(y.mustDo(http.StatusAccepted, http.MethodDelete, other+"/NODEPOOLS/P1", ""))
	stored := y.documents()
	for _, operation := range stored.operations {
		if id := operation.Value.ResourceID; !strings.HasPrefix(id+"/", cluster+"/") || strings.Contains(id, "P1") {
			t.Errorf("an operation has the resource %s", id)
		}
	}
	for _, credential := range stored.credentials {
		if credential.Value.ClusterResourceID != cluster || !strings.HasPrefix(credential.Key.ResourceID, cluster+"/") {
			t.Errorf("the credential %s has the cluster %s", credential.Key.ResourceID, credential.Value.ClusterResourceID)
		}
	}
	for _, pool := range stored.nodePools {
		if pool.Key.ResourceID != pool.Value.NodePool.ID || !strings.HasPrefix(pool.Key.ResourceID, cluster+"/nodePools/") {
			t.Errorf("the store has the node pool %s with ID %s", pool.Key.ResourceID, pool.Value.NodePool.ID)
		}
	}
	records := audit.lines(t, "audit")
	if len(records) < 12 {
		t.Errorf("there are only %d audit records", len(records))
	}
	for _, record := range records {
		target, _ := record["target"].(string)
		if strings.HasPrefix(strings.ToLower(target), strings.ToLower(cluster)) && !strings.HasPrefix(target, cluster) {
			t.Errorf("an audit record has the target %s", target)
		}
	}
}

// TestConcurrentCreationsWithOtherCasing creates one node pool at once through names in different casings. One request wins, and
// the pool and its only operation have one ID.
func TestConcurrentCreationsWithOtherCasing(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("demo")
	cluster := y.cluster("demo")
	var wg sync.WaitGroup
	statuses := make([]int, 8)
	for i := range statuses {
		wg.Go(func() {
			path := cluster + "/nodePools/p1"
			if i%2 == 1 {
				path = y.cluster("DEMO") + "/NODEPOOLS/P1"
			}
			statuses[i], _, _ = y.do(http.MethodPut, path, y.body("nodepool.json", "{}"))
		})
	}
	wg.Wait()
	created := 0
	for _, status := range statuses {
		switch status {
		case http.StatusCreated:
			created++
		case http.StatusConflict:
		default:
			t.Errorf("status %d", status)
		}
	}
	pools := y.documents().nodePools
	if created != 1 || len(pools) != 1 {
		t.Fatalf("%d requests created %d node pools", created, len(pools))
	}
	id := pools[0].Value.NodePool.ID
	if id != cluster+"/nodePools/p1" && id != cluster+"/nodePools/P1" {
		t.Errorf("the node pool has the ID %s", id)
	}
	for _, operation := range y.documents().operations {
		if resource := operation.Value.ResourceID; resource != id && resource != cluster {
			t.Errorf("an operation has the resource %s, the node pool has the ID %s", resource, id)
		}
	}
}

// TestUnsupportedVersionsNameTheSupportedOnes sends each route that has api-versions a request without one, with two and with an
// unknown one.
func TestUnsupportedVersionsNameTheSupportedOnes(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	const supported = "The supported api-versions are '2024-06-10-preview, 2025-12-23-preview, 2026-06-30-preview, 2026-09-01-preview'."
	names := strings.NewReplacer("{subscriptionId}", y.subscription, "{location}", location, "{operationId}", y.subscription, "{", "", "}", "")
	refused := 0
	for _, r := range documentedRoutes(t) {
		if strings.HasSuffix(r.path, "/preflight") || r.path == "/subscriptions/{subscriptionId}" || !strings.HasPrefix(r.path, "/subscriptions/") {
			continue // routes without api-version
		}
		for _, query := range []string{"?api-version=", "?api-version=2023-01-01", "?api-version=2026-06-30-preview&api-version=2026-06-30-PREVIEW"} {
			status, _, body := y.do(r.method, names.Replace(r.path)+query, "{}")
			if e := decode[errorAnswer](t, body).Error; status != http.StatusBadRequest || e.Target != "api-version" || !strings.Contains(e.Message, supported) {
				t.Errorf("%s %s%s: %d %s", r.method, r.path, query, status, body)
			}
			refused++
		}
	}
	if refused < 60 {
		t.Errorf("only %d requests were sent", refused)
	}
}

type errorAnswer struct {
	Error struct{ Code, Message, Target string }
}

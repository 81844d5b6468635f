package frontdoor

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// provider behaves like the resource provider, as far as clusters, their asynchronous operations and subscriptions go.
type provider struct {
	*httptest.Server

	mu sync.Mutex
	// clusters by lower-case id; operations by id, with the polls that are left and what they do at their end.
	clusters      map[string]map[string]any
	operations    map[string]*pending
	subscriptions map[string]map[string]any
	seen          []*http.Request
	// preflights are the deployments that it was asked about; it refuses those with a resource at nowhere.
	preflights []map[string]any
}

type pending struct {
	polls int
	end   func()
}

func newProvider(t *testing.T, config *tls.Config) *provider {
	t.Helper()
	p := &provider{clusters: map[string]map[string]any{}, operations: map[string]*pending{}, subscriptions: map[string]map[string]any{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	// Not StartTLS, which would serve a certificate of its own.
	p.Listener = tls.NewListener(p.Listener, config)
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// last is the newest request with a method.
func (p *provider) last(t *testing.T, method string) *http.Request {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.seen) - 1; i >= 0; i-- {
		if p.seen[i].Method == method {
			return p.seen[i]
		}
	}
	t.Fatalf("the provider saw no %s", method)
	return nil
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	p.seen = append(p.seen, r)
	w.Header().Set("X-Ms-Correlation-Request-Id", r.Header.Get("X-Ms-Correlation-Request-Id"))
	w.Header().Set("X-Ms-Request-Id", "the provider's")
	// As the frontend does: what the caller sees is what Referer says.
	base := r.Header.Get("Referer")
	if i := strings.Index(strings.ToLower(base), "/subscriptions/"); i >= 0 {
		base = base[:i]
	}
	id := strings.ToLower(r.URL.Path)
	operations, isOperation := strings.CutPrefix(id[strings.LastIndex(id, "/")+1:], "operation-")
	switch {
	case isOperation:
		p.operation(w, "operation-"+operations)
	case strings.Count(id, "/") == 2: // a subscription
		var subscription map[string]any
		_ = json.Unmarshal(body, &subscription)
		p.subscriptions[id] = subscription
		reply(w, http.StatusOK, subscription)
	case p.subscriptions[strings.Join(strings.SplitN(id, "/", 4)[:3], "/")]["state"] == "Deleted":
		reply(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "InvalidSubscriptionState", "message": "it is Deleted"}})
	case strings.HasSuffix(id, "/preflight"):
		p.preflight(w, body)
	case strings.HasSuffix(id, "/hcpopenshiftclusters"):
		p.list(w, base, r, strings.TrimSuffix(id, "/providers/microsoft.redhatopenshift/hcpopenshiftclusters"))
	case strings.HasSuffix(id, "/nodepools"):
		reply(w, http.StatusOK, map[string]any{"value": []any{map[string]any{
			"id": r.URL.Path + "/workers", "name": "workers", "type": "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/nodePools",
			"location": "westus3", "properties": map[string]any{"provisioningState": "Succeeded"},
		}}})
	case r.Method == http.MethodPut:
		p.put(w, base, r, id, body)
	case p.clusters[id] == nil:
		reply(w, http.StatusNotFound, map[string]any{"error": map[string]any{"code": "ResourceNotFound", "message": "not there"}})
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", `"1"`)
		reply(w, http.StatusOK, p.clusters[id])
	case r.Method == http.MethodDelete:
		setState(p.clusters[id], "Deleting")
		p.begin(w, base, r, func() { delete(p.clusters, id) })
		w.WriteHeader(http.StatusAccepted)
	}
}

func (p *provider) preflight(w http.ResponseWriter, body []byte) {
	var deployment map[string]any
	_ = json.Unmarshal(body, &deployment)
	p.preflights = append(p.preflights, deployment)
	if strings.Contains(string(body), `"nowhere"`) {
		reply(w, http.StatusOK, map[string]any{"status": "Failed", "error": map[string]any{"code": "InvalidRequestContent", "message": "not here", "target": "location"}})
		return
	}
	reply(w, http.StatusOK, map[string]any{"status": "Succeeded"})
}

func (p *provider) put(w http.ResponseWriter, base string, r *http.Request, id string, body []byte) {
	var cluster map[string]any
	if err := json.Unmarshal(body, &cluster); err != nil {
		reply(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "InvalidRequestContent", "message": err.Error(), "target": "properties"}})
		return
	}
	cluster["id"], cluster["name"], cluster["type"] = r.URL.Path, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	setState(cluster, "Accepted")
	p.clusters[id] = cluster
	p.begin(w, base, r, func() { setState(cluster, "Succeeded") })
	reply(w, http.StatusCreated, cluster)
}

// list shows one cluster on a page.
func (p *provider) list(w http.ResponseWriter, base string, r *http.Request, scope string) {
	var found []map[string]any
	for _, id := range slices.Sorted(maps.Keys(p.clusters)) { // pages need an order that lasts
		if strings.HasPrefix(id, scope+"/") {
			found = append(found, p.clusters[id])
		}
	}
	skip := 0
	_, _ = fmt.Sscan(r.URL.Query().Get("$skipToken"), &skip)
	page := map[string]any{"value": found[min(skip, len(found)):min(skip+1, len(found))]}
	if skip+1 < len(found) {
		page["nextLink"] = fmt.Sprintf("%s%s?api-version=2026-09-01-preview&$skipToken=%d", base, r.URL.Path, skip+1)
	}
	reply(w, http.StatusOK, page)
}

func (p *provider) begin(w http.ResponseWriter, base string, r *http.Request, end func()) {
	id := fmt.Sprintf("operation-%d", len(p.operations))
	p.operations[id] = &pending{polls: 2, end: end}
	subscription := strings.Split(r.URL.Path, "/")[2]
	location := base + "/subscriptions/" + subscription + "/providers/Microsoft.RedHatOpenShift/locations/westus3/"
	w.Header().Set("Azure-AsyncOperation", location+"hcpOperationStatuses/"+id+"?api-version=2026-09-01-preview")
	if r.Method == http.MethodDelete {
		w.Header().Set("Location", location+"hcpOperationResults/"+id+"?api-version=2026-09-01-preview")
	}
}

func (p *provider) operation(w http.ResponseWriter, id string) {
	operation := p.operations[id]
	operation.polls--
	status := "Provisioning"
	if operation.polls <= 0 {
		operation.end()
		status = "Succeeded"
	}
	reply(w, http.StatusOK, map[string]any{"id": id, "name": id, "status": status})
}

func setState(cluster map[string]any, state string) {
	properties, _ := cluster["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		cluster["properties"] = properties
	}
	properties["provisioningState"] = state
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

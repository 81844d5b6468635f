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

// provider is a fake resource provider with clusters, asynchronous operations and subscriptions.
type provider struct {
	*httptest.Server

	mu sync.Mutex
	// clusters holds the clusters by lower-case ID, operations the pending operations by ID.
	clusters      map[string]map[string]any
	operations    map[string]*pendingOperation
	subscriptions map[string]map[string]any
	requests      []*http.Request
	// preflights holds the bodies of preflight requests. The provider rejects resources with the location nowhere.
	preflights []map[string]any
}

// pendingOperation completes after a number of polls.
type pendingOperation struct {
	polls    int
	complete func()
}

func newProvider(t *testing.T, config *tls.Config) *provider {
	t.Helper()
	p := &provider{clusters: map[string]map[string]any{}, operations: map[string]*pendingOperation{}, subscriptions: map[string]map[string]any{}}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
	// StartTLS would replace the certificate.
	p.Listener = tls.NewListener(p.Listener, config)
	p.Start()
	t.Cleanup(p.Close)
	return p
}

// lastRequest returns the newest request with a method.
func (p *provider) lastRequest(t *testing.T, method string) *http.Request {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := len(p.requests) - 1; i >= 0; i-- {
		if p.requests[i].Method == method {
			return p.requests[i]
		}
	}
	t.Fatalf("the provider received no %s", method)
	return nil
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	p.requests = append(p.requests, r)
	w.Header().Set("X-Ms-Correlation-Request-Id", r.Header.Get("X-Ms-Correlation-Request-Id"))
	w.Header().Set("X-Ms-Request-Id", "provider-request")
	// Like the frontend, it derives the base URL of the caller from Referer.
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
		writeJSON(w, http.StatusOK, subscription)
	case p.subscriptions[strings.Join(strings.SplitN(id, "/", 4)[:3], "/")]["state"] == "Deleted":
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "InvalidSubscriptionState", "message": "the subscription is Deleted"}})
	case strings.HasSuffix(id, "/preflight"):
		p.preflight(w, body)
	case strings.HasSuffix(id, "/hcpopenshiftclusters"):
		p.list(w, base, r, strings.TrimSuffix(id, "/providers/microsoft.redhatopenshift/hcpopenshiftclusters"))
	case strings.HasSuffix(id, "/nodepools"):
		writeJSON(w, http.StatusOK, map[string]any{"value": []any{map[string]any{
			"id": r.URL.Path + "/workers", "name": "workers", "type": "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/nodePools",
			"location": "westus3", "properties": map[string]any{"provisioningState": "Succeeded"},
		}}})
	case r.Method == http.MethodPut:
		p.put(w, base, r, id, body)
	case p.clusters[id] == nil:
		writeJSON(w, http.StatusNotFound, map[string]any{"error": map[string]any{"code": "ResourceNotFound", "message": "not found"}})
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", `"1"`)
		writeJSON(w, http.StatusOK, p.clusters[id])
	case r.Method == http.MethodDelete:
		setState(p.clusters[id], "Deleting")
		p.startOperation(w, base, r, func() { delete(p.clusters, id) })
		w.WriteHeader(http.StatusAccepted)
	}
}

func (p *provider) preflight(w http.ResponseWriter, body []byte) {
	var deployment map[string]any
	_ = json.Unmarshal(body, &deployment)
	p.preflights = append(p.preflights, deployment)
	if strings.Contains(string(body), `"nowhere"`) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "Failed", "error": map[string]any{"code": "InvalidRequestContent", "message": "invalid location", "target": "location"}})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "Succeeded"})
}

func (p *provider) put(w http.ResponseWriter, base string, r *http.Request, id string, body []byte) {
	var cluster map[string]any
	if err := json.Unmarshal(body, &cluster); err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": map[string]any{"code": "InvalidRequestContent", "message": err.Error(), "target": "properties"}})
		return
	}
	cluster["id"], cluster["name"], cluster["type"] = r.URL.Path, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:], "Microsoft.RedHatOpenShift/hcpOpenShiftClusters"
	setState(cluster, "Accepted")
	p.clusters[id] = cluster
	p.startOperation(w, base, r, func() { setState(cluster, "Succeeded") })
	writeJSON(w, http.StatusCreated, cluster)
}

// list returns a list with one cluster per page.
func (p *provider) list(w http.ResponseWriter, base string, r *http.Request, scope string) {
	var found []map[string]any
	for _, id := range slices.Sorted(maps.Keys(p.clusters)) { // a stable order for the pages
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
	writeJSON(w, http.StatusOK, page)
}

func (p *provider) startOperation(w http.ResponseWriter, base string, r *http.Request, end func()) {
	id := fmt.Sprintf("operation-%d", len(p.operations))
	p.operations[id] = &pendingOperation{polls: 2, complete: end}
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
		operation.complete()
		status = "Succeeded"
	}
	writeJSON(w, http.StatusOK, map[string]any{"id": id, "name": id, "status": status})
}

func setState(cluster map[string]any, state string) {
	properties, _ := cluster["properties"].(map[string]any)
	if properties == nil {
		properties = map[string]any{}
		cluster["properties"] = properties
	}
	properties["provisioningState"] = state
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

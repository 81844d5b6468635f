package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestMethodsOfPaths sends each path of docs/routes.md every method. One that the path does not have gets 405 with those that it has.
func TestMethodsOfPaths(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	names := strings.NewReplacer("{subscriptionId}", y.subscription, "{location}", location, "{operationId}", y.subscription, "{", "", "}", "")
	methods := map[string][]string{}
	for _, r := range documentedRoutes(t) {
		methods[r.path] = append(methods[r.path], r.method)
	}
	refused := 0
	for path, allowed := range methods {
		if slices.Contains(allowed, http.MethodGet) {
			allowed = append(allowed, http.MethodHead)
		}
		slices.Sort(allowed)
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodTrace, "PURGE"} {
			status, header, body := y.do(method, names.Replace(path), "{}")
			if slices.Contains(allowed, method) {
				if status == http.StatusMethodNotAllowed || header.Get("Allow") != "" {
					t.Errorf("%s %s: %d", method, path, status)
				}
				continue
			}
			refused++
			if got := header.Get("Allow"); status != http.StatusMethodNotAllowed || got != strings.Join(allowed, ", ") || decode[errorAnswer](t, body).Error.Code != "MethodNotAllowed" {
				t.Errorf("%s %s: %d, Allow %s, want %s: %s", method, path, status, got, allowed, body)
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d requests were refused", refused)
	}
	if header := y.mustDo(http.StatusNotFound, http.MethodPost, y.cluster("c")+"/unknown", "{}"); header.Get("Allow") != "" {
		t.Errorf("an unknown path has the methods %s", header.Get("Allow"))
	}
}

// TestListsRefuseUnsupportedOptions sends each list of docs/routes.md the query options of OData. One that the list does not support
// gets 400 and is named.
func TestListsRefuseUnsupportedOptions(t *testing.T) {
	t.Parallel()
	y := newHarness(t).newSubscription(t)
	y.createCluster("cluster")
	names := strings.NewReplacer("{subscriptionId}", y.subscription, "{resourceGroup}", "group", "{location}", location, "{cluster}", "cluster")
	lists := 0
	for _, r := range documentedRoutes(t) {
		last := r.path[strings.LastIndexByte(r.path, '/')+1:]
		if r.method != http.MethodGet || strings.HasPrefix(last, "{") || last == "healthz" || last == "readyz" {
			continue
		}
		lists++
		path := names.Replace(r.path)
		paged := !strings.Contains(path, "/locations/") && last != "operations"
		y.mustDo(http.StatusOK, http.MethodGet, path, "")
		for _, option := range []string{"$filter", "$orderby", "$skip", "$select", "$expand", "$search", "$count", "$apply", "$Filter", "$", "$top", "$skipToken"} {
			status, _, body := y.do(http.MethodGet, path+"?"+option+"=", "")
			if paged && (option == "$top" || option == "$skipToken") {
				if status != http.StatusOK {
					t.Errorf("%s does not support %s: %d %s", r.path, option, status, body)
				}
				continue
			}
			if target := decode[errorAnswer](t, body).Error.Target; status != http.StatusBadRequest || target != option {
				t.Errorf("%s with %s: %d %s", r.path, option, status, body)
			}
		}
	}
	if lists != 7 {
		t.Errorf("there are %d lists", lists)
	}
}

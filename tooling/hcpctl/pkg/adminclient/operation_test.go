package adminclient_test

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// connect returns a client of a simulated admin, which also issues the tokens.
func connect(t *testing.T, answer http.HandlerFunc) *adminclient.Client {
	t.Helper()
	return connectTo(t, func(w http.ResponseWriter, _ url.Values) {
		_, _ = w.Write([]byte(`{"access_token": "token", "expires_in": 3600}`))
	}, answer)
}

// connectTo is connect with an issuer, which gets the forms of the requests for tokens.
func connectTo(t *testing.T, issue func(http.ResponseWriter, url.Values), answer http.HandlerFunc) *adminclient.Client {
	t.Helper()
	return connectAs(t, func(*adminclient.Options) {}, issue, answer)
}

// connectAs is connectTo with other options.
func connectAs(t *testing.T, change func(*adminclient.Options), issue func(http.ResponseWriter, url.Values), answer http.HandlerFunc) *adminclient.Client {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/token") {
			if err := r.ParseForm(); err != nil {
				t.Error(err)
			}
			issue(w, r.PostForm)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"ca.crt":         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		"engineers.json": []byte(`[{"tenantId": "t", "clientId": "c", "clientSecret": "s"}]`),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	options := adminclient.Options{Endpoint: server.URL, Authority: server.URL, CAFile: filepath.Join(dir, "ca.crt"),
		CredentialsFile: filepath.Join(dir, "engineers.json"), Audience: "api://admin"}
	change(&options)
	return must.Get(adminclient.New(options))(t)
}

// TestAwaitContinuesWhileAdminIsUnreachable checks that a restart of admin is not reported as a failure of the operation, because
// the backend executes stored operations anyway.
func TestAwaitContinuesWhileAdminIsUnreachable(t *testing.T) {
	var asked atomic.Int32
	client := connect(t, func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			panic(http.ErrAbortHandler) // the connection is cut off
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			_ = json.NewEncoder(w).Encode(adminv1.Operation{ID: "o", State: adminv1.Running})
		default:
			_ = json.NewEncoder(w).Encode(adminv1.Operation{ID: "o", State: adminv1.Succeeded})
		}
	})
	operation, err := client.Await(t.Context(), &adminv1.Operation{ID: "o", State: adminv1.Accepted})
	if err != nil || operation.State != adminv1.Succeeded || asked.Load() != 4 {
		t.Errorf("asked %d times: %+v, %v", asked.Load(), operation, err)
	}
}

// TestFailedOperationNamesItsID checks that errors contain the ID of the operation, also if its state cannot be read.
func TestFailedOperationNamesItsID(t *testing.T) {
	tests := map[string]struct {
		reason string
		answer func(w http.ResponseWriter)
		want   []string
		status int
	}{
		"Failed": {"it failed, which is no answer of HTTP's", func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(adminv1.Operation{ID: "o", State: adminv1.Failed, Error: &adminv1.FailureDetail{Code: "Conflict", Message: "It is being deleted."}})
		}, []string{"operation o failed", "It is being deleted."}, 0},
		"NoReason": {"even that nobody knows why is said", func(w http.ResponseWriter) {
			_ = json.NewEncoder(w).Encode(adminv1.Operation{ID: "o", State: adminv1.Failed})
		}, []string{"operation o failed", "nobody knows why"}, 0},
		"Refused": {"no later answer would be another", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"error": {"code": "Forbidden", "message": "The role reader is needed."}}`))
		}, []string{"operation o was accepted and continues", "The role reader is needed."}, http.StatusForbidden},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			client := connect(t, func(w http.ResponseWriter, _ *http.Request) { tc.answer(w) })
			_, err := client.Await(t.Context(), &adminv1.Operation{ID: "o", State: adminv1.Running})
			var answered *adminclient.Error
			if !errors.As(err, &answered) || answered.Status != tc.status {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q lacks %q", tc.reason, err, part)
				}
			}
		})
	}
}

// TestListReadsPages checks that a limit beyond the page size is reached and not exceeded.
func TestListReadsPages(t *testing.T) {
	const all = 1203
	client := connect(t, func(w http.ResponseWriter, r *http.Request) {
		size, err := strconv.Atoi(r.URL.Query().Get("pageSize"))
		begin, _ := strconv.Atoi(r.URL.Query().Get("pageToken"))
		if err != nil || size < 1 || size > 500 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		list := adminv1.AuditList{Items: []adminv1.AuditEntry{}}
		for i := begin; i < min(begin+size, all); i++ {
			list.Items = append(list.Items, adminv1.AuditEntry{Operation: &adminv1.Operation{ID: fmt.Sprint(i)}})
		}
		if begin+size < all {
			list.NextPageToken = fmt.Sprint(begin + size)
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	for limit, want := range map[int]struct {
		items int
		more  bool
	}{1: {1, true}, 500: {500, true}, 777: {777, true}, all: {all, false}, 5000: {all, false}} {
		list, more, err := adminclient.List(t.Context(), client, adminv1.ReadAudit, nil, limit)
		if err != nil || len(list) != want.items || more != want.more || list[len(list)-1].Operation.ID != fmt.Sprint(want.items-1) {
			t.Errorf("limit %d: %d items, more: %v, %v", limit, len(list), more, err)
		}
	}
}

package emulator_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// newClientOf returns a client of the container's account.
func newClientOf(t testing.TB, c *azcosmos.ContainerClient) *azcosmos.Client {
	t.Helper()
	r := must.Get(c.Read(context.Background(), nil))(t)
	u := *r.RawResponse.Request.URL
	u.Path, u.RawPath = "", ""
	return newClient(t, u.String())
}

// send sends a request that is signed with key, or not signed if key is empty. A header "override-date" changes the date
// after signing. The signature is of the path, or of a link if there is one.
func send(t testing.TB, base, key, method, resourceType, path, body string, headers map[string]string, link ...string) *http.Response {
	t.Helper()
	req := must.Get(http.NewRequest(method, base+"/"+path, strings.NewReader(body)))(t)
	date := time.Now().UTC().Format(http.TimeFormat)
	if d := headers["x-ms-date"]; d != "" {
		date = d
	}
	if key != "" {
		req.Header.Set("Authorization", sign(t, key, method, resourceType, append(link, path)[0], date))
	}
	req.Header.Set("x-ms-date", date)
	for k, v := range headers {
		if k == "override-date" {
			k = "x-ms-date"
		}
		req.Header.Set(k, v)
	}
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer func() { _ = resp.Body.Close() }()
	data := must.Get(io.ReadAll(resp.Body))(t)
	resp.Body = io.NopCloser(bytes.NewReader(data))
	return resp
}

// sign returns the Authorization header of a request.
func sign(t testing.TB, key, method, resourceType, link, date string) string {
	t.Helper()
	raw := must.Get(base64.StdEncoding.DecodeString(key))(t)
	mac := hmac.New(sha256.New, raw)
	mac.Write([]byte(strings.ToLower(method) + "\n" + resourceType + "\n" + link + "\n" + strings.ToLower(date) + "\n\n"))
	return url.QueryEscape("type=master&ver=1.0&sig=" + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// FuzzRequest sends signed requests with arbitrary headers and bodies to an item feed. The response must never be an
// internal error of the emulator.
func FuzzRequest(f *testing.F) {
	s := must.Get(emulator.Open(emulator.Options{DataDir: f.TempDir(), Key: emulator.WellKnownKey}))(f)
	f.Cleanup(func() { _ = s.Close() })
	call := func(t testing.TB, method, resourceType, link, path, body string, headers map[string]string) *httptest.ResponseRecorder {
		req := httptest.NewRequest(method, "http://host/"+path, strings.NewReader(body))
		date := time.Now().UTC().Format(http.TimeFormat)
		req.Header.Set("x-ms-date", date)
		req.Header.Set("Authorization", sign(t, emulator.WellKnownKey, method, resourceType, link, date))
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		return w
	}
	for _, setup := range [][3]string{
		{"dbs", "", `{"id":"db"}`},
		{"colls", "dbs/db", `{"id":"c","partitionKey":{"kind":"Hash","paths":["/b/c"],"version":2},"defaultTtl":-1}`},
	} {
		if w := call(f, http.MethodPost, setup[0], setup[1], strings.TrimPrefix(setup[1]+"/"+setup[0], "/"), setup[2], nil); w.Code != http.StatusCreated {
			f.Fatalf("%d %s", w.Code, w.Body)
		}
	}
	f.Add("POST", `["y"]`, `{"id":"1","a":"x","b":{"c":"y"},"ttl":3}`, "upsert", "", "", "0:-1#1")
	f.Add("POST", `[1,{}]`, `[{"operationType":"Create","resourceBody":{"id":"1","b":{"c":1}}}]`, "batch", "", "", "")
	f.Add("POST", `["x"]`, `{"query":"SELECT * FROM c ORDER BY c.n","parameters":[{"name":"@a","value":1}]}`, "query", "hcp1.x.y", "-1", "")
	f.Add("GET", ``, ``, "feed", `"5"`, "10", "0")
	f.Add("GET", `[null,true]`, ``, "feed", `*`, "0", "a:b#c")
	f.Fuzz(func(t *testing.T, method, key, body, mode, continuation, count, session string) {
		switch method {
		case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		default:
			method = http.MethodPost
		}
		headers := map[string]string{"x-ms-documentdb-partitionkey": key, "x-ms-max-item-count": count, "x-ms-session-token": session}
		switch mode {
		case "upsert":
			headers["x-ms-documentdb-is-upsert"] = "true"
		case "batch":
			headers["x-ms-cosmos-is-batch-request"], headers["x-ms-cosmos-batch-atomic"] = "True", "True"
		case "query":
			headers["x-ms-documentdb-isquery"], headers["x-ms-continuation"] = "True", continuation
			headers["x-ms-documentdb-query-enablecrosspartition"] = "true"
		case "feed":
			headers["A-IM"], headers["If-None-Match"] = "Incremental Feed", continuation
		default:
			headers["If-Match"], headers["x-ms-documentdb-partitionkeyrangeid"] = continuation, mode
		}
		w := call(t, method, "docs", "dbs/db/colls/c", "dbs/db/colls/c/docs", body, headers)
		if w.Code >= 500 {
			t.Fatalf("%s %q %q: %d %s", method, headers, body, w.Code, w.Body)
		}
	})
}

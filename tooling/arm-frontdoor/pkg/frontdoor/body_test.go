package frontdoor

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestTruncatedBodyIsAnError sends requests over HTTP/1.1 whose bodies end before their declared length.
func TestTruncatedBodyIsAnError(t *testing.T) {
	h := newEnvironment(t)
	h.createGroup(t)
	// slow is a server that stops waiting for a body when its request begins.
	slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).SetReadDeadline(time.Now()); err != nil {
			t.Error(err)
		}
		h.frontDoor.ServeHTTP(w, r)
	}))
	t.Cleanup(slow.Close)

	group := "/subscriptions/" + subscription + "/resourcegroups/Group?api-version=2021-04-01"
	cluster := clusterID("one") + "?api-version=" + apiVersion
	complete := `{"location": "westus3"}`
	cases := map[string]struct {
		server    *httptest.Server
		path      string
		body      string
		length    int
		halfClose bool
		status    int
		code      string
	}{
		"forwarded":                  {h.server, cluster, `{"location":`, 1000, true, http.StatusBadRequest, "InvalidRequestContent"},
		"forwarded without a byte":   {h.server, cluster, "", 1000, true, http.StatusBadRequest, "InvalidRequestContent"},
		"of a resource group":        {h.server, group, `{"location":`, 1000, true, http.StatusBadRequest, "InvalidRequestContent"},
		"forwarded, incomplete":      {slow, cluster, `{"location":`, 1000, false, http.StatusRequestTimeout, "RequestTimeout"},
		"of a group, incomplete":     {slow, group, `{"location":`, 1000, false, http.StatusRequestTimeout, "RequestTimeout"},
		"complete, closed afterward": {h.server, group, complete, len(complete), true, http.StatusOK, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := must.Get(h.issuer.Issue(tenant, "client", "secret", "https://management.azure.com/.default"))(t)
			address := must.Get(url.Parse(c.server.URL))(t)
			connection := must.Get(tls.Dial("tcp", address.Host, &tls.Config{RootCAs: c.server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "127.0.0.1"}))(t)
			defer connection.Close()
			must.Get(fmt.Fprintf(connection, "PUT %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				c.path, address.Host, text, c.length, c.body))(t)
			if c.halfClose {
				must.Do(t, connection.CloseWrite())
			}
			response := must.Get(http.ReadResponse(bufio.NewReader(connection), nil))(t)
			defer response.Body.Close()
			var body struct {
				Error struct{ Code, Message string }
			}
			if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
				t.Fatalf("status %d: %v", response.StatusCode, err)
			}
			if response.StatusCode != c.status || body.Error.Code != c.code {
				t.Errorf("responded with %d %+v, want %d %s", response.StatusCode, body.Error, c.status, c.code)
			}
		})
	}
	h.provider.mu.Lock()
	defer h.provider.mu.Unlock()
	if len(h.provider.clusters) > 0 {
		t.Errorf("the provider has clusters: %v", h.provider.clusters)
	}
}

// lateBody is a body whose read error arrives only after the error handler of the proxy was called.
type lateBody struct {
	io.ReadCloser
	canceled context.Context
	released chan struct{}
}

func (b lateBody) Read([]byte) (int, error) {
	<-b.canceled.Done()
	<-b.released
	return 0, io.ErrUnexpectedEOF
}

// TestFailureOfReadInProgressIsReported checks that a response waits for a read that has canceled the request and not returned yet.
func TestFailureOfReadInProgressIsReported(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	late := lateBody{io.NopCloser(nil), ctx, make(chan struct{})}
	body := &incomingBody{ReadCloser: late}
	started := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() {
		close(started)
		_, _ = io.ReadAll(body)
	})
	<-started
	for body.reading.TryLock() { // the read has not begun
		body.reading.Unlock()
		runtime.Gosched()
	}
	cancel()
	if body.failure() != nil {
		t.Fatal("a failure is reported before the read has returned")
	}
	go close(late.released)
	body.awaitRead()
	if failure := body.failure(); failure == nil || failure.status != http.StatusBadRequest {
		t.Errorf("the failure of the read is %+v", failure)
	}
	reading.Wait()
}

package crashsweep

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// A process that counts on a server from one to three; each life reads where the one before it came to.
func TestProcessDiesAndIsReplaced(t *testing.T) {
	t.Setenv("CRASH_PAIRS", "20")
	var count atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			count.Add(1)
		}
	}))
	defer server.Close()
	p := &Process{}
	client := &http.Client{Transport: p.Transport(http.DefaultTransport)}
	var lives atomic.Int64
	want, done := atomic.Int64{}, make(chan struct{}, 1)
	p.Start(func() func() {
		lives.Add(1)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for ctx.Err() == nil {
				if count.Load() >= want.Load() {
					select {
					case done <- struct{}{}:
					case <-ctx.Done():
					}
					continue
				}
				response, err := client.Post(server.URL+"/count", "text/plain", strings.NewReader("one more"))
				if err != nil {
					<-ctx.Done()
					return
				}
				_ = response.Body.Close()
			}
		}()
		return func() { cancel(); <-ended }
	})
	defer p.End()
	Sweep(t, func(t *testing.T, d *Deaths) any {
		from, before := count.Load(), lives.Load()
		p.During(d, func() {
			want.Store(from + 3)
			for count.Load() < from+3 {
				<-done
			}
		})
		if p.Dead() {
			t.Error("nobody lives after the play")
		}
		if lived := lives.Load() - before; d.Seed() == 0 && lived != 0 || d.Seed() > 0 && d.Seed() <= 6 && lived != 1 {
			t.Errorf("seed %d: replaced %d times", d.Seed(), lived)
		}
		return count.Load() - from
	})
}

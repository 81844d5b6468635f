package probe

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestAnchorsAreChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		broken, reports := map[string]bool{}, map[string]string{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			CheckAnchors(ctx, AnchorOptions{Addresses: []string{"a:443", "b:443", "silent:443"}, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				if address == "silent:443" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				mu.Lock()
				defer mu.Unlock()
				if broken[address] {
					return nil, errors.New("refused")
				}
				conn, other := net.Pipe()
				_ = other.Close()
				return conn, nil
			}, Report: func(address, failure string) {
				mu.Lock()
				defer mu.Unlock()
				reports[address] = failure
			}})
		}()
		want := func(when, a, b string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if reports["a:443"] != a || reports["b:443"] != b || reports["silent:443"] != context.DeadlineExceeded.Error() {
				t.Errorf("%s: %v", when, reports)
			}
		}
		time.Sleep(anchorDeadline + time.Millisecond)
		want("at first", "", "")
		mu.Lock()
		broken["b:443"] = true
		mu.Unlock()
		time.Sleep(anchorInterval)
		want("one is broken", "", "refused")
		mu.Lock()
		broken["b:443"] = false
		mu.Unlock()
		time.Sleep(anchorInterval)
		want("all work", "", "")
		cancel()
		<-ended
	})
}

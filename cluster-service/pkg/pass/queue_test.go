package pass_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
)

func nothing(context.Context, int) ([]string, error) { return nil, nil }

// run runs a queue within a bubble until the test ends.
func run(t *testing.T, q *pass.Queue) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// TestVisitsOfOneClusterDoNotOverlap checks that a cluster that becomes due during its visit is visited once more afterwards.
func TestVisitsOfOneClusterDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		visits, at := 0, 0
		goOn := make(chan struct{})
		q := pass.NewQueue(pass.QueueOptions{Of: "tests", Workers: 3, Acquire: nothing, Visit: func(context.Context, string) error {
			mu.Lock()
			visits++
			at++
			if at > 1 {
				t.Error("two visits at once")
			}
			mu.Unlock()
			<-goOn
			mu.Lock()
			at--
			mu.Unlock()
			return nil
		}})
		run(t, q)
		q.Add([]string{"a", "a"})
		synctest.Wait()
		// The cluster becomes due several times during the first visit.
		for range 3 {
			q.Add([]string{"a"})
			synctest.Wait()
		}
		for range 2 {
			goOn <- struct{}{}
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if visits != 2 || at != 0 {
			t.Errorf("%d visits, %d of them running; want the first, and one for all additions during it", visits, at)
		}
	})
}

// TestDatabaseIsScanned checks that scans find clusters that were not added, continue after a failure, and run earlier on request.
func TestDatabaseIsScanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var scans []time.Duration
		visited := make(chan string, 8)
		q := pass.NewQueue(pass.QueueOptions{Of: "tests", Workers: 1,
			Acquire: func(context.Context, int) ([]string, error) {
				scans = append(scans, time.Since(begun))
				switch len(scans) {
				case 2:
					return nil, errors.New("the database is unavailable")
				case 3:
					return []string{"found"}, nil
				}
				return nil, nil
			},
			Visit: func(_ context.Context, uid string) error { visited <- uid; return nil }})
		run(t, q)
		if uid := <-visited; uid != "found" {
			t.Errorf("visited %s", uid)
		}
		q.ScanIn(time.Hour)
		q.ScanIn(500 * time.Millisecond)
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		want := []time.Duration{0, 2 * time.Second, 4 * time.Second, 4500 * time.Millisecond}
		if !slices.Equal(scans, want) {
			t.Errorf("scanned at %v, want %v", scans, want)
		}
	})
}

// TestFrequentRequestsDoNotPostponeScans: each failure of a publish requests a scan, and with enough of them there is
// always another request before the time of the scan.
func TestFrequentRequestsDoNotPostponeScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		scans := 0
		q := pass.NewQueue(pass.QueueOptions{Of: "tests", Workers: 1, Visit: func(context.Context, string) error { return nil },
			Acquire: func(context.Context, int) ([]string, error) { scans++; return nil, nil }})
		run(t, q)
		for range 60 {
			q.ScanIn(1500 * time.Millisecond)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		// Every one and a half seconds or two, depending on the last request.
		if scans < 30 {
			t.Errorf("scanned %d times within a minute", scans)
		}
	})
}

// TestOverflowIsCounted checks that the queue counts additions above its capacity. These remain due in the database.
func TestOverflowIsCounted(t *testing.T) {
	over := 0
	q := pass.NewQueue(pass.QueueOptions{Of: "tests", Workers: 1, Acquire: nothing, Overflowed: func() { over++ }})
	uids := make([]string, 5000)
	for i := range uids {
		uids[i] = string(rune(i + 1))
	}
	q.Add(uids)
	if over != 5000-4096 {
		t.Errorf("%d overflowed", over)
	}
}

package server

import (
	"strconv"
	"sync"
	"testing"
)

func TestMemoIsBounded(t *testing.T) {
	t.Parallel()
	var m memo[int, string]
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for key := range maxRemembered + 100 {
				if got := m.get(key, func() string { return strconv.Itoa(key) }); got != strconv.Itoa(key) {
					t.Errorf("the result for %d is %q", key, got)
				}
			}
		})
	}
	group.Wait()
	if len(m.results) != maxRemembered {
		t.Errorf("%d results are remembered", len(m.results))
	}
	if got := m.get(1, func() string { return "computed again" }); got != "1" {
		t.Errorf("a known result is %s", got)
	}
	if got := m.get(-1, func() string { return "computed" }); got != "computed" {
		t.Errorf("a result beyond the limit is %s", got)
	}
}

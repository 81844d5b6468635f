package server

import (
	"fmt"
	"testing"
)

// TestResponseCacheIsBounded: the cache keeps its size limit and the newest response.
func TestResponseCacheIsBounded(t *testing.T) {
	s := newResponseCache()
	for i := range 200 {
		key := responseKey{"type", fmt.Sprint(i % 150), "version"}
		s.put(key, cachedResponse{fmt.Sprint(i), "/id", make([]byte, responseCacheBytes/100)})
		if got := s.get(key); got.etag != fmt.Sprint(i) {
			t.Fatalf("%q is the newest response, want %d", got.etag, i)
		}
		size := 0
		for key, of := range s.responses {
			size += weight(key, of)
		}
		if size != s.size || size > responseCacheBytes {
			t.Fatalf("after %d the size is %d, recorded as %d, limit %d", i, size, s.size, responseCacheBytes)
		}
	}
	for key := range s.responses {
		s.forget(key)
	}
	if s.size != 0 {
		t.Errorf("the empty cache has size %d", s.size)
	}
}

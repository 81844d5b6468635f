package server

import "sync"

// responseCacheBytes bounds the size of a responseCache.
const responseCacheBytes = 16 << 20

// responseCache stores the last encoded response of resources. A GET still reads from the store, with the condition
// that the ETag has changed. Most resources have not changed; then the store sends no document, and nothing is decoded
// and encoded.
type responseCache struct {
	mu        sync.Mutex
	responses map[responseKey]cachedResponse
	size      int
}

// responseKey identifies a resource, by its type and lower-case ID, at an api-version.
type responseKey struct{ resourceType, id, version string }

// cachedResponse is an encoded response with the ETag and the ID of its resource. content is immutable. The zero value stands for
// no response.
type cachedResponse struct {
	etag    string
	id      string
	content []byte
}

func newResponseCache() *responseCache {
	return &responseCache{responses: map[responseKey]cachedResponse{}}
}

func (s *responseCache) get(key responseKey) cachedResponse {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.responses[key]
}

// put stores a response. It removes arbitrary other responses if the cache is full.
func (s *responseCache) put(key responseKey, now cachedResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
	for other := range s.responses {
		if s.size+weight(key, now) <= responseCacheBytes {
			break
		}
		s.drop(other)
	}
	s.responses[key] = now
	s.size += weight(key, now)
}

func (s *responseCache) forget(key responseKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
}

func (s *responseCache) drop(key responseKey) {
	if known, ok := s.responses[key]; ok {
		s.size -= weight(key, known)
		delete(s.responses, key)
	}
}

// weight returns the approximate memory of an entry in bytes.
func weight(key responseKey, of cachedResponse) int {
	return 256 + len(key.id) + len(of.etag) + len(of.id) + len(of.content)
}

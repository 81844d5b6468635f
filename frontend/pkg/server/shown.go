package server

import "sync"

// shownBytes bounds what is remembered of resources that were shown.
const shownBytes = 16 << 20

// shownResources remembers resources as they were shown last. The store is asked about every read all the same, but only
// whether the resource has changed since: most have not, and are then not sent, decoded and encoded again.
type shownResources struct {
	mu    sync.Mutex
	known map[shownKey]shown
	size  int
}

// shownKey is a resource, by its type and its id in lower case, as an api-version has it.
type shownKey struct{ resourceType, id, version string }

// shown is the content of an answer, which nobody changes, and the ETag of what it shows; the zero value is none.
type shown struct {
	etag    string
	content []byte
}

func newShownResources() *shownResources { return &shownResources{known: map[shownKey]shown{}} }

func (s *shownResources) get(key shownKey) shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[key]
}

// put remembers what was shown; when that is too much, others are forgotten, whichever.
func (s *shownResources) put(key shownKey, now shown) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
	for other := range s.known {
		if s.size+weight(key, now) <= shownBytes {
			break
		}
		s.drop(other)
	}
	s.known[key] = now
	s.size += weight(key, now)
}

func (s *shownResources) forget(key shownKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(key)
}

func (s *shownResources) drop(key shownKey) {
	if known, ok := s.known[key]; ok {
		s.size -= weight(key, known)
		delete(s.known, key)
	}
}

// weight is about what an entry takes.
func weight(key shownKey, of shown) int { return 256 + len(key.id) + len(of.etag) + len(of.content) }

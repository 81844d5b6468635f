package server

import "sync"

// maxRemembered is the number of results that a memo remembers. It computes further ones each time.
const maxRemembered = 4096

// memo remembers the results of a function. The zero memo is empty. It is safe for concurrent use.
type memo[K comparable, V any] struct {
	mu      sync.RWMutex
	results map[K]V
}

// get returns the result for a key, which it computes if it does not know it.
func (m *memo[K, V]) get(key K, compute func() V) V {
	m.mu.RLock()
	result, known := m.results[key]
	m.mu.RUnlock()
	if known {
		return result
	}
	result = compute()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.results == nil {
		m.results = map[K]V{}
	}
	if len(m.results) < maxRemembered {
		m.results[key] = result
	}
	return result
}

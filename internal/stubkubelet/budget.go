package stubkubelet

import "sync"

// budget is a bounded number of bytes that several owners share.
type budget struct {
	mu          sync.Mutex
	used, limit int64
}

// take takes n bytes, or returns false if they are not left. A negative n gives bytes back.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.used+n > b.limit {
		return false
	}
	b.used += n
	return true
}

package supervisor

import "time"

// backoff says how long to wait before a process that died is started again: twice as long each time up to lastDelay,
// and from the beginning for one that ran for stableAfter.
type backoff struct {
	next time.Duration
}

// after is the wait after a life of ran.
func (b *backoff) after(ran time.Duration) time.Duration {
	if ran >= stableAfter || b.next == 0 {
		b.next = firstDelay
	}
	delay := b.next
	b.next = min(2*b.next, lastDelay)
	return delay
}

func (b *backoff) reset() { b.next = 0 }

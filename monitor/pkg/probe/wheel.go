package probe

import (
	"hash/fnv"
	"time"
)

// Wheel holds at most one time for each key, and returns the keys that are due. It is a hashed timing wheel: to schedule, to
// cancel and to take a due key cost the same for ten keys and for ten thousand, and a tick without due keys does no work for
// any key. Times are rounded up to slots. It is not safe for concurrent use.
type Wheel[K comparable] struct {
	width time.Duration
	slots []*wheelEntry[K]
	keys  map[K]*wheelEntry[K]
	// next is the number of the first slot that Advance has not emptied, counted from the Unix epoch.
	next int64
}

// wheelEntry is a key in the doubly linked list of its slot. Two slots share a list if their numbers differ by a multiple of
// the number of lists.
type wheelEntry[K comparable] struct {
	key            K
	slot           int64
	previous, next *wheelEntry[K]
}

// NewWheel returns an empty Wheel. width is the resolution of its times and slots the number of its lists, both greater than
// 0. A key whose time is more than width × slots ahead is visited once in each such period and remains scheduled.
func NewWheel[K comparable](width time.Duration, slots int, now time.Time) *Wheel[K] {
	w := &Wheel[K]{width: width, slots: make([]*wheelEntry[K], slots), keys: map[K]*wheelEntry[K]{}}
	w.next = w.slotOf(now)
	return w
}

// Len returns the number of scheduled keys.
func (w *Wheel[K]) Len() int { return len(w.keys) }

// Schedule makes a key due at a time, in place of an earlier time of the key. A time in the past is due at the next call of
// Advance.
func (w *Wheel[K]) Schedule(key K, at time.Time) {
	w.Cancel(key)
	e := &wheelEntry[K]{key: key, slot: max(w.slotOf(at), w.next)}
	w.keys[key] = e
	head := w.list(e.slot)
	if e.next = *head; e.next != nil {
		e.next.previous = e
	}
	*head = e
}

// Cancel removes a key. It does nothing if the key is not scheduled.
func (w *Wheel[K]) Cancel(key K) {
	e := w.keys[key]
	if e == nil {
		return
	}
	delete(w.keys, key)
	if e.next != nil {
		e.next.previous = e.previous
	}
	if e.previous != nil {
		e.previous.next = e.next
		return
	}
	*w.list(e.slot) = e.next
}

// Advance removes and returns the keys that are due at now, in no particular order. It visits each list at most once, also
// after a long pause. If now is before the time of an earlier call, nothing is due.
func (w *Wheel[K]) Advance(now time.Time) []K {
	end := floor(now, w.width)
	var due []K
	for slot := w.next; slot <= end && slot-w.next < int64(len(w.slots)); slot++ {
		for e := *w.list(slot); e != nil; {
			following := e.next
			if e.slot <= end {
				due = append(due, e.key)
				w.Cancel(e.key)
			}
			e = following
		}
	}
	w.next = max(w.next, end+1)
	return due
}

// slotOf returns the number of the first slot that does not begin before a time.
func (w *Wheel[K]) slotOf(at time.Time) int64 {
	return floor(at.Add(w.width-1), w.width)
}

// floor returns the number of the slot in which a time is. Times before 1970 are not supported.
func floor(at time.Time, width time.Duration) int64 { return at.UnixNano() / int64(width) }

func (w *Wheel[K]) list(slot int64) **wheelEntry[K] {
	return &w.slots[slot%int64(len(w.slots))]
}

// NextTime returns the first time after a time that is in the key's phase of the interval. The phases of many keys are
// spread evenly over the interval. A phase follows from the key alone: all replicas and all restarts of a process use the
// same phases, so that a takeover causes no burst.
func NextTime(key string, interval time.Duration, after time.Time) time.Time {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(key))
	// The last step of FNV leaves neighbouring keys close to each other, so the bits are mixed once more.
	mixed := hash.Sum64()
	mixed ^= mixed >> 33
	mixed *= 0xff51afd7ed558ccd
	mixed ^= mixed >> 33
	phase := time.Duration(mixed % uint64(interval))
	elapsed := time.Duration(after.UnixNano() % int64(interval))
	wait := phase - elapsed
	if wait <= 0 {
		wait += interval
	}
	return after.Add(wait)
}

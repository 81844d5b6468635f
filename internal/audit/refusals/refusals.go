// Package refusals stores audit records of refused calls, and bounds their number: a caller that repeats a refused call must not fill
// the disk. The first refusal of a kind in a window has a record at once. Those that follow in the window are counted and have one record
// together. A kind is the caller, the action and the code. The number of kinds is limited for each caller, so that a caller with many kinds
// does not hide the refusals of another.
package refusals

import (
	"context"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

const (
	// Window is the time for which refusals are counted.
	Window = time.Minute
	// maxKinds is the maximum number of kinds of a caller in a window. Callers choose the paths of HTTP requests, so that kinds are not
	// bounded otherwise. Further ones of the caller are counted together.
	maxKinds = 128
	// OtherAction is the action of the record of refusals that are counted together.
	OtherAction = "other"
	// appendTimeout limits the wait for the disk.
	appendTimeout = 5 * time.Second
)

// caller is a workload, an engineer, or a workload that an engineer asked for the call. Servers authenticate both, so that their number is
// bounded.
type caller struct{ peer, person, objectID string }

// kind identifies refusals that are counted together.
type kind struct {
	caller
	action, code string
}

// repeats is the last refusal of a kind, and the number of refusals without a record.
type repeats struct {
	record audit.Record
	count  int
}

// Aggregator stores records of refusals. It is safe for concurrent use.
type Aggregator struct {
	records audit.Recorder

	mu    sync.Mutex
	kinds map[kind]*repeats
	// recorded is the number of kinds of each caller, without OtherAction.
	recorded map[caller]int
}

// New returns an Aggregator that stores its records with a Recorder. Run must be called.
func New(records audit.Recorder) *Aggregator {
	return &Aggregator{records: records, kinds: map[kind]*repeats{}, recorded: map[caller]int{}}
}

// Refused stores the record of a refusal, or counts it. A record that cannot be stored is counted and stored at the end of the window.
func (a *Aggregator) Refused(ctx context.Context, r audit.Record) {
	of, first := a.find(r)
	if !first {
		return
	}
	// A client that closes its connection must not prevent the record.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	if a.records.Append(ctx, r) == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.kinds[of]; known != nil {
		known.count++
	} else {
		a.kinds[of] = &repeats{r, 1}
	}
}

// find counts a refusal of a known kind, or adds its kind and reports that it is the first one.
func (a *Aggregator) find(r audit.Record) (of kind, first bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of = kind{caller{r.Peer, r.Person.Name, r.Person.ObjectID}, r.Action, r.Code}
	known := a.kinds[of]
	if known == nil && a.recorded[of.caller] < maxKinds {
		a.kinds[of] = &repeats{record: r}
		a.recorded[of.caller]++
		return of, true
	}
	if known == nil {
		of.action, of.code = OtherAction, ""
		r.Action, r.Code = OtherAction, ""
		if known = a.kinds[of]; known == nil {
			known = &repeats{}
			a.kinds[of] = known
		}
	}
	known.record = r
	known.count++
	return of, false
}

// Run stores the counts at the end of each window, until ctx ends. Then it stores the last ones.
func (a *Aggregator) Run(ctx context.Context) {
	ticker := time.NewTicker(Window)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.flush(ctx)
		case <-ctx.Done():
			a.flush(context.WithoutCancel(ctx))
			return
		}
	}
}

// flush ends a window. Counts that cannot be stored are part of the next one.
func (a *Aggregator) flush(ctx context.Context) {
	a.mu.Lock()
	ended := a.kinds
	a.kinds, a.recorded = map[kind]*repeats{}, map[caller]int{}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	for of, counted := range ended {
		if counted.count == 0 {
			continue
		}
		r := counted.record
		r.Count = counted.count
		if a.records.Append(ctx, r) == nil {
			continue
		}
		a.mu.Lock()
		if known := a.kinds[of]; known != nil {
			known.count += counted.count
		} else {
			a.kinds[of] = counted
		}
		a.mu.Unlock()
	}
}

package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// callTimeout bounds one call of Cluster Service.
const callTimeout = 10 * time.Second

// Concern is why somebody has to decide.
type Concern string

// The concerns.
const (
	// Orphan: the fleet holds what Cosmos DB does not, and nothing proves that it was deleted.
	Orphan Concern = "Orphan"
	// Newer: the fleet holds a newer generation than Cosmos DB.
	Newer Concern = "Newer"
	// Ended: Cosmos DB has a cluster of which the fleet knows nothing, and whose billing has ended.
	Ended Concern = "Ended"
	// Refused: Cluster Service refuses what it had accepted.
	Refused Concern = "Refused"
	// Unsent: it would have been sent again, but nothing is to be sent before an SRE asks for it.
	Unsent Concern = "Unsent"
)

var concerns = []Concern{Orphan, Newer, Ended, Refused, Unsent}

// Result is what came of a comparison.
type Result struct {
	// Promised and Held are how many resources Cosmos DB and the fleet have.
	Promised, Held int
	// Applied and Deleted are how many were sent again.
	Applied, Deleted int
	Concerns         map[Concern]int
}

func (r *Result) nothing() bool { return r.Applied == 0 && r.Deleted == 0 && len(r.Concerns) == 0 }

// mending is one comparison's.
type mending struct {
	r    *Reconciler
	mend bool
	work chan []reconciliation.Drift

	mu       sync.Mutex
	result   Result
	failures int
	failure  error
}

// cluster deals with what differs of a cluster and of what belongs to it.
func (m *mending) cluster(ctx context.Context, findings []reconciliation.Drift) {
	for _, f := range findings {
		if ctx.Err() != nil {
			return
		}
		undecided, err := m.one(ctx, f)
		if err != nil {
			m.mu.Lock()
			m.failures++
			m.failure = fmt.Errorf("%s: %w", f.Key.ResourceID, err)
			m.mu.Unlock()
		}
		if (undecided || err != nil) && f.Kind == database.ClusterKind && f.Type != reconciliation.Newer && f.Type != reconciliation.Orphan {
			// What belongs to it can only be where it is.
			return
		}
	}
}

// one deals with one difference, and says whether somebody has to decide on it.
func (m *mending) one(ctx context.Context, f reconciliation.Drift) (undecided bool, err error) {
	switch f.Type {
	case reconciliation.Newer:
		m.concern(ctx, Newer, f, nil)
		return true, nil
	case reconciliation.Orphan:
		return m.orphan(ctx, f)
	}
	if !m.mend {
		m.concern(ctx, Unsent, f, nil)
		return true, nil
	}
	did, err := m.r.controller.Resend(ctx, f.Kind, f.Key, f.UID, f.ClusterUID)
	switch did {
	case lifecycle.Applied:
		m.count(func(r *Result) { r.Applied++ })
	case lifecycle.Deleted:
		m.count(func(r *Result) { r.Deleted++ })
	case lifecycle.Refused:
		m.concern(ctx, Refused, f, err)
		return true, nil
	case lifecycle.Ended:
		m.concern(ctx, Ended, f, err)
		return true, nil
	}
	return false, err
}

// orphan has deleted what was deleted, and nothing else.
func (m *mending) orphan(ctx context.Context, f reconciliation.Drift) (undecided bool, err error) {
	db := m.r.db
	there, err := reconciliation.Exists(ctx, db, f)
	if err != nil || there {
		return false, err // made meanwhile, if it is there
	}
	proof, err := db.FindDeletionProof(ctx, f.Kind, f.Key, f.UID, f.ClusterUID)
	switch {
	case err != nil:
		return false, err
	case proof == "":
		m.concern(ctx, Orphan, f, nil)
		return true, nil
	case !m.mend:
		m.concern(ctx, Unsent, f, nil)
		return true, nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := reconciliation.DeleteFromFleet(callCtx, m.r.rpc, f.Kind, f.Key.ResourceID, f.UID, f.ClusterUID); err != nil {
		return false, fmt.Errorf("deleting what Cluster Service had deleted: %w", err)
	}
	m.r.controller.CountDeleted(f.Kind)
	m.count(func(r *Result) { r.Deleted++ })
	m.r.log.WarnContext(ctx, "Cluster Service had lost a deletion, and was told again", "resourceId", f.Key.ResourceID, "uid", f.UID, "proof", proof)
	return false, nil
}

func (m *mending) count(add func(*Result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.result)
}

func (m *mending) concern(ctx context.Context, concern Concern, f reconciliation.Drift, cause error) {
	m.count(func(r *Result) { r.Concerns[concern]++ })
	m.r.log.WarnContext(ctx, "Cosmos DB and Cluster Service disagree, and somebody has to decide", "concern", string(concern), "difference", string(f.Type),
		"kind", string(f.Kind), "resourceId", f.Key.ResourceID, "uid", f.UID, "promised", f.AcceptedGeneration, "held", f.FleetGeneration, "error", cause)
}

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

// Finding is why somebody has to decide.
type Finding string

// The concerns.
const (
	// Orphan: the fleet holds what Cosmos DB does not, and nothing proves that it was deleted.
	Orphan Finding = "Orphan"
	// Newer: the fleet holds a newer generation than Cosmos DB.
	Newer Finding = "Newer"
	// Ended: Cosmos DB has a cluster of which the fleet knows nothing, and whose billing has ended.
	Deleted Finding = "Ended"
	// Refused: Cluster Service refuses what it had accepted.
	Refused Finding = "Refused"
	// Unsent: it would have been sent again, but nothing is to be sent before an SRE asks for it.
	ReportOnly Finding = "Unsent"
)

var findingTypes = []Finding{Orphan, Newer, Deleted, Refused, ReportOnly}

// Result is what came of a comparison.
type Result struct {
	// Desired and Held are how many resources Cosmos DB and the fleet have.
	Desired, Fleet int
	// Applied and Deleted are how many were sent again.
	Applied, Deleted int
	Findings         map[Finding]int
}

func (r *Result) empty() bool { return r.Applied == 0 && r.Deleted == 0 && len(r.Findings) == 0 }

// repair is one comparison's.
type repair struct {
	r       *Reconciler
	enabled bool
	work    chan []reconciliation.Drift

	mu       sync.Mutex
	result   Result
	failures int
	failure  error
}

// repairCluster deals with what differs of a cluster and of what belongs to it.
func (m *repair) repairCluster(ctx context.Context, findings []reconciliation.Drift) {
	for _, f := range findings {
		if ctx.Err() != nil {
			return
		}
		undecided, err := m.repairOne(ctx, f)
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

// repairOne deals with one difference, and says whether somebody has to decide on it.
func (m *repair) repairOne(ctx context.Context, f reconciliation.Drift) (undecided bool, err error) {
	switch f.Type {
	case reconciliation.Newer:
		m.report(ctx, Newer, f, nil)
		return true, nil
	case reconciliation.Orphan:
		return m.repairOrphan(ctx, f)
	}
	if !m.enabled {
		m.report(ctx, ReportOnly, f, nil)
		return true, nil
	}
	did, err := m.r.controller.Resend(ctx, f.Kind, f.Key, f.UID, f.ClusterUID)
	switch did {
	case lifecycle.Applied:
		m.count(func(r *Result) { r.Applied++ })
	case lifecycle.Deleted:
		m.count(func(r *Result) { r.Deleted++ })
	case lifecycle.Refused:
		m.report(ctx, Refused, f, err)
		return true, nil
	case lifecycle.AlreadyDeleted:
		m.report(ctx, Deleted, f, err)
		return true, nil
	}
	return false, err
}

// repairOrphan has deleted what was deleted, and nothing else.
func (m *repair) repairOrphan(ctx context.Context, f reconciliation.Drift) (undecided bool, err error) {
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
		m.report(ctx, Orphan, f, nil)
		return true, nil
	case !m.enabled:
		m.report(ctx, ReportOnly, f, nil)
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

func (m *repair) count(add func(*Result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.result)
}

func (m *repair) report(ctx context.Context, concern Finding, f reconciliation.Drift, cause error) {
	m.count(func(r *Result) { r.Findings[concern]++ })
	m.r.log.WarnContext(ctx, "Cosmos DB and Cluster Service disagree, and somebody has to decide", "concern", string(concern), "difference", string(f.Type),
		"kind", string(f.Kind), "resourceId", f.Key.ResourceID, "uid", f.UID, "promised", f.AcceptedGeneration, "held", f.FleetGeneration, "error", cause)
}

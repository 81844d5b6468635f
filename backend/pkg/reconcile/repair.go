package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/backend/pkg/lifecycle"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// callTimeout bounds one call of Cluster Service.
const callTimeout = 10 * time.Second

// Finding is the reason why drift needs a decision of an operator.
type Finding string

// The findings.
const (
	// Orphan: the fleet has a resource that Cosmos DB does not have, and there is no proof of its deletion.
	Orphan Finding = "Orphan"
	// Newer: the fleet has a newer generation than Cosmos DB.
	Newer Finding = "Newer"
	// Deleted: Cosmos DB has a cluster that the fleet does not have, and there is a proof of its deletion.
	Deleted Finding = "Deleted"
	// Refused: Cluster Service rejects the state that it had accepted.
	Refused Finding = "Refused"
	// ReportOnly: the state was not sent again, because Options.ReportOnly is set.
	ReportOnly Finding = "ReportOnly"
)

var findingTypes = []Finding{Orphan, Newer, Deleted, Refused, ReportOnly}

// Result is the result of a comparison.
type Result struct {
	// Desired and Fleet are the numbers of resources in Cosmos DB and in the fleet.
	Desired, Fleet int
	// Applied and Deleted are the numbers of requests that were repeated.
	Applied, Deleted int
	Findings         map[Finding]int
}

func (r *Result) empty() bool { return r.Applied == 0 && r.Deleted == 0 && len(r.Findings) == 0 }

// repair is the repair of the drift of one comparison.
type repair struct {
	r       *Reconciler
	enabled bool
	work    chan []reconciliation.Drift

	mu       sync.Mutex
	result   Result
	failures int
	failure  error
}

// repairCluster repairs a cluster and then its children.
func (m *repair) repairCluster(ctx context.Context, drifts []reconciliation.Drift) {
	for _, drift := range drifts {
		if ctx.Err() != nil {
			return
		}
		undecided, err := m.repairOne(ctx, drift)
		if err != nil {
			m.mu.Lock()
			m.failures++
			m.failure = fmt.Errorf("%s: %w", drift.Key.ResourceID, err)
			m.mu.Unlock()
		}
		if (undecided || err != nil) && drift.Kind == database.ClusterKind && drift.Type != reconciliation.Newer && drift.Type != reconciliation.Orphan {
			// The children need the cluster.
			return
		}
	}
}

// repairOne repairs one resource. undecided is set if it became a finding.
func (m *repair) repairOne(ctx context.Context, drift reconciliation.Drift) (undecided bool, err error) {
	switch drift.Type {
	case reconciliation.Newer:
		m.report(ctx, Newer, drift, nil)
		return true, nil
	case reconciliation.Orphan:
		return m.repairOrphan(ctx, drift)
	}
	if !m.enabled {
		m.report(ctx, ReportOnly, drift, nil)
		return true, nil
	}
	result, err := m.r.lifecycles.Resend(ctx, drift.Kind, drift.Key, drift.UID, drift.ClusterUID)
	switch result {
	case lifecycle.Applied:
		m.count(func(r *Result) { r.Applied++ })
	case lifecycle.Deleted:
		m.count(func(r *Result) { r.Deleted++ })
	case lifecycle.Refused:
		m.report(ctx, Refused, drift, err)
		return true, nil
	case lifecycle.AlreadyDeleted:
		m.report(ctx, Deleted, drift, err)
		return true, nil
	}
	return false, err
}

// repairOrphan deletes an orphan whose deletion is proven. It never deletes anything else.
func (m *repair) repairOrphan(ctx context.Context, drift reconciliation.Drift) (undecided bool, err error) {
	db := m.r.db
	exists, err := reconciliation.Exists(ctx, db, drift)
	if err != nil || exists {
		return false, err // the resource was created meanwhile
	}
	proof, err := db.FindDeletionProof(ctx, drift.Kind, drift.Key, drift.UID, drift.ClusterUID)
	switch {
	case err != nil:
		return false, err
	case proof == "":
		m.report(ctx, Orphan, drift, nil)
		return true, nil
	case !m.enabled:
		m.report(ctx, ReportOnly, drift, nil)
		return true, nil
	}
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := reconciliation.DeleteFromFleet(callCtx, m.r.rpc, drift.Kind, drift.Key.ResourceID, drift.UID, drift.ClusterUID); err != nil {
		return false, fmt.Errorf("deleting a deleted resource again: %w", err)
	}
	m.r.lifecycles.CountDeleted(drift.Kind)
	m.count(func(r *Result) { r.Deleted++ })
	m.r.log.WarnContext(ctx, "sent a lost deletion to Cluster Service again", logkey.ResourceID, drift.Key.ResourceID, logkey.UID, drift.UID, logkey.Reason, proof)
	return false, nil
}

func (m *repair) count(add func(*Result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.result)
}

func (m *repair) report(ctx context.Context, finding Finding, drift reconciliation.Drift, cause error) {
	m.count(func(r *Result) { r.Findings[finding]++ })
	m.r.log.WarnContext(ctx, "found drift that needs an operator", logkey.Reason, string(finding), logkey.Type, string(drift.Type),
		logkey.Kind, string(drift.Kind), logkey.ResourceID, drift.Key.ResourceID, logkey.UID, drift.UID, logkey.AcceptedGeneration, drift.AcceptedGeneration, logkey.FleetGeneration, drift.FleetGeneration, logkey.Error, cause)
}

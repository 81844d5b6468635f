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
			// The children need the cluster.
			return
		}
	}
}

// repairOne repairs one resource. undecided is set if it became a finding.
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
	result, err := m.r.controller.Resend(ctx, f.Kind, f.Key, f.UID, f.ClusterUID)
	switch result {
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

// repairOrphan deletes an orphan whose deletion is proven. It never deletes anything else.
func (m *repair) repairOrphan(ctx context.Context, f reconciliation.Drift) (undecided bool, err error) {
	db := m.r.db
	exists, err := reconciliation.Exists(ctx, db, f)
	if err != nil || exists {
		return false, err // if it exists, it was created meanwhile
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
		return false, fmt.Errorf("deleting a deleted resource again: %w", err)
	}
	m.r.controller.CountDeleted(f.Kind)
	m.count(func(r *Result) { r.Deleted++ })
	m.r.log.WarnContext(ctx, "sent a lost deletion to Cluster Service again", logkey.ResourceID, f.Key.ResourceID, logkey.UID, f.UID, logkey.Reason, proof)
	return false, nil
}

func (m *repair) count(add func(*Result)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add(&m.result)
}

func (m *repair) report(ctx context.Context, finding Finding, f reconciliation.Drift, cause error) {
	m.count(func(r *Result) { r.Findings[finding]++ })
	m.r.log.WarnContext(ctx, "found drift that needs an operator", logkey.Reason, string(finding), logkey.Type, string(f.Type),
		logkey.Kind, string(f.Kind), logkey.ResourceID, f.Key.ResourceID, logkey.UID, f.UID, logkey.AcceptedGeneration, f.AcceptedGeneration, logkey.FleetGeneration, f.FleetGeneration, logkey.Error, cause)
}

package service

import (
	"context"
	"errors"
	"strings"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ListWorks returns the works of a cluster, the works with some IDs, or the works with drift and the removals that were repaired recently.
func (s *Service) ListWorks(ctx context.Context, r *csv1.ListWorksRequest) (*csv1.ListWorksResponse, error) {
	works, err := s.works(ctx, r)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListWorksResponse{Works: works}
	if r.GetDrifting() {
		if response.RepairedRemovals, err = s.o.Store.RepairedRemovals(ctx, s.o.Store.Now().Add(-removalsListed), maxRemovals); err != nil {
			return nil, s.answer(ctx, err)
		}
	}
	return response, nil
}

const (
	// maxDrifts bounds a list of works with drift, maxRemovals a list of repaired removals.
	maxDrifts   = 1000
	maxRemovals = 100
	// removalsListed is the age of the oldest repaired removal that is listed.
	removalsListed = 24 * time.Hour
)

func (s *Service) works(ctx context.Context, r *csv1.ListWorksRequest) ([]*csv1.Work, error) {
	var list []*csv1.Work
	switch {
	case r.GetDrifting() && (r.GetClusterUid() != "" || len(r.GetIds()) > 0):
		return nil, apierror.InvalidFields([]apierror.Violation{{Field: "drifting", Message: "Forbidden: cannot be combined with cluster_uid or ids"}})
	case r.GetDrifting():
		drifts, err := s.o.Store.WorkDrifts(ctx, maxDrifts)
		for _, d := range drifts {
			w := d.Proto()
			w.Drift, w.ClusterResourceId = d.Drift, d.ResourceID
			list = append(list, w)
		}
		return list, err
	case r.GetClusterUid() == "" && len(r.GetIds()) > 0:
		if err := validUIDs("ids", r.GetIds()); err != nil {
			return nil, err
		}
		works, err := s.o.Store.WorksByID(ctx, r.GetIds())
		for _, w := range works {
			list = append(list, w.Proto())
		}
		return list, err
	}
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, err
	}
	aggregate, err := s.o.Store.Read(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, err
	}
	for _, w := range aggregate.Works {
		work := w.Proto()
		work.Drift = aggregate.DriftOf(w)
		list = append(list, work)
	}
	return list, nil
}

// ReasonWorkInUse is the reason of the error for an orphan that is a work or a leftover.
const ReasonWorkInUse = "WORK_IN_USE"

// DeleteOrphan requests the deletion of a Maestro bundle that is not a work. The bundle cannot become a work in the
// meantime: the ID of a work follows from the UID of its cluster, which a deleted cluster never has again, and publishing
// creates what does not exist.
func (s *Service) DeleteOrphan(ctx context.Context, r *csv1.DeleteOrphanRequest) (*csv1.DeleteOrphanResponse, error) {
	var c check
	c.uuid("work_id", r.GetWorkId())
	c.required("provision_shard", r.GetProvisionShard())
	c.actor("actor", r.GetActor())
	if err := apierror.InvalidFields(c.violations); err != nil {
		return nil, s.answer(ctx, err)
	}
	used, err := s.o.Store.WorkInUse(ctx, r.GetWorkId())
	switch {
	case err != nil:
		return nil, s.answer(ctx, err)
	case used:
		return nil, s.answer(ctx, failedPrecondition(ReasonWorkInUse, "The bundle is a work of a cluster or is already being removed."))
	}
	if err := audit.BeforeEffect(ctx); err != nil {
		return nil, s.answer(ctx, err)
	}
	err = s.o.DeleteBundle(ctx, &maestro.Bundle{ID: strings.ToLower(r.GetWorkId()), Name: "orphan", Consumer: r.GetProvisionShard()})
	if err != nil && !errors.Is(err, maestro.ErrNotFound) {
		return nil, s.answer(ctx, apierror.New(apierror.Unavailable, "Maestro did not accept the deletion.").WithRetryAfter(time.Second).WithCause(err))
	}
	s.audit(ctx, "DeleteOrphan", "", r.GetActor(), logkey.BundleID, r.GetWorkId(), logkey.Shard, r.GetProvisionShard())
	return &csv1.DeleteOrphanResponse{}, nil
}

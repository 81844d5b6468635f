package service

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ListWorks returns the works of a cluster, or the works with some IDs.
func (s *Service) ListWorks(ctx context.Context, r *csv1.ListWorksRequest) (*csv1.ListWorksResponse, error) {
	works, err := s.works(ctx, r)
	if err != nil {
		return nil, s.answer(ctx, err)
	}
	response := &csv1.ListWorksResponse{}
	for _, w := range works {
		response.Works = append(response.Works, w.Proto())
	}
	return response, nil
}

func (s *Service) works(ctx context.Context, r *csv1.ListWorksRequest) ([]*fleet.Work, error) {
	if r.GetClusterUid() == "" && len(r.GetIds()) > 0 {
		if err := validUIDs("ids", r.GetIds()); err != nil {
			return nil, err
		}
		return s.o.Store.WorksByID(ctx, r.GetIds())
	}
	if err := validUID("cluster_uid", r.GetClusterUid()); err != nil {
		return nil, err
	}
	aggregate, err := s.o.Store.Read(ctx, strings.ToLower(r.GetClusterUid()))
	if err != nil {
		return nil, err
	}
	return aggregate.Works, nil
}

// ReasonWorkInUse is the reason of the error for an orphan that is a work or a leftover.
const ReasonWorkInUse = "WORK_IN_USE"

// DeleteOrphan requests the deletion of a Maestro bundle that is not a work. The bundle cannot become a work in the
// meantime: the ID of a work follows from the UID of its cluster, which a deleted cluster never has again, and publishing
// creates what does not exist.
func (s *Service) DeleteOrphan(ctx context.Context, r *csv1.DeleteOrphanRequest) (*csv1.DeleteOrphanResponse, error) {
	var c check
	if _, err := uuid.Parse(r.GetWorkId()); err != nil {
		c.fail("work_id", "Invalid value: must be a UUID")
	}
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
	err = s.o.DeleteBundle(ctx, &maestro.Bundle{ID: strings.ToLower(r.GetWorkId()), Name: "orphan", Consumer: r.GetProvisionShard()})
	if err != nil && !errors.Is(err, maestro.ErrNotFound) {
		return nil, s.answer(ctx, apierror.New(apierror.Unavailable, "Maestro did not accept the deletion.").WithRetryAfter(time.Second).WithCause(err))
	}
	s.audit(ctx, "DeleteOrphan", "", r.GetActor(), logkey.BundleID, r.GetWorkId(), logkey.Shard, r.GetProvisionShard())
	return &csv1.DeleteOrphanResponse{}, nil
}

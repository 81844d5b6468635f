package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/reconciliation"
)

// maxDrift is the maximum number of listed differences.
const maxDrift = 1000

var errEnough = errors.New("that is enough")

// listDrift compares both sides for each request; the result is not stored.
func (s *Server) listDrift(ctx context.Context, _ *request) (any, error) {
	list := adminv1.DriftList{Items: []adminv1.Drift{}, RepairedRemovals: []adminv1.RepairedRemoval{}}
	counts, err := reconciliation.Compare(ctx, s.Database, reconciliation.FleetInventory{Client: s.Fleet}, reconciliation.Options{}, func(f reconciliation.Drift) error {
		if len(list.Items) == maxDrift {
			list.More = true
			return errEnough
		}
		drift, err := s.drift(ctx, f)
		if drift != nil {
			list.Items = append(list.Items, *drift)
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	list.Desired, list.InFleet = counts.Desired, counts.Fleet
	return list, s.addWorkDrift(ctx, &list)
}

// drift returns a difference with its proof and remedy; nil if it no longer exists.
func (s *Server) drift(ctx context.Context, f reconciliation.Drift) (*adminv1.Drift, error) {
	d := &adminv1.Drift{
		Layer: adminv1.LayerClusterService, Difference: string(f.Type), Kind: string(f.Kind), ResourceID: f.Key.ResourceID, UID: f.UID, ClusterUID: f.ClusterUID, Desired: f.AcceptedGeneration, InFleet: f.FleetGeneration,
		AutoRepaired: true, Remedy: "The backend sends it again at its next comparison; 'hcpctl drift reconcile' starts one now.",
	}
	switch f.Type {
	case reconciliation.Newer:
		d.AutoRepaired = false
		d.Remedy = "No automatic repair: ARM's documents do not contain the lost change. The customer's next change replaces it."
		return d, nil
	case reconciliation.Missing, reconciliation.Orphan:
	default:
		return d, nil
	}
	if there, err := reconciliation.Exists(ctx, s.Database, f); err != nil || there && f.Type == reconciliation.Orphan {
		return nil, err
	}
	var err error
	if d.Proof, err = s.Database.FindDeletionProof(ctx, f.Kind, f.Key, f.UID, f.ClusterUID); err != nil {
		return nil, err
	}
	switch {
	case f.Type == reconciliation.Missing && d.Proof != "":
		d.AutoRepaired = false
		d.Remedy = "It was deleted and is not created again: ARM's document predates the deletion. Deleting it in ARM removes the document."
	case f.Type == reconciliation.Orphan && d.Proof == "":
		d.AutoRepaired = false
		d.Remedy = fmt.Sprintf("No proof of a deletion, so it is kept. If it belongs to no customer, delete it with 'hcpctl drift delete %s'.", f.UID)
	}
	return d, nil
}

func (s *Server) reconcileDrift(ctx context.Context, rq *request) (any, error) {
	return s.accept(ctx, rq, database.AdminTarget{Kind: "region", ID: "drift"}, nil)
}

// deleteDrift accepts the deletion of an orphan by its UID. It compares again: resources that ARM has are not deleted here.
func (s *Server) deleteDrift(ctx context.Context, rq *request) (any, error) {
	uid := rq.http.PathValue("uid")
	var found *reconciliation.Drift
	_, err := reconciliation.Compare(ctx, s.Database, reconciliation.FleetInventory{Client: s.Fleet}, reconciliation.Options{}, func(f reconciliation.Drift) error {
		if f.UID == uid && f.Type == reconciliation.Orphan {
			found = &f
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if found == nil {
		return nil, apierror.New(apierror.NotFound, "The fleet has no resource with UID '%s' that is missing in ARM.", uid)
	}
	there, err := reconciliation.Exists(ctx, s.Database, *found)
	if err != nil {
		return nil, err
	}
	if there {
		return nil, apierror.New(apierror.Conflict, "The resource exists in ARM: delete it there.")
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: string(found.Kind), ID: found.UID, ResourceID: found.Key.ResourceID, ClusterUID: found.ClusterUID}, nil)
}

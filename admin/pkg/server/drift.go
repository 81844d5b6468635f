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

// maxDrift is how many differences are listed.
const maxDrift = 1000

var errEnough = errors.New("that is enough")

// listDrift compares both sides now: nothing of it is kept anywhere.
func (s *Server) listDrift(ctx context.Context, _ *request) (any, error) {
	list := adminv1.DriftList{Items: []adminv1.Drift{}}
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
	list.Promised, list.Held = counts.Desired, counts.Fleet
	return list, nil
}

// drift is a difference, with what is to be known of it; nil when it has gone meanwhile.
func (s *Server) drift(ctx context.Context, f reconciliation.Drift) (*adminv1.Drift, error) {
	d := &adminv1.Drift{
		Difference: string(f.Type), Kind: string(f.Kind), ResourceID: f.Key.ResourceID, UID: f.UID, ClusterUID: f.ClusterUID, Promised: f.AcceptedGeneration, Held: f.FleetGeneration,
		Mended: true, Remedy: "The backend sends it again as soon as it compares; 'hcpctl drift reconcile' has it do so now.",
	}
	switch f.Type {
	case reconciliation.Newer:
		d.Mended = false
		d.Remedy = "Nothing takes it back: what ARM's documents have lost cannot be told from them. The customer's next change counts, and becomes newer than it."
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
		d.Mended = false
		d.Remedy = "It was deleted, and is not made again: ARM's document is of before that. Its deletion by the customer, or with the subscription, removes the document."
	case f.Type == reconciliation.Orphan && d.Proof == "":
		d.Mended = false
		d.Remedy = fmt.Sprintf("Nothing says that it was deleted, so nothing deletes it. If it is nobody's, 'hcpctl drift delete %s' does.", f.UID)
	}
	return d, nil
}

func (s *Server) reconcileDrift(ctx context.Context, rq *request) (any, error) {
	if err := rq.noBody(); err != nil {
		return nil, err
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: "region", ID: "drift"}, nil)
}

// deleteDrift takes an orphan's uid. It is looked for anew: what ARM has is not deleted here.
func (s *Server) deleteDrift(ctx context.Context, rq *request) (any, error) {
	if err := rq.noBody(); err != nil {
		return nil, err
	}
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
		return nil, apierror.New(apierror.NotFound, "The fleet holds nothing of the uid '%s' that ARM does not have.", uid)
	}
	there, err := reconciliation.Exists(ctx, s.Database, *found)
	if err != nil {
		return nil, err
	}
	if there {
		return nil, apierror.New(apierror.Conflict, "ARM has the resource: it is deleted there.")
	}
	return s.accept(ctx, rq, database.AdminTarget{Kind: string(found.Kind), ID: found.UID, ResourceID: found.Key.ResourceID, ClusterUID: found.ClusterUID}, nil)
}

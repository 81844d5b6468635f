package database

import (
	"context"
	"math/rand/v2"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// fenceCount is how many gates a subscription has. Two creates only ever race for one when they happen on the same number at
// the same moment; shutting them all takes as many writes, once in the life of a subscription.
const fenceCount = 32

// fenceDocument is one gate of a subscription: every batch that creates a cluster writes one of them as it is, and once
// they are shut none can. A create that has read that the subscription takes clusters, and was held up on its way, fails
// on the gate: whoever lists the clusters after shutting the gates misses none.
//
// One document would be enough to be right, and the subscription's own would not even need to be read. But then all
// creates of a subscription would queue up behind each other, and every one would show as a change of the subscription.
type fenceDocument struct {
	Closed bool `json:"shut,omitempty"`
}

// AddFence makes a batch that creates a cluster depend on the subscription's taking clusters until the commit. When it
// does no more the error is of kind InvalidSubscriptionState. The commit may lose a race for the gate, in which case the
// create is to be decided anew.
func (db *DB) AddFence(ctx context.Context, batch *Batch) error {
	key := fenceKey(batch.subscription, rand.N(fenceCount))
	gate, err := db.fences.Find(ctx, key)
	switch {
	case err != nil:
		return err
	case gate == nil || gate.Removed != nil:
		Create(batch, db.fences, key, fenceDocument{})
	case gate.Value.Closed:
		return apierror.New(apierror.InvalidSubscriptionState, "The request is not allowed in the subscription's state %s.", hub.Deleted)
	default:
		Replace(batch, gate)
	}
	return nil
}

// CloseFences ends the creation of clusters in a subscription for good. Once it has returned nil no batch with AddFence is
// committed any more. It is idempotent, and may be cut off at any point.
func (db *DB) CloseFences(ctx context.Context, subscriptionID string) error {
	for number := range fenceCount {
		key := fenceKey(subscriptionID, number)
		err := Retry(ctx, func(ctx context.Context) error {
			gate, err := db.fences.Find(ctx, key)
			if err != nil {
				return err
			}
			batch := db.NewBatch(subscriptionID)
			switch {
			case gate == nil || gate.Removed != nil:
				Create(batch, db.fences, key, fenceDocument{Closed: true})
			case gate.Value.Closed:
				return nil
			default:
				gate.Value.Closed = true
				Replace(batch, gate)
			}
			return batch.Commit(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

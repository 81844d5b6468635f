package database

import (
	"context"
	"math/rand/v2"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// fenceCount is how many fences a subscription has. Two creations conflict only if they choose the same fence at the
// same time. Closing all fences takes as many writes, once per subscription.
const fenceCount = 32

// fenceDocument is one fence of a subscription. Every batch that creates a cluster writes one fence unchanged, which
// fails once the fence is closed. A creation that read the subscription's state before the subscription was deleted,
// and was delayed, therefore fails. All clusters that exist after the fences were closed appear in a list.
//
// One document would suffice, for example the subscription itself. But then all creations in a subscription would
// conflict with each other, and each would appear in the change feed as a change of the subscription.
type fenceDocument struct {
	Closed bool `json:"shut,omitempty"`
}

// AddFence adds the write of a fence to a batch that creates a cluster. The error has the kind InvalidSubscriptionState
// if the fences are closed. The commit may fail with a WriteConflict for the fence; then the creation must be decided
// again.
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

// CloseFences stops the creation of clusters in a subscription permanently. After it has returned nil, no batch with a
// fence can be committed. It is idempotent and may be interrupted at any point.
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

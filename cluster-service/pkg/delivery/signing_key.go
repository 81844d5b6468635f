package delivery

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
)

// needSigningKey has a signing key made for a cluster that was created when none was ready, and the cluster published
// then. What does not fit comes again when its lease is over.
func (p *Publisher) needSigningKey(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keylessSet[uid] {
		return
	}
	select {
	case p.keyless <- uid:
		p.keylessSet[uid] = true
	default:
		p.Metrics.overflows.Inc()
	}
}

// makeSigningKeys serves the clusters without a key, one after the other: a key costs tens of milliseconds of processor
// time, which a burst of creations shall not take from everything else.
func (p *Publisher) makeSigningKeys(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case uid := <-p.keyless:
			err := p.storeSigningKey(ctx, uid)
			p.mu.Lock()
			delete(p.keylessSet, uid)
			p.mu.Unlock()
			if err != nil {
				if ctx.Err() == nil {
					slog.Warn("a cluster got no signing key; it comes again", "cluster_uid", uid, "error", err)
				}
				continue
			}
			p.Enqueue([]string{uid})
		}
	}
}

// storeSigningKey stores a key before it is used; of two replicas that store one the first wins.
func (p *Publisher) storeSigningKey(ctx context.Context, uid string) error {
	key, err := p.Keys.Take()
	if err != nil {
		return fmt.Errorf("making a signing key: %w", err)
	}
	sealed := p.Keeper.Seal(uid, key)
	err = p.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		if c := tx.Aggregates[uid].Cluster; c != nil && c.SigningKey == nil && !c.Deleting() {
			c.SigningKey = sealed
		}
		// The issuer's documents waited for it.
		return p.Renderer.Region.Settle(p.Store.Now(), tx.Aggregates[uid], nil)
	})
	if err != nil {
		return fmt.Errorf("storing a signing key: %w", err)
	}
	return nil
}

package delivery

import (
	"context"
	"fmt"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// needSigningKey queues a cluster that was created when the pool of signing keys was empty. It is published when it has a key. A
// cluster that does not fit into the queue is due again when its lease ends.
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

// makeSigningKeys generates the keys of queued clusters, one after the other: a key takes tens of milliseconds of processor time,
// and a burst of creations must not delay other work.
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
					p.Log.Warn("generating a signing key failed; it will be retried", logkey.ClusterUID, uid, logkey.Error, err)
				}
				continue
			}
			p.Enqueue([]string{uid})
		}
	}
}

// storeSigningKey stores a key before it is used. If two replicas store one, the first wins.
func (p *Publisher) storeSigningKey(ctx context.Context, uid string) error {
	key, err := p.Keys.Take()
	if err != nil {
		return fmt.Errorf("generate a signing key: %w", err)
	}
	sealed := p.Keeper.Seal(uid, key)
	err = p.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		if c := tx.Aggregates[uid].Cluster; c != nil && c.SigningKey == nil && !c.Deleting() {
			c.SigningKey = sealed
		}
		// The issuer's documents need the key.
		return p.Renderer.Region.Settle(p.Store.Now(), tx.Aggregates[uid], nil)
	})
	if err != nil {
		return fmt.Errorf("store a signing key: %w", err)
	}
	return nil
}

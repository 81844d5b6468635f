package fleet

import (
	"errors"
	"fmt"
	"time"
)

// Renderer renders the desired content of works.
type Renderer interface {
	// Digest returns the digest of the current desired content of a work.
	Digest(t *ClusterAggregate, w *Work) (string, error)
	// OmittedRanges returns the ranges of the region that the HostedCluster of a cluster leaves out, because HyperShift does not allow as many.
	OmittedRanges(c *Cluster) []string
}

// plan updates the set of works: it adds missing works, increments Desired of works with changed content, and marks works
// for deletion that are no longer needed. Content that needs an unread identity stays as it is.
func plan(now time.Time, t *ClusterAggregate, renderer Renderer) error {
	c := t.Cluster
	if c.Shard == "" {
		return nil
	}
	if renderer != nil && !c.Deleting() {
		t.reportRanges(now, renderer)
		for _, kind := range []WorkKind{Namespaces, HostedCluster} {
			if err := want(t, kind, nil, c.renderedGeneration(c.Generation), renderer); err != nil {
				return err
			}
		}
		for _, p := range t.Pools {
			// HyperShift needs the HostedCluster of a NodePool.
			if p.Deleting() || t.Work(HostedCluster, "") == nil {
				continue
			}
			if err := want(t, NodePoolWork, p, p.renderedGeneration(p.Generation), renderer); err != nil {
				return err
			}
		}
	}
	for _, w := range t.Works {
		if !w.Deleting() && unwanted(t, w) {
			w.DeleteTime, w.RetryTime, w.Attempts, w.Error, w.Refused = now, time.Time{}, 0, "", false
		}
	}
	return nil
}

// newWork returns a work of a placed cluster without content. The owner and the name are empty for kinds of which a cluster has one.
func newWork(t *ClusterAggregate, kind WorkKind, owner, name string) *Work {
	full := WorkName(kind, t.Cluster.ID(), name)
	return &Work{ID: WorkID(t.Cluster.Shard, full, owner), ClusterUID: t.Cluster.UID, OwnerUID: owner, Kind: kind, Name: full, Shard: t.Cluster.Shard}
}

func want(t *ClusterAggregate, kind WorkKind, p *NodePool, generation int64, renderer Renderer) error {
	poolUID, poolName := "", ""
	if p != nil {
		poolUID, poolName = p.UID, p.Spec.GetName()
	}
	w := t.Work(kind, poolUID)
	isNew := w == nil
	if isNew {
		w = newWork(t, kind, poolUID, poolName)
	}
	digest, err := renderer.Digest(t, w)
	if errors.Is(err, ErrIdentityUnread) {
		// The control plane of a recovered cluster may exist. Its work is planned without content, so that a deletion removes it.
		if isNew && t.Azure != nil && !t.Azure.onlyIdentities() {
			t.Works = append(t.Works, w)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("rendering work %s: %w", w.Name, err)
	}
	if isNew {
		t.Works = append(t.Works, w)
	}
	w.Generation = generation
	if digest != w.Digest {
		w.Digest = digest
		w.Desired++
		w.Attempts, w.Error, w.Refused, w.RetryTime = 0, "", false, time.Time{}
	}
	return nil
}

// unwanted reports whether a work must be deleted now, and so determines the order of a deletion. HyperShift deletes the
// NodePools of a deleted HostedCluster itself, and an agent that still has the works of the pools would create them again.
// So pools are deleted before the HostedCluster or together with it. The namespaces are deleted when no other work is left.
func unwanted(t *ClusterAggregate, w *Work) bool {
	switch w.Kind {
	case NodePoolWork:
		p := t.Pool(w.OwnerUID)
		return t.Cluster.Deleting() || p == nil || p.Deleting()
	case CredentialWork:
		// No component needs the request after it is signed or canceled. It must not exist while the control plane replaces its signer.
		c := t.Credential(w.OwnerUID)
		return t.Cluster.Deleting() || c == nil || !c.Pending() || t.Revoking(c.Spec.GetClass()) != nil
	case RevocationWork:
		v := t.Revocation(w.OwnerUID)
		return t.Cluster.Deleting() || v == nil || !v.Active()
	case RolloutWork:
		return t.Cluster.Deleting() || t.Upgrade(w.OwnerUID).rollingOut() == nil
	case HostedCluster:
		return t.Cluster.Deleting()
	case Namespaces:
		return t.Cluster.Deleting() && len(t.Works) == 1
	}
	return false
}

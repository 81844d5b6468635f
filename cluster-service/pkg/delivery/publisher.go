// Package delivery moves works between the database and Maestro. Publisher brings every work that is due to Maestro:
// creations, updates and deletions, from durable state, again and again until they are acknowledged. Receiver takes the
// statuses that Maestro reports and has the state machine decide on them. Both hold nothing that a crash could lose: a
// work is due because its row says so, and a status that was missed is asked for again after every subscription.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/due"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Maestro is what is needed of a Maestro client to publish.
type Maestro interface {
	Create(ctx context.Context, b *maestro.Bundle) (int64, error)
	Update(ctx context.Context, b *maestro.Bundle) (int64, error)
	Delete(ctx context.Context, b *maestro.Bundle) error
	Resync(ctx context.Context, held []maestro.Held) error
}

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
	// An acknowledged deletion that is not confirmed is asked for again: soon at first, for then it is rather the
	// confirmation that was lost, and every lastConfirm in the end.
	firstConfirm = 5 * time.Second
	lastConfirm  = time.Minute
)

// PublisherOptions are what a publisher works with.
type PublisherOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Maestro  Maestro
	Keeper   *seal.Keys
	Keys     *signingkey.Pool
	// Workers is how many clusters are published at once.
	Workers int
	Metrics *Metrics
}

// Publisher publishes due works.
type Publisher struct {
	PublisherOptions
	due *due.Queue

	mu sync.Mutex
	// keyless waits for signing keys, in order; keylessSet has the same, to have each once.
	keyless    chan string
	keylessSet map[string]bool
}

// maxKeyless bounds the clusters that wait for a signing key in memory.
const maxKeyless = 4096

// NewPublisher makes a publisher; Run runs it.
func NewPublisher(o PublisherOptions) *Publisher {
	p := &Publisher{PublisherOptions: o, keyless: make(chan string, maxKeyless), keylessSet: map[string]bool{}}
	p.due = due.NewQueue(due.Options{Of: "works", Workers: o.Workers, Acquire: o.Store.AcquireDueWorks, Visit: p.publish, Overflowed: o.Metrics.overflows.Inc})
	return p
}

// Enqueue publishes the due works of clusters soon. This process must hold their lease. Enqueue does not block.
func (p *Publisher) Enqueue(clusterUIDs []string) { p.due.Add(clusterUIDs) }

// Run publishes until ctx is over.
func (p *Publisher) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { p.due.Run(ctx) })
	group.Go(func() { p.makeSigningKeys(ctx) })
	group.Wait()
}

// outcome is what came of publishing one work.
type outcome struct {
	workID   string
	desired  int64
	deletion bool
	version  int64
	// found says that the bundle was there already: of its statuses some may have come before it was a work.
	found bool
	err   error
}

// publish brings the due works of one cluster to Maestro in their order, and stores what came of it.
func (p *Publisher) publish(ctx context.Context, uid string) error {
	aggregate, err := p.Store.Read(ctx, uid)
	if err != nil {
		return err
	}
	if c := aggregate.Cluster; c != nil && !c.Deleting() && c.SigningKey == nil {
		p.needSigningKey(uid)
		return nil
	}
	var outcomes []outcome
	for _, w := range order(aggregate.Works) {
		if !w.Due() || w.DeletePublished && w.RetryTime.After(p.Store.Now().Add(p.Store.Lease())) {
			continue
		}
		o := p.publishWork(ctx, aggregate, w)
		outcomes = append(outcomes, o)
		p.Metrics.published(o.err)
		if o.err != nil {
			slog.Warn("publishing a work failed", "cluster_uid", uid, "work", w.Name, "deletion", o.deletion, "attempt", w.Attempts+1, "error", o.err)
			// What follows may need what failed. It stays due.
			if !errors.Is(o.err, maestro.ErrRefused) {
				break
			}
			continue
		}
		slog.Info("published a work", "cluster_uid", uid, "work", w.Name, "maestro_id", w.ID, "consumer", w.Shard, "deletion", o.deletion, "version", o.version)
	}
	if len(outcomes) == 0 {
		return nil
	}
	var anew []maestro.Held
	err = p.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t := tx.Aggregates[uid]
		anew = nil
		done := map[string]bool{}
		delay := time.Duration(0)
		for _, o := range outcomes {
			done[o.workID] = true
			if w := t.WorkByID(o.workID); w != nil {
				if record(w, o, p.Store.Now()) {
					anew = append(anew, maestro.Held{ResourceID: w.ID})
				}
				// What failed before its deletion was decided is not tried again: the deletion is due, at once.
				if o.err != nil && o.deletion == w.Deleting() {
					delay = max(delay, backoff(w.Attempts))
				}
			}
		}
		if delay > 0 {
			p.due.ScanIn(delay)
			// The works behind a failed one come again with it.
			for _, w := range t.Works {
				if w.Due() && !done[w.ID] && !w.DeletePublished {
					w.RetryTime = p.Store.Now().Add(delay)
				}
			}
		}
		return p.Renderer.Region.SettleObserved(p.Store.Now(), t, p.Renderer)
	})
	if err != nil {
		return fmt.Errorf("storing what was published: %w", err)
	}
	if len(anew) > 0 {
		// Statuses that came before this was known were taken for old ones.
		return p.Maestro.Resync(ctx, anew)
	}
	return nil
}

// order puts deletions of node pools first, then the other deletions, then the rest as they build on each other.
func order(works []*fleet.Work) []*fleet.Work {
	ordered := make([]*fleet.Work, 0, len(works))
	for _, deleting := range []bool{true, false} {
		kinds := []fleet.WorkKind{fleet.Namespaces, fleet.HostedCluster, fleet.NodePoolWork, fleet.CredentialWork, fleet.RevocationWork, fleet.RolloutWork}
		if deleting {
			kinds = []fleet.WorkKind{fleet.NodePoolWork, fleet.CredentialWork, fleet.RevocationWork, fleet.RolloutWork, fleet.HostedCluster, fleet.Namespaces}
		}
		for _, kind := range kinds {
			for _, w := range works {
				if w.Kind == kind && w.Deleting() == deleting {
					ordered = append(ordered, w)
				}
			}
		}
	}
	return ordered
}

func (p *Publisher) publishWork(ctx context.Context, t *fleet.ClusterAggregate, w *fleet.Work) outcome {
	o := outcome{workID: w.ID, desired: w.Desired, deletion: w.Deleting()}
	bundle := &maestro.Bundle{ID: w.ID, Name: w.Name, Consumer: w.Shard, Version: w.Version,
		Labels: map[string]string{managementcluster.LabelClusterID: t.Cluster.ID(), managementcluster.LabelEnvironment: p.Renderer.Environment}}
	if o.deletion {
		// Whatever version it has, it goes.
		bundle.Version = 0
		if len(w.ReleaseFinalizers) > 0 {
			environment := p.Renderer.Environment
			bundle.ReleaseFinalizers = w.ReleaseFinalizers
			bundle.ReleaseNamespaces = []string{fleet.Namespace(environment, t.Cluster.ID()), fleet.ControlPlaneNamespace(environment, t.Cluster)}
		}
		o.err = p.Maestro.Delete(ctx, bundle)
		return o
	}
	rendered, err := p.Renderer.Bundle(t, w)
	if err != nil {
		o.err = fmt.Errorf("rendering: %w", err)
		return o
	}
	bundle.Manifests, bundle.Configs = rendered.Manifests, rendered.Configs
	if w.Version == 0 && w.Published == 0 {
		o.version, o.err = p.Maestro.Create(ctx, bundle)
		if errors.Is(o.err, maestro.ErrConflict) {
			// An earlier attempt had its effect though its answer was lost, or the database lost that.
			o.found = true
			o.version, o.err = p.update(ctx, bundle)
		}
		return o
	}
	o.version, o.err = p.update(ctx, bundle)
	if errors.Is(o.err, maestro.ErrNotFound) {
		// Maestro lost it, or never had it.
		o.version, o.err = p.Maestro.Create(ctx, bundle)
	}
	return o
}

// update builds on the version that was last learnt. A conflict means that an earlier attempt of ours had its effect, for
// Cluster Service is the only writer: then the newest version is built on.
func (p *Publisher) update(ctx context.Context, bundle *maestro.Bundle) (int64, error) {
	version, err := p.Maestro.Update(ctx, bundle)
	if errors.Is(err, maestro.ErrConflict) && bundle.Version != 0 {
		bundle.Version = 0
		return p.Maestro.Update(ctx, bundle)
	}
	return version, err
}

// record stores what came of publishing a work. It says whether Maestro began anew with the work, and so with the order of
// its statuses.
func record(w *fleet.Work, o outcome, now time.Time) (anew bool) {
	if o.deletion != w.Deleting() {
		// Its deletion was decided meanwhile: what was published does not matter any more, the deletion is due.
		return false
	}
	if o.err != nil {
		w.Attempts++
		w.Error = clip(o.err.Error())
		w.RetryTime = now.Add(backoff(w.Attempts))
		w.Refused = errors.Is(o.err, maestro.ErrRefused) && !o.deletion
		return false
	}
	w.Attempts, w.Error, w.Refused = 0, "", false
	if o.deletion {
		w.DeletePublished = true
		w.DeleteRequests++
		w.RetryTime = now.Add(min(max(now.Sub(w.DeleteTime), firstConfirm), lastConfirm))
		return false
	}
	w.Published = max(w.Published, o.desired)
	w.Version = o.version
	if o.version > 0 && o.version < parseOrder(w.Sequence).version {
		w.Sequence, w.StatusHash, anew = "", "", true
	}
	anew = anew || o.found
	// Zero is at once, for content that changed meanwhile.
	w.RetryTime = time.Time{}
	return anew
}

// maxError bounds an error that is stored and shown.
const maxError = 1024

func clip(s string) string {
	if len(s) > maxError {
		s = s[:maxError]
	}
	return strings.ToValidUTF8(s, "")
}

func backoff(attempt int32) time.Duration {
	return min(firstRetry<<min(attempt-1, 10), lastRetry)
}

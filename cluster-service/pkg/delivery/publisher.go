// Package delivery moves works between the database and Maestro. Publisher publishes every due work to Maestro: creations,
// updates and deletions. It reads them from the database and repeats them until they are acknowledged. Receiver stores the
// statuses that Maestro reports and runs the state machine. Neither has state that a crash could lose: the row of a work
// determines whether it is due, and missed statuses are requested after every subscription.
//
// Package pass has the workers that run the state machine when a time has come.
package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/pass"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
)

// Maestro has the methods of a Maestro client that Publisher uses.
type Maestro interface {
	Create(ctx context.Context, b *maestro.Bundle) (int64, error)
	Update(ctx context.Context, b *maestro.Bundle) (int64, error)
	Delete(ctx context.Context, b *maestro.Bundle) error
	Resync(ctx context.Context, held []maestro.Held) error
}

const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
	// An acknowledged deletion without a confirmation is repeated: soon at first, because then probably the confirmation was
	// lost, and later every lastConfirm.
	firstConfirm = 5 * time.Second
	lastConfirm  = time.Minute
)

// PublisherOptions configure a Publisher.
type PublisherOptions struct {
	Store    *store.Store
	Renderer *render.Renderer
	Maestro  Maestro
	Keeper   *seal.Keys
	Keys     *signingkey.Pool
	// Workers is the number of clusters that are published at the same time.
	Workers int
	Metrics *Metrics
	// Traces creates the spans of works that belong to a request in progress; nil creates none.
	Traces *tracing.Tracing
	Log    *slog.Logger
}

// Publisher publishes due works to Maestro.
type Publisher struct {
	PublisherOptions
	due *pass.Queue

	mu sync.Mutex
	// keyless is the queue of clusters that wait for a signing key. keylessSet has the same clusters and prevents duplicates.
	keyless    chan string
	keylessSet map[string]bool
}

// maxKeyless is the maximum length of the queue.
const maxKeyless = 4096

// NewPublisher returns a publisher. Run makes it work.
func NewPublisher(o PublisherOptions) *Publisher {
	if o.Traces == nil {
		o.Traces = tracing.Off()
	}
	p := &Publisher{PublisherOptions: o, keyless: make(chan string, maxKeyless), keylessSet: map[string]bool{}}
	p.due = pass.NewQueue(pass.QueueOptions{Log: o.Log, Of: "works", Workers: o.Workers, Acquire: o.Store.AcquireDueWorks, Visit: p.publish, Overflowed: o.Metrics.overflows.Inc})
	return p
}

// Enqueue publishes the due works of clusters soon. This process must hold their lease. Enqueue does not block.
func (p *Publisher) Enqueue(clusterUIDs []string) { p.due.Add(clusterUIDs) }

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { p.due.Run(ctx) })
	group.Go(func() { p.makeSigningKeys(ctx) })
	group.Wait()
}

// errOtherContent is the outcome of a work that was published with other content than the planned one: the replica that planned it has
// other settings, for example another key of the shard, or is another release. The work stays due, until a replica publishes the planned
// content, or this one plans it again with its settings. Otherwise nobody would publish the planned content: a renewer compares digests of
// plans.
var errOtherContent = errors.New("the content differs from the planned one, because the replica that planned it has other settings or is another release")

// outcome is the result of publishing one work.
type outcome struct {
	workID   string
	desired  int64
	deletion bool
	version  int64
	// found is true if the bundle existed already. Some of its statuses may have arrived before the work existed.
	found bool
	err   error
}

func (o outcome) action() string {
	if o.deletion {
		return "delete"
	}
	return "apply"
}

// publish publishes the due works of one cluster in order, and stores the outcomes.
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
			p.Log.Warn("publishing a work failed", logkey.ClusterUID, uid, logkey.Work, w.Name, logkey.Action, o.action(), logkey.Attempt, w.Attempts+1, logkey.Error, o.err)
			// Later works may depend on the failed one. They stay due.
			if !errors.Is(o.err, maestro.ErrRefused) && !errors.Is(o.err, errOtherContent) {
				break
			}
			continue
		}
		p.Log.Info("work published", logkey.ClusterUID, uid, logkey.Work, w.Name, logkey.BundleID, w.ID, logkey.Consumer, w.Shard, logkey.Action, o.action(), logkey.Version, o.version)
	}
	if len(outcomes) == 0 {
		return nil
	}
	var restarted []maestro.Held
	err = p.Store.Update(ctx, []string{uid}, func(_ context.Context, tx *store.Tx) error {
		t := tx.Aggregates[uid]
		restarted = nil
		done := map[string]bool{}
		delay := time.Duration(0)
		for _, o := range outcomes {
			done[o.workID] = true
			if w := t.WorkByID(o.workID); w != nil {
				if record(w, o, p.Store.Now()) {
					restarted = append(restarted, maestro.Held{ResourceID: w.ID})
				}
				// A failed work that must be deleted meanwhile is not published again: its deletion is due at once.
				if o.err != nil && o.deletion == w.Deleting() {
					delay = max(delay, w.RetryTime.Sub(p.Store.Now()))
				}
			}
		}
		if delay > 0 {
			p.due.ScanIn(delay)
			// The works after a failed one are retried together with it.
			for _, w := range t.Works {
				if w.Due() && !done[w.ID] && !w.DeletePublished {
					w.RetryTime = p.Store.Now().Add(delay)
				}
			}
		}
		return p.Renderer.Region.SettleObserved(p.Store.Now(), t, p.Renderer)
	})
	if err != nil {
		return fmt.Errorf("store the outcomes of publishing: %w", err)
	}
	if len(restarted) > 0 {
		// Earlier statuses of these works were dropped as stale.
		return p.Maestro.Resync(ctx, restarted)
	}
	return nil
}

// order sorts works: deletions of node pools first, then the other deletions, then all others by their dependencies.
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

// publishWork publishes a work. If the work belongs to a request in progress, its span and the trace context of the bundle are in the trace of
// the request.
func (p *Publisher) publishWork(ctx context.Context, t *fleet.ClusterAggregate, w *fleet.Work) (o outcome) {
	o = outcome{workID: w.ID, desired: w.Desired, deletion: w.Deleting()}
	if reference := t.TraceOf(w); reference != "" {
		var span trace.Span
		ctx, span = p.Traces.Start(tracing.Continue(ctx, reference), "publish "+o.action(), trace.WithAttributes(tracing.Work.String(w.Name),
			tracing.Consumer.String(w.Shard), tracing.BundleID.String(w.ID), tracing.ClusterUID.String(w.ClusterUID)))
		defer func() { tracing.End(span, o.err) }()
	}
	bundle := &maestro.Bundle{ID: w.ID, Name: w.Name, Consumer: w.Shard, Version: w.Version, Trace: tracing.Recorded(ctx),
		Labels: map[string]string{managementcluster.LabelClusterID: t.Cluster.ID(), managementcluster.LabelEnvironment: p.Renderer.Environment}}
	if o.deletion {
		// A deletion applies to every version.
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
		o.err = fmt.Errorf("render: %w", err)
		return o
	}
	bundle.Manifests, bundle.Configs = rendered.Manifests, rendered.Configs
	p.store(ctx, bundle, w, &o)
	if o.err == nil && w.Rendered() && rendered.Digest != w.Digest {
		o.err = errOtherContent
	}
	return o
}

// store creates or updates the bundle of a work at Maestro, and notes the result in o.
func (p *Publisher) store(ctx context.Context, bundle *maestro.Bundle, w *fleet.Work, o *outcome) {
	if w.Version == 0 && w.Published == 0 {
		o.version, o.err = p.Maestro.Create(ctx, bundle)
		if errors.Is(o.err, maestro.ErrConflict) {
			// An earlier attempt succeeded and its response was lost, or the database lost the result.
			o.found = true
			o.version, o.err = p.update(ctx, bundle)
		}
		return
	}
	o.version, o.err = p.update(ctx, bundle)
	if errors.Is(o.err, maestro.ErrNotFound) {
		// Maestro lost the bundle or never had it.
		o.version, o.err = p.Maestro.Create(ctx, bundle)
	}
}

// update requires the last known version. Because Cluster Service is the only writer, a conflict means that an earlier attempt
// succeeded; then update requires the newest version.
func (p *Publisher) update(ctx context.Context, bundle *maestro.Bundle) (int64, error) {
	version, err := p.Maestro.Update(ctx, bundle)
	if errors.Is(err, maestro.ErrConflict) && bundle.Version != 0 {
		bundle.Version = 0
		return p.Maestro.Update(ctx, bundle)
	}
	return version, err
}

// record stores the outcome of publishing a work in its row. It returns true if Maestro restarted the versions of the bundle,
// and with them the order of its statuses.
func record(w *fleet.Work, o outcome, now time.Time) (restarted bool) {
	if o.deletion != w.Deleting() {
		// The work must be deleted meanwhile: the deletion is due, and the outcome is irrelevant.
		return false
	}
	if o.err != nil {
		w.Attempts++
		w.Error = clip(o.err.Error())
		w.RetryTime = now.Add(backoff.After(int(w.Attempts), firstRetry, lastRetry))
		w.Refused = errors.Is(o.err, maestro.ErrRefused) && !o.deletion
		if errors.Is(o.err, errOtherContent) {
			// Another replica may have published the planned content before.
			w.Version, w.Published = o.version, min(w.Published, w.Desired-1)
		}
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
		w.Sequence, w.StatusHash, restarted = "", "", true
	}
	// Zero means at once, for content that changed meanwhile.
	w.RetryTime = time.Time{}
	return restarted || o.found
}

// maxError is the maximum length of a stored error, in bytes.
const maxError = 1024

func clip(s string) string {
	if len(s) > maxError {
		s = s[:maxError]
	}
	return strings.ToValidUTF8(s, "")
}

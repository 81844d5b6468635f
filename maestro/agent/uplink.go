package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/statushash"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/agent/codec"
	workpayload "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/payload"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/payload"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/types"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// reporters is the number of reports that are sent at the same time. Each waits for the broker's acknowledgement.
const reporters = 16

// uplink exchanges events with the server: it receives works and reports their status. The queue of reports contains names of
// works, so that of several changes only the newest is sent, and the reports of a work are sent in order. A report is retried
// until it succeeds.
type uplink struct {
	consumer, source, agent string
	link                    *mqttlink.Link
	works                   *works
	reports                 workqueue.TypedRateLimitingInterface[string]
	codec                   *codec.ManifestBundleCodec
	traces                  *traces
	log                     *slog.Logger

	mu            sync.Mutex
	resync        string
	acknowledged  bool
	resyncStarted chan struct{}
	// acknowledgements receives a value after each acknowledged resync.
	acknowledgements chan struct{}
}

func newUplink(consumer, source, agent string, log *slog.Logger) *uplink {
	u := &uplink{
		consumer: consumer, source: source, agent: agent, log: log, codec: codec.NewManifestBundleCodec(), resyncStarted: make(chan struct{}, 1), acknowledgements: make(chan struct{}, 1),
		reports: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 2*time.Second)),
	}
	u.works = newWorks(consumer, func(name string) { u.reports.Add(name) })
	u.traces = &traces{tracing: tracing.Off(), consumer: consumer, lister: freshLister{u.works}}
	return u
}

// run sends reports and resyncs until ctx ends.
func (u *uplink) run(ctx context.Context) {
	var running sync.WaitGroup
	for range reporters {
		running.Go(func() {
			for u.reportNext(ctx) {
			}
		})
	}
	running.Go(func() { u.resyncUntilAcknowledged(ctx) })
	<-ctx.Done()
	u.reports.ShutDown()
	running.Wait()
}

// up starts a resync, because events that the server sent while the link was down are lost.
func (u *uplink) up(context.Context) {
	u.mu.Lock()
	u.resync, u.acknowledged = uuid.NewString(), false
	u.mu.Unlock()
	select {
	case u.resyncStarted <- struct{}{}:
	default:
	}
}

// maxResyncRequests bounds the requests of one resync, for servers that never acknowledge. Each costs them a comparison.
const maxResyncRequests = 6

// resyncUntilAcknowledged requests each resync, with growing pauses, until the server acknowledges it.
func (u *uplink) resyncUntilAcknowledged(ctx context.Context) {
	pauses := backoff.New(time.Second, 30*time.Second)
	left := 0
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.resyncStarted:
			pauses.Reset()
			left = maxResyncRequests
		case <-retry:
		}
		u.mu.Lock()
		id, acknowledged := u.resync, u.acknowledged
		u.mu.Unlock()
		if id == "" || acknowledged || left == 0 {
			retry = nil
			continue
		}
		if err := u.sendResync(ctx, id, nil); err != nil {
			u.log.WarnContext(ctx, "requesting a resync failed", logkey.Error, err)
		}
		left--
		retry = time.After(pauses.Next())
	}
}

// reportOrphans sends a resync that also lists works that the agent does not have but has applied objects of, with a version
// that is older than any.
func (u *uplink) reportOrphans(ctx context.Context, orphans []string) error {
	return u.sendResync(ctx, uuid.NewString(), orphans)
}

func (u *uplink) sendResync(ctx context.Context, id string, orphans []string) error {
	works := u.works.list()
	versions := make([]payload.ResourceVersion, 0, len(works)+len(orphans))
	for _, work := range works {
		versions = append(versions, payload.ResourceVersion{ResourceID: string(work.UID), ResourceVersion: work.Generation})
	}
	for _, name := range orphans {
		versions = append(versions, payload.ResourceVersion{ResourceID: name})
	}
	parts, err := event.EncodeSpecResync(u.agent, u.consumer, id, versions)
	if err != nil {
		return err
	}
	u.log.InfoContext(ctx, "requesting a resync", logkey.Count, len(works), logkey.Parts, len(parts))
	for _, part := range parts {
		if err := u.link.Publish(ctx, maestroapi.AgentEventsTopic(u.source, u.consumer), part); err != nil {
			return err
		}
	}
	return nil
}

// receive handles an event of the server.
func (u *uplink) receive(ctx context.Context, _ string, evt *cloudevents.Event) {
	if id := event.AcknowledgedResync(evt); id != "" {
		u.mu.Lock()
		u.acknowledged = u.acknowledged || id == u.resync
		u.mu.Unlock()
		select {
		case u.acknowledgements <- struct{}{}:
		default:
		}
		return
	}
	action, err := event.ActionOf(evt)
	switch {
	case err != nil:
		u.log.ErrorContext(ctx, "invalid event dropped", logkey.Error, err)
	case action == event.StatusResync:
		u.respondToStatusResync(evt)
	case action == event.Create || action == event.Update || action == event.Delete:
		u.receiveSpec(evt)
	default:
		u.log.WarnContext(ctx, "unexpected type of server event", logkey.Type, evt.Type())
	}
}

func (u *uplink) receiveSpec(evt *cloudevents.Event) {
	work, err := u.codec.Decode(evt)
	if err != nil {
		u.log.Error("invalid work dropped", logkey.Error, err)
		return
	}
	if !work.DeletionTimestamp.IsZero() {
		// The codec omits the manifests of a deletion, which an agent needs after a restart.
		var bundle workpayload.ManifestBundle
		if err := evt.DataAs(&bundle); err == nil {
			work.Spec.Workload.Manifests = bundle.Manifests
			work.Spec.DeleteOption = bundle.DeleteOption
		}
	}
	if work.Namespace != u.consumer {
		u.log.Error("work of another consumer dropped", logkey.Consumer, work.Namespace)
		return
	}
	// Objects with feedback are watched even if the source requested polling.
	for i := range work.Spec.ManifestConfigs {
		if len(work.Spec.ManifestConfigs[i].FeedbackRules) > 0 {
			work.Spec.ManifestConfigs[i].FeedbackScrapeType = workv1.FeedbackWatchType
		}
	}
	u.traces.received(evt, work)
	u.works.receive(work)
}

// respondToStatusResync reports the works whose status differs from the one that the server has.
func (u *uplink) respondToStatusResync(evt *cloudevents.Event) {
	hashes, ignored, err := event.DecodeStatusResync(evt)
	if err != nil {
		u.log.Error("invalid status resync dropped", logkey.Error, err)
		return
	}
	if err := ignored.Err(); err != nil {
		u.log.Error("elements of a status resync are malformed; the others apply", logkey.Count, ignored.Count, logkey.Error, err)
	}
	for _, work := range u.works.list() {
		known, listed := hashes[string(work.UID)]
		if len(hashes) > 0 && !listed {
			continue
		}
		if hash, err := statushash.StatusHash(work); err != nil || hash != known {
			u.reports.Add(work.Name)
		}
	}
}

func (u *uplink) reportNext(ctx context.Context) bool {
	name, quit := u.reports.Get()
	if quit {
		return false
	}
	defer u.reports.Done(name)
	work, removed := u.works.report(name)
	if work == nil {
		u.reports.Forget(name)
		return true
	}
	err := u.send(ctx, work)
	if errors.Is(err, mqttlink.ErrTooLarge) {
		u.log.ErrorContext(ctx, "status too large; reporting it without feedback", logkey.Work, name, logkey.Error, err)
		err = u.send(ctx, withoutFeedback(work, err))
	}
	switch {
	case err == nil:
		if removed {
			u.works.markReported(work)
		}
		u.reports.Forget(name)
	case ctx.Err() != nil:
	default:
		if !errors.Is(err, mqttlink.ErrDown) {
			u.log.WarnContext(ctx, "reporting a status failed", logkey.Work, name, logkey.Error, err)
		}
		u.reports.AddRateLimited(name)
	}
	return true
}

func (u *uplink) send(ctx context.Context, work *workv1.ManifestWork) error {
	evt, err := u.codec.Encode(u.agent, types.CloudEventsType{
		CloudEventsDataType: workpayload.ManifestBundleEventDataType,
		SubResource:         types.SubResourceStatus,
		Action:              types.UpdateRequestAction,
	}, work)
	if err != nil {
		return fmt.Errorf("encoding the status of work %s: %w", work.Name, err)
	}
	return u.link.Publish(ctx, maestroapi.AgentEventsTopic(u.source, u.consumer), evt)
}

// withoutFeedback returns a copy of a work whose status has the reason instead of the feedback.
func withoutFeedback(work *workv1.ManifestWork, reason error) *workv1.ManifestWork {
	reduced := work.DeepCopy()
	for i := range reduced.Status.ResourceStatus.Manifests {
		manifest := &reduced.Status.ResourceStatus.Manifests[i]
		manifest.StatusFeedbacks.Values = nil
		meta.SetStatusCondition(&manifest.Conditions, metav1.Condition{
			Type: "StatusFeedbackSynced", Status: metav1.ConditionFalse, Reason: "StatusTooLarge", Message: strings.TrimSpace(reason.Error()),
		})
	}
	return reduced
}

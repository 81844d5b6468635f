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
	"github.com/hcpmesh/hcpmesh/maestro/pkg/event"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// reporters is how many reports are on their way at a time; each waits for the broker's acknowledgement.
const reporters = 16

// uplink is the agent's side of the wire: it takes the server's events in and reports what became of the works. Reports
// are kept as names of works, so that of several changes in a row only the newest is sent, and one at a time per work,
// so that they arrive in order. A report that fails is sent again until it succeeds.
type uplink struct {
	consumer, source, agent string
	link                    *mqttlink.Link
	works                   *works
	reports                 workqueue.TypedRateLimitingInterface[string]
	codec                   *codec.ManifestBundleCodec
	log                     *slog.Logger

	mu       sync.Mutex
	resync   string
	answered bool
	asked    chan struct{}
}

func newUplink(consumer, source, agent string, log *slog.Logger) *uplink {
	u := &uplink{
		consumer: consumer, source: source, agent: agent, log: log, codec: codec.NewManifestBundleCodec(), asked: make(chan struct{}, 1),
		reports: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](50*time.Millisecond, 2*time.Second)),
	}
	u.works = newWorks(consumer, func(name string) { u.reports.Add(name) })
	return u
}

// run reports and resyncs until the context ends.
func (u *uplink) run(ctx context.Context) {
	var running sync.WaitGroup
	for range reporters {
		running.Add(1)
		go func() {
			defer running.Done()
			for u.reportNext(ctx) {
			}
		}()
	}
	running.Add(1)
	go func() { defer running.Done(); u.askUntilAnswered(ctx) }()
	<-ctx.Done()
	u.reports.ShutDown()
	running.Wait()
}

// up begins a resync: whatever the server sent while the link was down is lost.
func (u *uplink) up(context.Context) {
	u.mu.Lock()
	u.resync, u.answered = uuid.NewString(), false
	u.mu.Unlock()
	select {
	case u.asked <- struct{}{}:
	default:
	}
}

// askUntilAnswered sends the current resync, again with growing pauses until the server has acknowledged it. Servers
// that never acknowledge get a few more, which costs them a comparison each.
func (u *uplink) askUntilAnswered(ctx context.Context) {
	const tries = 6
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pause, left := time.Second, 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-u.asked:
			pause, left = time.Second, tries
		case <-timer.C:
		}
		u.mu.Lock()
		id, answered := u.resync, u.answered
		u.mu.Unlock()
		if id == "" || answered || left == 0 {
			timer.Reset(time.Hour)
			continue
		}
		if err := u.ask(ctx, id); err != nil {
			u.log.Warn("resync could not be asked for; trying again", "error", err)
		}
		left--
		timer.Reset(pause)
		pause = min(pause*2, 30*time.Second)
	}
}

func (u *uplink) ask(ctx context.Context, id string) error { return u.askWith(ctx, id, nil) }

// askAbout asks about works that the agent does not have, though they were applied once: with a version that is older than any.
func (u *uplink) askAbout(ctx context.Context, strays []string) error {
	return u.askWith(ctx, uuid.NewString(), strays)
}

func (u *uplink) askWith(ctx context.Context, id string, strays []string) error {
	held := u.works.held()
	versions := make([]payload.ResourceVersion, 0, len(held)+len(strays))
	for _, work := range held {
		versions = append(versions, payload.ResourceVersion{ResourceID: string(work.UID), ResourceVersion: work.Generation})
	}
	for _, work := range strays {
		versions = append(versions, payload.ResourceVersion{ResourceID: work})
	}
	parts, err := event.EncodeSpecResync(u.agent, u.consumer, id, versions)
	if err != nil {
		return err
	}
	u.log.Info("asking for a resync", "works", len(held), "parts", len(parts))
	for _, part := range parts {
		if err := u.link.Publish(ctx, maestroapi.AgentEventsTopic(u.source, u.consumer), part); err != nil {
			return err
		}
	}
	return nil
}

// receive takes an event from the server in.
func (u *uplink) receive(_ context.Context, _ string, evt *cloudevents.Event) {
	if id := event.AnsweredResync(evt); id != "" {
		u.mu.Lock()
		u.answered = u.answered || id == u.resync
		u.mu.Unlock()
		return
	}
	action, err := event.ActionOf(evt)
	switch {
	case err != nil:
		u.log.Error("event dropped", "error", err)
	case action == event.StatusResync:
		u.answerStatusResync(evt)
	case action == event.Create || action == event.Update || action == event.Delete:
		u.receiveSpec(evt)
	default:
		u.log.Warn("event of a kind that servers do not send", "type", evt.Type())
	}
}

func (u *uplink) receiveSpec(evt *cloudevents.Event) {
	work, err := u.codec.Decode(evt)
	if err != nil {
		u.log.Error("work cannot be decoded; it stays unconfirmed", "error", err)
		return
	}
	if !work.DeletionTimestamp.IsZero() {
		// The codec leaves the manifests of a deletion out. An agent that was restarted knows them from nowhere else.
		var bundle workpayload.ManifestBundle
		if err := evt.DataAs(&bundle); err == nil {
			work.Spec.Workload.Manifests = bundle.Manifests
			work.Spec.DeleteOption = bundle.DeleteOption
		}
	}
	if work.Namespace != u.consumer {
		u.log.Error("work for another consumer dropped", "consumer", work.Namespace)
		return
	}
	// Feedback is watched, whatever the source asked for: polling is for what cannot be watched.
	for i := range work.Spec.ManifestConfigs {
		if len(work.Spec.ManifestConfigs[i].FeedbackRules) > 0 {
			work.Spec.ManifestConfigs[i].FeedbackScrapeType = workv1.FeedbackWatchType
		}
	}
	u.works.receive(work)
}

// answerStatusResync reports the works whose status the server does not have.
func (u *uplink) answerStatusResync(evt *cloudevents.Event) {
	hashes, err := event.DecodeStatusResync(evt)
	if err != nil {
		u.log.Error("status resync dropped", "error", err)
		return
	}
	for _, work := range u.works.held() {
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
	work, gone := u.works.report(name)
	if work == nil {
		u.reports.Forget(name)
		return true
	}
	err := u.send(ctx, work)
	if errors.Is(err, mqttlink.ErrTooLarge) {
		u.log.Error("status is too large; reported without feedback", "work", name, "error", err)
		err = u.send(ctx, curtailed(work, err))
	}
	switch {
	case err == nil:
		if gone {
			u.works.reported(work)
		}
		u.reports.Forget(name)
	case ctx.Err() != nil:
	default:
		if !errors.Is(err, mqttlink.ErrDown) {
			u.log.Warn("status not reported; trying again", "work", name, "error", err)
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
		return fmt.Errorf("encode the status of work %s: %w", work.Name, err)
	}
	return u.link.Publish(ctx, maestroapi.AgentEventsTopic(u.source, u.consumer), evt)
}

// curtailed is a status without the feedback that makes it too large, and with the reason.
func curtailed(work *workv1.ManifestWork, why error) *workv1.ManifestWork {
	small := work.DeepCopy()
	for i := range small.Status.ResourceStatus.Manifests {
		manifest := &small.Status.ResourceStatus.Manifests[i]
		manifest.StatusFeedbacks.Values = nil
		meta.SetStatusCondition(&manifest.Conditions, metav1.Condition{
			Type: "StatusFeedbackSynced", Status: metav1.ConditionFalse, Reason: "StatusTooLarge", Message: strings.TrimSpace(why.Error()),
		})
	}
	return small
}

package egress

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/controlplane"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/reportqueue"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// manager is the field manager of reports on HostedClusters.
const manager = client.FieldOwner("egress-proxy")

const (
	// maxPending is the number of targets of one control plane that wait to be reported. Others are dropped, and reported if the
	// control plane connects to them again.
	maxPending = 8
	// maxControlPlanes is the number of control planes that wait to be reported.
	maxControlPlanes = 4096
	// maxKnown is the number of reported targets that are remembered to avoid reads. All are forgotten beyond it, which costs one read
	// for each target.
	maxKnown = 16384
	// writeTimeout bounds the requests of one report.
	writeTimeout = 30 * time.Second
)

// key is a target of a control plane.
type key struct{ controlPlane, target string }

// reported is what the report of a HostedCluster has about a target; the outcome is empty if it does not have the target.
type reported struct {
	outcome hostedreport.EgressOutcome
	at      time.Time
}

// Reporter writes connections that were not made to an annotation of the HostedCluster of their control plane, and removes them when
// the connection was made. It reads a HostedCluster only when the outcome for a target changes.
type Reporter struct {
	management client.Client
	log        *slog.Logger
	queue      *reportqueue.Queue

	mu      sync.Mutex
	pending map[string]map[string]reported // by control plane and target
	known   map[key]reported
}

// NewReporter returns a Reporter. The caller must call Run.
func NewReporter(management client.Client, log *slog.Logger) *Reporter {
	return &Reporter{management: management, log: log, queue: reportqueue.New(), pending: map[string]map[string]reported{}, known: map[key]reported{}}
}

// Record records an attempt. It does not block.
func (r *Reporter) Record(attempt Attempt) { r.record(attempt, time.Now()) }

func (r *Reporter) record(attempt Attempt, now time.Time) {
	next := reported{hostedreport.EgressOutcome(attempt.Outcome), now}
	switch attempt.Outcome {
	case OutcomeBusy:
		return // about the control plane, not about the target
	case OutcomeAllowed:
		next.outcome = ""
	}
	target := strings.ToLower(attempt.Target)
	r.mu.Lock()
	defer r.mu.Unlock()
	targets := r.pending[attempt.Client]
	_, waits := targets[target]
	known, found := r.known[key{attempt.Client, target}]
	switch {
	case waits: // the latest outcome counts
	case found && known.outcome == next.outcome && (next.outcome == "" || now.Sub(known.at) < hostedreport.Again):
		return
	case len(targets) >= maxPending || targets == nil && len(r.pending) >= maxControlPlanes:
		return
	case targets == nil:
		targets = map[string]reported{}
		r.pending[attempt.Client] = targets
	}
	targets[target] = next
	r.queue.Add(attempt.Client, 0)
}

// Run writes reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) { r.queue.Run(ctx, r.log, r.write) }

// write adds the pending targets of a control plane to the report of its HostedCluster.
func (r *Reporter) write(ctx context.Context, controlPlane string) error {
	r.mu.Lock()
	pending := map[string]reported{}
	for target, outcome := range r.pending[controlPlane] {
		pending[target] = outcome
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	hc, err := controlplane.HostedCluster(ctx, r.management, controlPlane)
	if err != nil {
		return err
	}
	if hc != nil {
		if err := r.update(ctx, hc, pending); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) > maxKnown {
		r.known = map[key]reported{}
	}
	for target, written := range pending {
		r.known[key{controlPlane, target}] = written
		if r.pending[controlPlane][target] == written {
			delete(r.pending[controlPlane], target)
		}
	}
	if len(r.pending[controlPlane]) == 0 {
		delete(r.pending, controlPlane)
	}
	return nil
}

func (r *Reporter) update(ctx context.Context, hc *hyperv1.HostedCluster, pending map[string]reported) error {
	report := hostedreport.DecodeEgress(hc.Annotations[hostedreport.EgressAnnotation])
	changed := false
	for target, outcome := range pending {
		if outcome.outcome == "" {
			changed = report.Clear(target) || changed
		} else {
			changed = report.Note(target, outcome.outcome, outcome.at) || changed
		}
	}
	if !changed {
		return nil
	}
	report.Forget(time.Now())
	text, err := report.Encode()
	if err != nil {
		return err
	}
	next := hc.DeepCopy()
	if len(report) == 0 {
		delete(next.Annotations, hostedreport.EgressAnnotation)
	} else {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[hostedreport.EgressAnnotation] = text
	}
	err = r.management.Patch(ctx, next, readyourwrites.LockedPatch(hc), manager)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reporting connections on HostedCluster %s/%s: %w", hc.Namespace, hc.Name, err)
	}
	return nil
}

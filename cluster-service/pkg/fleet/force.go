package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
)

// Leftover is a work of a forced step. Its deletion is requested until it is confirmed.
type Leftover struct {
	WorkID     string
	Work       string
	Shard      string
	ClusterUID string
	Step       string
	Force      *csv1.DeletionForce
	// ReleaseFinalizers are the finalizers that the agent removes.
	ReleaseFinalizers []string
	Attempts          int32
	GoneTime          time.Time
}

// Proto returns the leftover as a message of the API.
func (l *Leftover) Proto() *csv1.DeletionLeftover {
	return &csv1.DeletionLeftover{WorkId: l.WorkID, Work: l.Work, ProvisionShard: l.Shard, ClusterUid: l.ClusterUID, Step: l.Step,
		Force: l.Force, Attempts: l.Attempts, GoneTime: timestamp(l.GoneTime)}
}

// StepRefusal is the error of a refused action on a step. Its message states what is allowed.
type StepRefusal struct {
	// Unknown reports that the step does not exist.
	Unknown bool
	Message string
}

func (r *StepRefusal) Error() string { return r.Message }

func refuse(format string, args ...any) error {
	return &StepRefusal{Message: fmt.Sprintf(format, args...)}
}

// step returns a step of the aggregate's graphs, and all the graphs that contain it.
func (t *ClusterAggregate) step(name string) (step *csv1.DeletionStep, in []*csv1.Deletion) {
	return deletiongraph.Find(t.graphs(), name)
}

func (t *ClusterAggregate) graphs() []*csv1.Deletion {
	var graphs []*csv1.Deletion
	if t.Cluster != nil {
		graphs = append(graphs, t.Cluster.Status.GetDeletion())
	}
	for _, p := range t.Pools {
		graphs = append(graphs, p.Status.GetDeletion())
	}
	for _, a := range t.ExternalAuths {
		graphs = append(graphs, a.Status.GetDeletion())
	}
	return graphs
}

// running returns a running step and the work that it removes. It returns an error for a step that accepts no action.
func (t *ClusterAggregate) running(name string) (*csv1.DeletionStep, *Work, []*csv1.Deletion, error) {
	step, graphs := t.step(name)
	if step == nil {
		var open []string
		for _, g := range t.graphs() {
			for _, s := range g.GetSteps() {
				if s.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING && !slices.Contains(open, s.GetName()) {
					open = append(open, s.GetName())
				}
			}
		}
		message := "No deletion is in progress."
		if len(open) > 0 {
			message = "Running steps: " + strings.Join(open, ", ") + "."
		}
		return nil, nil, nil, &StepRefusal{Unknown: true, Message: fmt.Sprintf("There is no step %q. %s", name, message)}
	}
	switch step.GetState() {
	case csv1.DeletionStepState_DELETION_STEP_STATE_DONE, csv1.DeletionStepState_DELETION_STEP_STATE_FORCED:
		return nil, nil, nil, refuse("Step %s has ended.", name)
	case csv1.DeletionStepState_DELETION_STEP_STATE_WAITING:
		return nil, nil, nil, refuse("Step %s waits for other steps: %s. Force those steps instead.", name, strings.Join(step.GetAfter(), ", "))
	}
	return step, t.WorkByID(step.GetWork()), graphs, nil
}

// ForceDeletionStep ends a stuck step of a deletion without the confirmation that it waits for. The deletion of its work is
// still requested, as a leftover. It refuses a step that is not stuck, and a step without which the deletion would harm
// others.
func (r Region) ForceDeletionStep(now time.Time, t *ClusterAggregate, name string, actor *csv1.Actor) (*csv1.DeletionStep, error) {
	step, work, graphs, err := t.running(name)
	if err != nil {
		return nil, err
	}
	switch kind := step.GetKind(); {
	case strings.HasSuffix(kind, deletiongraph.PublishKind):
		return nil, refuse("Step %s cannot be forced: no component removes the objects before Maestro accepts the deletion. Cluster Service retries the step; a retry of the deletion retries it at once.", name)
	case kind == deletiongraph.ExternalAuth:
		return nil, refuse("Step %s cannot be forced: the control plane would still trust the issuer. The agent applies the HostedCluster again every few minutes. Deleting the cluster also completes the step.", name)
	case kind == deletiongraph.NodePool && (t.Cluster == nil || !t.Cluster.Deleting()):
		return nil, refuse("Step %s cannot be forced unless its cluster is being deleted: a new node pool of the same name would conflict with the remaining objects. Release the finalizers of controllers that no longer exist, or delete the cluster with all its node pools.", name)
	case work == nil && t.azureStep(step) == nil:
		return nil, refuse("Step %s cannot be forced: it removes neither a work nor an Azure resource.", name)
	case !step.GetStuck():
		return nil, refuse("Step %s is not stuck: it has been running since %s and may be forced from %s on. A retry is allowed now.", name,
			step.GetSince().AsTime().Format(time.RFC3339), step.GetStuckTime().AsTime().Format(time.RFC3339))
	case kind == deletiongraph.HostedCluster && slices.ContainsFunc(t.Works, func(w *Work) bool { return w.Kind == NodePoolWork }):
		return nil, refuse("Step %s cannot be forced before the steps of the node pools: the agent would create a NodePool again. Force those steps first.", name)
	}
	if a := t.azureStep(step); a != nil {
		return t.forceAzure(now, step, a, graphs, actor), nil
	}
	force := &csv1.DeletionForce{Actor: proto.CloneOf(actor), Time: timestamp(now), LeftBehind: r.leftBehind(t, step, work)}
	forced := &csv1.DeletionStep{Name: name, Kind: step.Kind, Layer: step.Layer, After: step.After, Work: step.Work, Finalizers: step.Finalizers,
		Attempts: step.Attempts, LastError: step.LastError, Actions: step.Actions,
		State: csv1.DeletionStepState_DELETION_STEP_STATE_FORCED, Since: timestamp(now), Force: force}
	deletiongraph.Replace(graphs, forced)
	t.Leftovers = append(t.Leftovers, &Leftover{WorkID: work.ID, Work: work.Name, Shard: work.Shard, ClusterUID: work.ClusterUID, Step: name,
		Force: force, ReleaseFinalizers: slices.Clone(work.ReleaseFinalizers)})
	t.Works = slices.DeleteFunc(t.Works, func(w *Work) bool { return w == work })
	return forced, nil
}

// leftBehind describes what a forced step may leave behind.
func (r Region) leftBehind(t *ClusterAggregate, step *csv1.DeletionStep, w *Work) string {
	text := fmt.Sprintf("Cluster Service requests the deletion of work %s on %s until the agent confirms it.", w.Name, w.Shard)
	switch step.GetKind() {
	case deletiongraph.NodePool:
		text += " May be left: the NodePool with its machines in the customer's subscription, which HyperShift removes with the HostedCluster."
	case deletiongraph.Credential, deletiongraph.Revocation:
		text += " May be left: a certificate request and its approval, which have no effect after the control plane is deleted."
	case deletiongraph.Rollout:
		text += " No objects are left: the work applied none. The agent still reads the components' status."
	case deletiongraph.HostedCluster:
		text += " May be left: the HostedCluster, its control plane, and the resources that HyperShift created for it in the customer's subscription. The deletion of the namespaces continues and deletes the objects in them. The shard counts the place as free when the deletion ends."
	case deletiongraph.Namespaces:
		text += " May be left: the cluster's terminating namespaces with their remaining objects. Their names are never used again. The shard counts the place as free."
	}
	if remaining := w.Observed.Remaining(); remaining != "" {
		text += " The agent last reported: " + remaining
	}
	return text
}

// ReleaseFinalizers makes the agent remove finalizers of controllers that do not exist any more. The step still waits for
// the deletion; only what the missing controller would have cleaned up is left behind.
func (r Region) ReleaseFinalizers(now time.Time, t *ClusterAggregate, name string, finalizers []string, actor *csv1.Actor) (*csv1.DeletionStep, error) {
	step, work, graphs, err := t.running(name)
	if err != nil {
		return nil, err
	}
	if step.GetLayer() != LayerManagementCluster || step.GetKind() == deletiongraph.ExternalAuth || work == nil {
		return nil, refuse("Step %s waits for no finalizer.", name)
	}
	for _, f := range finalizers {
		for _, protected := range managementcluster.PermanentFinalizers() {
			if strings.HasPrefix(f, protected) {
				return nil, refuse("Finalizer %s cannot be released: its controller runs on every management cluster and still has resources to remove. Force the step instead, after the step is stuck.", f)
			}
		}
		if len(step.GetFinalizers()) > 0 && step.GetKind() != deletiongraph.Namespaces && !slices.Contains(step.GetFinalizers(), f) {
			return nil, refuse("The agent did not report finalizer %s for step %s. Reported finalizers: %s.", f, name, strings.Join(step.GetFinalizers(), ", "))
		}
		if !slices.Contains(work.ReleaseFinalizers, f) {
			work.ReleaseFinalizers = append(work.ReleaseFinalizers, f)
		}
	}
	slices.Sort(work.ReleaseFinalizers)
	askNow(work)
	deletiongraph.RecordAction(graphs, step, &csv1.DeletionStepAction{Actor: proto.CloneOf(actor), Time: timestamp(now), ReleasedFinalizers: finalizers})
	return step, nil
}

// RetryDeletion retries the pending steps of an aggregate's deletions at once, and returns their names.
func (r Region) RetryDeletion(now time.Time, t *ClusterAggregate, actor *csv1.Actor) []string {
	var names []string
	for _, w := range t.Works {
		if !w.Deleting() {
			continue
		}
		askNow(w)
		_, name := t.stepOf(w)
		for _, candidate := range []string{name, name + deletiongraph.PublishName} {
			if step, graphs := t.step(candidate); step.GetState() == csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING {
				deletiongraph.RecordAction(graphs, step, &csv1.DeletionStepAction{Actor: proto.CloneOf(actor), Time: timestamp(now)})
				names = append(names, candidate)
			}
		}
	}
	names = append(names, t.retryAzureDeletion(now, actor)...)
	for _, a := range t.ExternalAuths {
		work := t.Work(HostedCluster, "")
		if !a.Deleting() || a.Gone() || work == nil || work.Deleting() || work.Published >= work.Desired {
			continue // the agent applies what it has again by itself
		}
		askNow(work)
		name := deletiongraph.ExternalAuth + "/" + strings.ToLower(a.Spec.GetName()) + deletiongraph.PublishName
		step, graphs := t.step(name)
		deletiongraph.RecordAction(graphs, step, &csv1.DeletionStepAction{Actor: proto.CloneOf(actor), Time: timestamp(now)})
		names = append(names, name)
	}
	return names
}

func askNow(w *Work) {
	w.Attempts, w.Error, w.RetryTime, w.Refused = 0, "", time.Time{}, false
}

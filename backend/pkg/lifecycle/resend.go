package lifecycle

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// ResendResult is what Resend did.
type ResendResult string

// What Resend can do.
const (
	// Settled: there is nothing to send: it was sent meanwhile, or is under way, or is not wanted any more.
	NotNeeded ResendResult = "settled"
	// Applied and Deleted: the desired state, or the deletion, was sent again.
	Applied ResendResult = "applied"
	Deleted ResendResult = "deleted"
	// Refused: Cluster Service will not have it; the error says why.
	Refused ResendResult = "refused"
	// Ended: the cluster was deleted, as its billing says, and its document is of before that.
	AlreadyDeleted ResendResult = "ended"
)

// Resend sends to Cluster Service again what it had accepted of a resource and lost, if that is so: it looks at both sides anew.
// No operation is begun for it, and no document written: what becomes of it comes back as reports do. A change that the customer
// makes meanwhile has a newer generation, and wins at Cluster Service whichever arrives first.
func (c *Controller) Resend(ctx context.Context, kind database.Kind, key database.Key, uid, clusterUID string) (ResendResult, error) {
	switch kind {
	case database.ClusterKind:
		return c.clusters.resend(ctx, key, uid, clusterUID)
	case database.NodePoolKind:
		return c.nodePools.resend(ctx, key, uid, clusterUID)
	case database.ExternalAuthKind:
		return c.externalAuths.resend(ctx, key, uid, clusterUID)
	}
	return "", fmt.Errorf("nothing of kind %q is sent", kind)
}

func (k *kind[D]) resend(ctx context.Context, key database.Key, uid, clusterUID string) (ResendResult, error) {
	ctx, cancel := context.WithTimeout(ctx, processTimeout)
	defer cancel()
	item, err := k.collection.Find(ctx, key)
	if err != nil || item == nil || item.Removed != nil {
		return NotNeeded, err
	}
	v := k.view(&item.Value)
	if v.uid != uid || *v.operation != "" || *v.state == hub.Deleting || v.fleet.AcceptedGeneration == 0 {
		return NotNeeded, nil
	}
	call, sent := k.apply, Applied
	if v.fleet.Phase == clusterservice.PhaseDeleting {
		call, sent = k.remove, Deleted
	}
	report, err := k.get(ctx, uid)
	switch {
	case err != nil && apierror.KindOf(err) == apierror.NotFound:
		// What was deleted is not made again, however old the document is that says otherwise.
		proof, err := k.db.FindDeletionProof(ctx, k.collection.Kind(), key, uid, clusterUID)
		if err != nil {
			return "", err
		}
		if proof != "" && sent == Applied {
			return AlreadyDeleted, fmt.Errorf("%s says that it was deleted", proof)
		}
	case err != nil:
		return "", fmt.Errorf("asking Cluster Service for a report: %w", err)
	case report.Deleting:
		return NotNeeded, nil
	case sent == Applied && report.Generation >= v.fleet.AcceptedGeneration:
		lowered, err := k.releaseLowered(ctx, v)
		if err != nil || !lowered {
			return NotNeeded, err
		}
	}
	callCtx, cancelCall := context.WithTimeout(ctx, callTimeout)
	defer cancelCall()
	k.metrics.Resent.WithLabelValues(string(k.collection.Kind()), string(sent)).Inc()
	if _, err := call(callCtx, &item.Value); err != nil {
		switch reason := apierror.As(err).Reason; {
		case reason == clusterservice.ReasonUIDDeleted || reason == clusterservice.ReasonClusterDeleting:
			return NotNeeded, nil // meanwhile, or before: what became of it is reported
		case refusal(err) != nil:
			return Refused, err
		}
		return "", fmt.Errorf("sending %s to Cluster Service again: %w", key.ResourceID, err)
	}
	k.log.WarnContext(ctx, "Cluster Service had lost what it had accepted, and was told again", "resourceId", key.ResourceID, "uid", uid, "generation", v.generation,
		"sent", string(sent), "held", report.Generation, "accepted", v.fleet.AcceptedGeneration)
	return sent, nil
}

// releaseLowered says that the fleet holds an older release of a cluster than it did.
func (k *kind[D]) releaseLowered(ctx context.Context, v view) (bool, error) {
	if k.recovery == nil || v.fleet.Recovery == nil {
		return false, nil
	}
	now, err := k.clusterService.Recovery(ctx, v.uid, v.fleet.Recovery.Fingerprint)
	if err != nil || now == nil {
		return false, err
	}
	is, err := release.ParseVersion(now.ReleaseVersion)
	was, wasErr := release.ParseVersion(v.fleet.Recovery.ReleaseVersion)
	return err == nil && wasErr == nil && is.Compare(was) < 0, nil
}

// CountDeleted counts a deletion that was sent again beside Resend.
func (c *Controller) CountDeleted(kind database.Kind) {
	c.metrics.Resent.WithLabelValues(string(kind), string(Deleted)).Inc()
}

// recoveryOf is what has to be kept of a resource with a report.
func (k *kind[D]) recoveryOf(ctx context.Context, item *database.Item[D], report *clusterservice.Report) (*database.FleetRecovery, error) {
	if k.recovery == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	recovery, err := k.recovery(ctx, &item.Value, report)
	if err != nil {
		return nil, fmt.Errorf("asking Cluster Service for what is to be kept: %w", err)
	}
	return recovery, nil
}

// updateStatus takes over what a report says, and says whether that is to be written. Without an operation what differs in nothing but
// the time since when it is so is none: a fleet that was restored says all of it with other times.
func (k *kind[D]) updateStatus(item *database.Item[D], operation *database.Item[database.OperationDocument], report *clusterservice.Report) bool {
	v := k.view(&item.Value)
	before := item.Value
	kept := k.recovery != nil && report.RecoveryFingerprint != "" && (v.fleet.Recovery == nil || v.fleet.Recovery.Fingerprint != report.RecoveryFingerprint)
	if !k.observe(&item.Value, report) {
		return kept
	}
	if operation == nil && reflect.DeepEqual(withoutTimes(reflect.ValueOf(before)), withoutTimes(reflect.ValueOf(item.Value))) {
		item.Value = before
		return kept
	}
	return true
}

var timeType = reflect.TypeFor[time.Time]()

// withoutTimes is a copy of a value of a document in which all times are the same.
func withoutTimes(v reflect.Value) any {
	copied := reflect.New(v.Type()).Elem()
	copyWithoutTimes(copied, v)
	return copied.Interface()
}

func copyWithoutTimes(to, from reflect.Value) {
	switch {
	case from.Type() == timeType:
		return
	case from.Kind() == reflect.Struct:
		for i := range from.NumField() {
			copyWithoutTimes(to.Field(i), from.Field(i))
		}
	case from.Kind() == reflect.Slice && !from.IsNil():
		to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyWithoutTimes(to.Index(i), from.Index(i))
		}
	default:
		to.Set(from)
	}
}

// isForeign says that the generation that Cluster Service holds is not this document's, though it is as new or newer: Cosmos DB was
// restored to an earlier state, and what its numbers meant before is not known here.
func (k *kind[D]) isForeign(item *database.Item[D], v view, report *clusterservice.Report) bool {
	return report.Generation > v.generation ||
		report.Generation == v.generation && report.Spec != nil && !proto.Equal(report.Spec, k.spec(&item.Value))
}

// raiseGeneration makes what a customer asks for now newer than all that Cluster Service holds. What the lost generations asked for is
// taken back by that and by nothing else.
func (k *kind[D]) raiseGeneration(ctx context.Context, item *database.Item[D], operation *database.Item[database.OperationDocument], report *clusterservice.Report) error {
	v := k.view(&item.Value)
	*v.generationField = report.Generation + 1
	operation.Value.Generation = *v.generationField
	batch := k.db.NewBatch(item.Key.SubscriptionID)
	database.Replace(batch, item)
	database.Replace(batch, operation)
	if err := batch.Commit(ctx); err != nil {
		return err
	}
	k.log.WarnContext(ctx, "what is asked for was made newer than what Cluster Service holds, which the store does not know", "resourceId", item.Key.ResourceID,
		"operationId", operation.Value.OperationID, "generation", operation.Value.Generation)
	return nil
}

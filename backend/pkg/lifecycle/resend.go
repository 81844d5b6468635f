package lifecycle

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/backend/pkg/customererror"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
)

// ResendResult is the result of Resend.
type ResendResult string

// The results of Resend.
const (
	// NotNeeded: nothing was sent. The state was sent meanwhile, an operation is active, or it is no longer desired.
	NotNeeded ResendResult = "not-needed"
	// Applied and Deleted: the desired state, or the deletion, was sent again.
	Applied ResendResult = "applied"
	Deleted ResendResult = "deleted"
	// Refused: Cluster Service rejects the request; the error has the reason.
	Refused ResendResult = "refused"
	// AlreadyDeleted: a stored proof shows that the resource was deleted, so that its document is from an earlier
	// state.
	AlreadyDeleted ResendResult = "already-deleted"
)

// Resend sends the accepted state of a resource to Cluster Service again if Cluster Service has lost it. It reads both
// sides first. It creates no operation and writes no document: the outcome arrives as reports. A change that the
// customer makes meanwhile has a newer generation, which wins at Cluster Service in any order.
func (c *Controller) Resend(ctx context.Context, kind database.Kind, key database.Key, uid, clusterUID string) (ResendResult, error) {
	switch kind {
	case database.ClusterKind:
		return c.clusters.resend(ctx, key, uid, clusterUID)
	case database.NodePoolKind:
		return c.nodePools.resend(ctx, key, uid, clusterUID)
	case database.ExternalAuthKind:
		return c.externalAuths.resend(ctx, key, uid, clusterUID)
	}
	return "", fmt.Errorf("resending %s: unsupported kind %q", key.ResourceID, kind)
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
		// A deleted resource is not created again from a document of an earlier state.
		proof, err := k.db.FindDeletionProof(ctx, k.collection.Kind(), key, uid, clusterUID)
		if err != nil {
			return "", err
		}
		if proof != "" && sent == Applied {
			return AlreadyDeleted, fmt.Errorf("the resource was deleted, as proven by %s", proof)
		}
	case err != nil:
		return "", fmt.Errorf("reading the report of Cluster Service: %w", err)
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
			return NotNeeded, nil // deleted meanwhile or before; reports show the outcome
		case customererror.FromRejection(err) != nil:
			return Refused, err
		}
		return "", fmt.Errorf("sending %s to Cluster Service again: %w", key.ResourceID, err)
	}
	k.log.WarnContext(ctx, "sent lost state to Cluster Service again", logkey.ResourceID, key.ResourceID, logkey.UID, uid, logkey.Generation, v.generation,
		logkey.Outcome, string(sent), logkey.FleetGeneration, report.Generation, logkey.AcceptedGeneration, v.fleet.AcceptedGeneration)
	return sent, nil
}

// releaseLowered reports whether the fleet has an older release of a cluster than the recorded one.
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

// CountDeleted counts a deletion that was sent again without Resend.
func (c *Controller) CountDeleted(kind database.Kind) {
	c.metrics.Resent.WithLabelValues(string(kind), string(Deleted)).Inc()
}

// recoveryOf returns the recovery data to store with a report.
func (k *kind[D]) recoveryOf(ctx context.Context, item *database.Item[D], report *clusterservice.Report) (*database.FleetRecovery, error) {
	if k.recovery == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	recovery, err := k.recovery(ctx, &item.Value, report)
	if err != nil {
		return nil, fmt.Errorf("reading the recovery data from Cluster Service: %w", err)
	}
	return recovery, nil
}

// updateStatus copies the status of a report into the document, and reports whether to write it. Without an operation,
// differences in nothing but times are ignored: a restored fleet reports the same state with other times.
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

// withoutTimes returns a copy of a document's value in which all times are zero.
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

// isForeign reports whether the generation that Cluster Service has is not the one in this document, although it is as
// new or newer. This happens after Cosmos DB was restored to an earlier state: the same generation then has another
// content.
func (k *kind[D]) isForeign(item *database.Item[D], v view, report *clusterservice.Report) bool {
	return report.Generation > v.generation ||
		report.Generation == v.generation && report.Spec != nil && !proto.Equal(report.Spec, k.spec(&item.Value))
}

// raiseGeneration makes the customer's current request newer than everything that Cluster Service has. Nothing else
// reverts the changes of the lost generations.
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
	k.log.WarnContext(ctx, "raised the generation above that of Cluster Service, which Cosmos DB does not have", logkey.ResourceID, item.Key.ResourceID,
		logkey.OperationID, operation.Value.OperationID, logkey.Generation, operation.Value.Generation)
	return nil
}

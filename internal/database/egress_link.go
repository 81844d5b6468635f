package database

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// egressLinkPartition is the prefix of partition keys of the container EgressLinks. The rest is the ID of the link.
const egressLinkPartition = "egress-link:"

const (
	// EgressMaxStaleness is how long a replica of the egress gateway serves connections after the last read of the links. Then it refuses new
	// ones and closes the others, because it cannot know which links were removed.
	EgressMaxStaleness = 10 * time.Minute
	// EgressLinkQuarantine is how long the ID of a removed link is not accepted for another cluster. It is longer than EgressMaxStaleness, so
	// that no replica serves a connection for the earlier cluster. The rest is for clocks that differ.
	EgressLinkQuarantine = 15 * time.Minute
	// MaxEgressHosts is how many hosts one link may have.
	MaxEgressHosts = 200
)

// EgressLinkDocument assigns a private endpoint of the egress gateway to a cluster. Azure chooses the ID of the link and uses it again after the
// private endpoint was deleted. The backend writes it for an engineer, and the egress gateway follows it. It authorizes nothing without the Intent: whoever can write to
// the database can write the other fields.
type EgressLinkDocument struct {
	// LinkID is the link ID of the private endpoint, in decimal form.
	LinkID string `json:"linkId"`
	// Generation grows by one whenever the link is assigned to a cluster after a removal. The first is 1, also after the document expired.
	Generation int64  `json:"generation"`
	ClusterUID string `json:"clusterUid"`
	ResourceID string `json:"resourceId"`
	// Hosts are the canonical names of hosts that the cluster may connect to, beside those of the region; sorted.
	Hosts []string `json:"hosts,omitempty"`
	// OperationID is the admin operation that wrote the link last, and RequestTime when the engineer requested it. An operation that was
	// requested earlier does not replace it. If the link was removed with its cluster, they are the operation and the time of that.
	OperationID string    `json:"operationId"`
	RequestTime time.Time `json:"requestTime"`
	// Intent is the signed intent of OperationID, with which the engineer asked for the link, the cluster and the hosts. It authorizes them after its end too. It is
	// empty for a link that was removed, and in documents of earlier releases.
	Intent string `json:"intent,omitempty"`
	// RemovedTime is when the link was removed; nil for a link that is in use.
	RemovedTime *time.Time `json:"removedTime,omitempty"`
}

// ParseEgressLinkID parses the ID of a link in its canonical decimal form, 1 to 4294967295.
func ParseEgressLinkID(text string) (uint32, error) {
	id, err := strconv.ParseUint(text, 10, 32)
	if err != nil || id == 0 || strconv.FormatUint(id, 10) != text {
		return 0, apierror.New(apierror.InvalidParameter, "The link ID must be a decimal number from 1 to 4294967295 without leading zeros.").WithTarget("link")
	}
	return uint32(id), nil
}

// Assign assigns the link to a cluster, or changes its hosts. The result of an assignment that is repeated is the same. Another cluster is refused
// while the link has one, and for EgressLinkQuarantine after its removal.
func (l *EgressLinkDocument) Assign(next EgressLinkDocument, now time.Time) (changed bool, err error) {
	if superseded, err := l.superseded(next.OperationID, next.RequestTime); superseded || err != nil {
		return false, err
	}
	other := l.ClusterUID != next.ClusterUID
	switch {
	case other && l.RemovedTime == nil:
		return false, apierror.New(apierror.Conflict, "The link %s belongs to the cluster %s. Delete the link first.", l.LinkID, l.ResourceID)
	case other && now.Before(l.RemovedTime.Add(EgressLinkQuarantine)):
		return false, apierror.New(apierror.Conflict, "The link %s was removed from the cluster %s at %s. It can be assigned to another cluster from %s on.",
			l.LinkID, l.ResourceID, l.RemovedTime.UTC().Format(time.RFC3339), l.RemovedTime.Add(EgressLinkQuarantine).UTC().Format(time.RFC3339))
	}
	next.LinkID, next.Generation = l.LinkID, l.Generation
	if l.RemovedTime != nil {
		next.Generation++
	}
	next.RemovedTime = nil
	*l = next
	return true, nil
}

// Remove removes the link from a cluster.
func (l *EgressLinkDocument) Remove(clusterUID, operationID string, requestTime, now time.Time) (changed bool, err error) {
	if superseded, err := l.superseded(operationID, requestTime); superseded || err != nil {
		return false, err
	}
	if l.ClusterUID != clusterUID {
		return false, apierror.New(apierror.Conflict, "The link %s belongs to the cluster %s, to which it was assigned since its removal was requested.", l.LinkID, l.ResourceID)
	}
	if l.RemovedTime != nil {
		return false, apierror.New(apierror.NotFound, "The link %s was removed at %s.", l.LinkID, l.RemovedTime.UTC().Format(time.RFC3339))
	}
	l.remove(operationID, requestTime, now)
	return true, nil
}

// Withdraw removes the link if an operation wrote it last, for example because its cluster is being deleted.
func (l *EgressLinkDocument) Withdraw(operationID string, now time.Time) (changed bool) {
	if l.OperationID != operationID || l.RemovedTime != nil {
		return false
	}
	l.remove(l.OperationID, l.RequestTime, now)
	return true
}

// End removes the link from a cluster that is gone. operationID is the operation of the deletion.
func (l *EgressLinkDocument) End(clusterUID, operationID string, now time.Time) (changed bool) {
	if l.ClusterUID != clusterUID || l.RemovedTime != nil {
		return false
	}
	l.remove(operationID, now, now)
	return true
}

func (l *EgressLinkDocument) remove(operationID string, requestTime, now time.Time) {
	l.OperationID, l.RequestTime, l.RemovedTime, l.Hosts, l.Intent = operationID, requestTime, &now, nil, ""
}

// superseded reports whether an operation has written the link already. The error is about an operation that was requested later.
func (l *EgressLinkDocument) superseded(operationID string, requestTime time.Time) (bool, error) {
	switch {
	case l.OperationID == operationID:
		return true, nil
	case l.RequestTime.After(requestTime):
		return false, apierror.New(apierror.Conflict, "The operation %s, which was requested later, has changed the link %s.", l.OperationID, l.LinkID)
	}
	return false, nil
}

// Permits reports whether the cluster of the link may connect to a host with this canonical name.
func (l *EgressLinkDocument) Permits(host string) bool {
	_, found := slices.BinarySearch(l.Hosts, host)
	return found
}

// EgressLinkKey returns the key of an egress link.
func EgressLinkKey(id uint32) Key {
	text := strconv.FormatUint(uint64(id), 10)
	return Key{SubscriptionID: egressLinkPartition + text, ResourceID: "/egress-links/" + text}
}

// EachEgressLink calls each for all egress links, in no order, including those that were removed recently. An error of type *UnreadableError
// means that some documents were skipped.
func (db *DB) EachEgressLink(ctx context.Context, each func(*Item[EgressLinkDocument]) error) error {
	return db.queryEgressLinks(ctx, "", nil, each)
}

// queryEgressLinks calls each for the egress links that meet a condition of Cosmos DB's query language, or for all if it is empty.
func (db *DB) queryEgressLinks(ctx context.Context, condition string, parameters []azcosmos.QueryParameter, each func(*Item[EgressLinkDocument]) error) error {
	query := "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.deletionTimestamp)" + condition
	parameters = append(parameters, azcosmos.QueryParameter{Name: "@kind", Value: string(EgressLinkKind)})
	var unreadable UnreadableError
	return unreadable.orElse(db.pagesOf(ctx, func(c *client) *azcosmos.ContainerClient { return c.egressLinks }, azcosmos.NewPartitionKey(), query, parameters, func(document []byte) error {
		item, err := db.egressLinks.decode(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(item)
	}))
}

// AssignEgressLink assigns a link to a cluster, or changes its hosts, and commits that. See Assign.
func (db *DB) AssignEgressLink(ctx context.Context, id uint32, next EgressLinkDocument, now time.Time) (*EgressLinkDocument, error) {
	return db.changeEgressLink(ctx, id, func(l *EgressLinkDocument) (bool, error) {
		if l.Generation == 0 { // there is no document
			next.LinkID, next.Generation, next.RemovedTime = l.LinkID, 1, nil
			*l = next
			return true, nil
		}
		return l.Assign(next, now)
	})
}

// RemoveEgressLink removes a link from a cluster and commits that. See Remove.
func (db *DB) RemoveEgressLink(ctx context.Context, id uint32, clusterUID, operationID string, requestTime, now time.Time) (*EgressLinkDocument, error) {
	return db.changeEgressLink(ctx, id, func(l *EgressLinkDocument) (bool, error) {
		if l.Generation == 0 {
			return false, apierror.New(apierror.NotFound, "The link %s is not known.", l.LinkID)
		}
		return l.Remove(clusterUID, operationID, requestTime, now)
	})
}

// WithdrawEgressLink removes a link if an operation wrote it last, and commits that. See Withdraw.
func (db *DB) WithdrawEgressLink(ctx context.Context, id uint32, operationID string, now time.Time) error {
	_, err := db.changeEgressLink(ctx, id, func(l *EgressLinkDocument) (bool, error) {
		return l.Generation > 0 && l.Withdraw(operationID, now), nil
	})
	return err
}

// EndEgressLinks removes all links of a cluster that is gone, and commits each removal. It is idempotent. operationID is the operation of the
// deletion.
func (db *DB) EndEgressLinks(ctx context.Context, clusterUID, operationID string, now time.Time) error {
	var ids []uint32
	err := db.queryEgressLinks(ctx, " AND c.properties.clusterUid = @cluster AND NOT IS_DEFINED(c.properties.removedTime)",
		[]azcosmos.QueryParameter{{Name: "@cluster", Value: clusterUID}}, func(item *Item[EgressLinkDocument]) error {
			id, err := ParseEgressLinkID(item.Value.LinkID)
			ids = append(ids, id)
			return err
		})
	if err != nil {
		return fmt.Errorf("listing the egress links of the cluster %s: %w", clusterUID, err)
	}
	for _, id := range ids {
		if _, err := db.changeEgressLink(ctx, id, func(l *EgressLinkDocument) (bool, error) { return l.End(clusterUID, operationID, now), nil }); err != nil {
			return err
		}
	}
	return nil
}

// SealEgressLink replaces the intent of a link that an operation wrote last, and commits that. It changes nothing if the link has another operation now, or was removed.
func (db *DB) SealEgressLink(ctx context.Context, id uint32, operationID, intent string) error {
	_, err := db.changeEgressLink(ctx, id, func(l *EgressLinkDocument) (bool, error) {
		if l.OperationID != operationID || l.RemovedTime != nil || l.Intent == intent {
			return false, nil
		}
		l.Intent = intent
		return true, nil
	})
	return err
}

// changeEgressLink changes the document of a link, which has the generation 0 if it does not exist. It calls change again after a lost race.
func (db *DB) changeEgressLink(ctx context.Context, id uint32, change func(*EgressLinkDocument) (changed bool, err error)) (*EgressLinkDocument, error) {
	key := EgressLinkKey(id)
	var result EgressLinkDocument
	err := Retry(ctx, func(ctx context.Context) error {
		item, err := db.egressLinks.Find(ctx, key)
		if err != nil {
			return err
		}
		batch := db.NewBatch(key.SubscriptionID)
		if item == nil || item.Removed != nil {
			result = EgressLinkDocument{LinkID: strconv.FormatUint(uint64(id), 10)}
			if changed, err := change(&result); err != nil || !changed {
				return err
			}
			Create(batch, db.egressLinks, key, result)
			return batch.Commit(ctx)
		}
		changed, err := change(&item.Value)
		if result = item.Value; err != nil || !changed {
			return err
		}
		Replace(batch, item)
		return batch.Commit(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("changing the egress link %d: %w", id, err)
	}
	return &result, nil
}

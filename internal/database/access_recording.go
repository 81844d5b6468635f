package database

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// AccessRecordingDocument describes the recording of a command or an attachment in an access session. The session gateway writes it. It has
// neither the command nor what was typed and printed: the log in the sink of recordings has them, encrypted.
type AccessRecordingDocument struct {
	// RecordingID is the ID of the request in the audit.
	RecordingID string `json:"recordingId"`
	SessionID   string `json:"sessionId"`
	// ClusterUID and ResourceID, or Shard, are those of the session.
	ClusterUID string `json:"clusterUid,omitempty"`
	ResourceID string `json:"resourceId,omitempty"`
	Shard      string `json:"shard,omitempty"`
	// Name, ObjectID and TenantID identify the engineer. Reason and Ticket are those of the session.
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId,omitempty"`
	Reason   string `json:"reason"`
	Ticket   string `json:"ticket,omitempty"`
	// Kind is pods/exec or pods/attach. Container is empty for the default container of the pod.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container,omitempty"`
	TTY       bool      `json:"tty,omitempty"`
	StartTime time.Time `json:"startTime"`
	// Bytes is the size of the log when the document was written.
	Bytes int64 `json:"bytes"`
	// EndTime and EndReason are set at the end, and Complete if the log has the end.
	EndTime   *time.Time `json:"endTime,omitempty"`
	EndReason string     `json:"endReason,omitempty"`
	Complete  bool       `json:"complete,omitempty"`
}

// Key returns the key of the description of a recording.
func (d *AccessRecordingDocument) Key() Key {
	return Key{SubscriptionID: accessPartition(d.ClusterUID, d.Shard), ResourceID: "/access-recordings/" + d.RecordingID}
}

// AccessRecordingFilter selects descriptions of recordings. An empty field selects all.
type AccessRecordingFilter struct {
	ID, ClusterUID, SessionID string
}

// EachAccessRecording calls each for the descriptions of recordings that a filter selects, in no order. Without a cluster, it queries all
// partitions: use it for requests of people. An error of type *UnreadableError means that some documents were skipped.
func (db *DB) EachAccessRecording(ctx context.Context, filter AccessRecordingFilter, each func(*AccessRecordingDocument) error) error {
	query, parameters := "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.deletionTimestamp)", []azcosmos.QueryParameter{{Name: "@kind", Value: string(AccessRecordingKind)}}
	for _, condition := range []struct{ field, value string }{{"recordingId", filter.ID}, {"sessionId", filter.SessionID}} {
		if condition.value != "" {
			query += fmt.Sprintf(" AND c.properties.%s = @%[1]s", condition.field)
			parameters = append(parameters, azcosmos.QueryParameter{Name: "@" + condition.field, Value: condition.value})
		}
	}
	partition := azcosmos.NewPartitionKey()
	if filter.ClusterUID != "" {
		partition = azcosmos.NewPartitionKeyString(accessPartition(filter.ClusterUID, ""))
	}
	var unreadable UnreadableError
	return unreadable.orElse(db.pagesOf(ctx, func(c *client) *azcosmos.ContainerClient { return c.accessSessions }, partition, query, parameters, func(document []byte) error {
		item, err := db.accessRecordings.decode(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(&item.Value)
	}))
}

// PutAccessRecording stores the description of a recording, or replaces an earlier one.
func (db *DB) PutAccessRecording(ctx context.Context, document AccessRecordingDocument) error {
	key := document.Key()
	err := Retry(ctx, func(ctx context.Context) error {
		item, err := db.accessRecordings.Find(ctx, key)
		if err != nil {
			return err
		}
		batch := db.NewBatch(key.SubscriptionID)
		if item == nil {
			Create(batch, db.accessRecordings, key, document)
			return batch.Commit(ctx)
		}
		if item.Value.EndTime != nil && document.EndTime == nil {
			return nil // a description before the end that arrives late
		}
		item.Value = document
		Replace(batch, item)
		return batch.Commit(ctx)
	})
	if err != nil {
		return fmt.Errorf("storing the description of the recording %s: %w", document.RecordingID, err)
	}
	return nil
}

package recorder

import (
	"context"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// DatabaseIndex is an Index in Cosmos DB, in which admin finds the recordings of a cluster.
type DatabaseIndex struct{ Database *database.DB }

// Put implements Index.
func (i DatabaseIndex) Put(ctx context.Context, d Description) error {
	document := database.AccessRecordingDocument{
		RecordingID: d.ID, SessionID: d.SessionID, ClusterUID: d.ClusterUID, ResourceID: d.ResourceID, Shard: d.Shard, Name: d.Owner.Name, ObjectID: d.Owner.ObjectID, TenantID: d.Owner.TenantID,
		Reason: d.Reason, Ticket: d.Ticket, Kind: d.Kind, Namespace: d.Namespace, Pod: d.Pod, Container: d.Container, TTY: d.TTY, StartTime: d.Start, Bytes: d.Bytes, Complete: d.Complete,
	}
	if d.End != nil {
		document.EndTime, document.EndReason = &d.End.Time, d.End.Reason
	}
	return i.Database.PutAccessRecording(ctx, document)
}

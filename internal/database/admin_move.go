package database

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// adminMoveKind is the kind of the document that records that MoveAdminRecords has copied all documents.
const adminMoveKind Kind = "adminMove"

// adminMoveDocument records when the documents of earlier releases were copied.
type adminMoveDocument struct {
	CompletionTime time.Time `json:"completionTime"`
}

func adminMoveKey() Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/moves/containers"}
}

// MoveAdminRecords moves the documents of AdminPartition that releases before the container Admin stored in Resources. It may be
// interrupted at any point and run in several processes at once; afterwards it is repeated.
//
// It copies the documents once, and a document in Admin records that. From then on nothing enters Admin from Resources, because
// services without rights in Admin can write documents to Resources: a document that appears there later is reported and stays where
// it is, and no operation in it is executed. The originals become tombstones after the copy.
func (db *DB) MoveAdminRecords(ctx context.Context, log *slog.Logger) error {
	moves := newCollection[adminMoveDocument](db, adminMoveKind)
	moved, err := moves.Find(ctx, adminMoveKey())
	if err != nil {
		return err
	}
	originals, err := db.adminOriginals(ctx)
	if err != nil {
		return err
	}
	if moved == nil {
		for _, original := range originals {
			if err := db.copyAdminRecord(ctx, original); err != nil {
				return fmt.Errorf("copying the document %s to the container %s: %w", idOf(original), adminContainer, err)
			}
		}
		batch := db.NewBatch(AdminPartition)
		Create(batch, moves, adminMoveKey(), adminMoveDocument{CompletionTime: time.Now().UTC()})
		if err := batch.Commit(ctx); err != nil {
			// Another replica may have recorded the end of its copy.
			if _, conflict := AsWriteConflict(err); !conflict {
				return err
			}
		}
	}
	for _, original := range originals {
		copied, err := db.readDocument(ctx, AdminPartition, idOf(original))
		if err != nil {
			return err
		}
		if copied == nil {
			log.ErrorContext(ctx, "a document of admin is in the container of customers' resources; ignoring", logkey.Key, idOf(original))
			continue
		}
		if err := db.buryAdminOriginal(ctx, original); err != nil {
			return fmt.Errorf("removing the document %s from the container %s: %w", idOf(original), resourcesContainer, err)
		}
	}
	return nil
}

// adminOriginals returns the documents of AdminPartition in Resources that are not tombstones.
func (db *DB) adminOriginals(ctx context.Context) ([][]byte, error) {
	var originals [][]byte
	err := db.pages(ctx, azcosmos.NewPartitionKeyString(AdminPartition), "SELECT * FROM c WHERE NOT IS_DEFINED(c.deletionTimestamp)", nil, func(document []byte) error {
		originals = append(originals, document)
		return nil
	})
	return originals, err
}

// copyAdminRecord creates the copy of a document unless it exists. The copy expires when the original would.
func (db *DB) copyAdminRecord(ctx context.Context, original []byte) error {
	fields, err := storedFields(original)
	if err != nil {
		return err
	}
	var lifetime struct {
		TTL     int64 `json:"ttl"`
		Written int64 `json:"_ts"`
	}
	if err := json.Unmarshal(original, &lifetime); err != nil {
		return err
	}
	if lifetime.TTL > 0 {
		left := lifetime.Written + lifetime.TTL - time.Now().Unix()
		fields["ttl"] = json.RawMessage(fmt.Sprint(max(left, 1)))
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	err = db.connection.do(ctx, func(ctx context.Context, client *client) error {
		_, err := client.admin.CreateItem(ctx, azcosmos.NewPartitionKeyString(AdminPartition), body, nil)
		return ignoreExists(err)
	})
	if err != nil {
		return failure(err, "creating it")
	}
	return nil
}

// buryAdminOriginal replaces a document in Resources by a tombstone, unless it was written since it was read.
func (db *DB) buryAdminOriginal(ctx context.Context, original []byte) error {
	fields, err := storedFields(original)
	if err != nil {
		return err
	}
	now, err := json.Marshal(time.Now().UTC().Truncate(time.Second))
	if err != nil {
		return err
	}
	fields["deletionTimestamp"] = now
	fields["ttl"] = json.RawMessage(fmt.Sprint(int(TombstoneTTL / time.Second)))
	delete(fields, "properties")
	body, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	var read envelope
	if err := json.Unmarshal(original, &read); err != nil {
		return err
	}
	etag := azcore.ETag(read.ETag)
	err = db.connection.do(ctx, func(ctx context.Context, client *client) error {
		_, err := client.resources.ReplaceItem(ctx, azcosmos.NewPartitionKeyString(AdminPartition), read.ID, body, &azcosmos.ItemOptions{IfMatchEtag: &etag})
		return err
	})
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusPreconditionFailed:
		return nil // it expired, or another replica has replaced it
	}
	if err != nil {
		return failure(err, "replacing it")
	}
	return nil
}

// storedFields returns the fields of a document without those that Cosmos DB sets.
func storedFields(document []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(document, &fields); err != nil {
		return nil, err
	}
	for name := range fields {
		if slices.Contains(systemFields, name) {
			delete(fields, name)
		}
	}
	return fields, nil
}

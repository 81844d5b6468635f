package database

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// envelope is the stored form of a document.
type envelope struct {
	ID           string          `json:"id"`
	PartitionKey string          `json:"partitionKey"`
	Kind         Kind            `json:"kind"`
	ResourceID   string          `json:"resourceId"`
	Key          string          `json:"key"`
	Properties   json.RawMessage `json:"properties"`
	// DeletionTimestamp is set in tombstones.
	DeletionTimestamp *time.Time `json:"deletionTimestamp,omitempty"`
	// TTL in seconds after the last write.
	TTL int `json:"ttl,omitempty"`
	// Commits are the tokens of the last commits that wrote the document, newest first. A writer that lost the response
	// to its commit finds its token here, even if others have written since.
	Commits []string `json:"commits,omitempty"`

	ETag      string `json:"_etag,omitempty"`
	Timestamp int64  `json:"_ts,omitempty"`
}

// maxCommitTokens is how many commit tokens a document keeps. It bounds how many other writers may write before a
// writer has found its own token.
const maxCommitTokens = 4

// systemFields are set by Cosmos DB and are not sent back.
var systemFields = []string{"_rid", "_self", "_etag", "_attachments", "_ts", "_lsn", "_metadata"}

// readEnvelope is an envelope with decoded properties. Reads are frequent, so they decode only once.
type readEnvelope[T any] struct {
	ID                string     `json:"id"`
	PartitionKey      string     `json:"partitionKey"`
	Kind              Kind       `json:"kind"`
	ResourceID        string     `json:"resourceId"`
	Properties        T          `json:"properties"`
	DeletionTimestamp *time.Time `json:"deletionTimestamp"`
	ETag              string     `json:"_etag"`
	Timestamp         int64      `json:"_ts"`
}

// decode returns the item of a stored document.
func (c *Collection[T]) decode(document []byte) (*Item[T], error) {
	var e readEnvelope[T]
	if err := json.Unmarshal(document, &e); err != nil {
		return nil, fmt.Errorf("decoding the document %s of kind %s: %w", idOf(document), c.kind, err)
	}
	if e.Kind != c.kind {
		return nil, fmt.Errorf("decoding the document %s: its kind is %q, not %q", e.ID, e.Kind, c.kind)
	}
	return &Item[T]{
		Key:        Key{SubscriptionID: e.PartitionKey, ResourceID: e.ResourceID},
		Value:      e.Properties,
		ETag:       e.ETag,
		Modified:   time.Unix(e.Timestamp, 0).UTC(),
		Removed:    e.DeletionTimestamp,
		collection: c,
		read:       document,
	}, nil
}

// idOf returns the ID of a document that cannot be decoded as its kind, or an empty string.
func idOf(document []byte) string {
	var named struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(document, &named)
	return named.ID
}

// encode returns the document that replaces the one that the item was read from.
func (c *Collection[T]) encode(item *Item[T], token string) ([]byte, error) {
	e := envelope{
		ID:                documentID(c.kind, item.Key),
		PartitionKey:      item.Key.SubscriptionID,
		Kind:              c.kind,
		ResourceID:        item.Key.ResourceID,
		Key:               item.Key.lower(),
		DeletionTimestamp: item.Removed,
		Commits:           []string{token},
	}
	switch {
	case item.Removed != nil:
		e.TTL = int(TombstoneTTL / time.Second)
	case c.ttl != nil:
		e.TTL = int(c.ttl(&item.Value) / time.Second)
	}
	if item.read != nil {
		return c.encodeOver(e, item)
	}
	// A json.RawMessage with the properties would be copied and validated once more.
	document, err := json.Marshal(struct {
		envelope
		Properties *T `json:"properties"`
	}{e, &item.Value})
	if err != nil {
		return nil, fmt.Errorf("encoding the %s %s: %w", c.kind, e.Key, err)
	}
	return document, nil
}

// encodeOver adds to e the item's properties, and the unknown fields and the commit tokens of the document that it replaces.
func (c *Collection[T]) encodeOver(e envelope, item *Item[T]) ([]byte, error) {
	var rest map[string]json.RawMessage
	var commits []string
	err := json.Unmarshal(item.read, &rest)
	if text, ok := rest["commits"]; ok && err == nil {
		err = json.Unmarshal(text, &commits)
	}
	if err != nil {
		return nil, fmt.Errorf("decoding the %s %s: %w", c.kind, e.Key, err)
	}
	e.Commits = slices.Concat(e.Commits, commits)
	e.Commits = e.Commits[:min(len(e.Commits), maxCommitTokens)]
	if e.Properties, err = json.Marshal(&item.Value); err != nil {
		return nil, fmt.Errorf("encoding the %s %s: %w", c.kind, e.Key, err)
	}
	if e.Properties, err = preserve(reflect.TypeFor[T](), e.Properties, rest["properties"]); err != nil {
		return nil, fmt.Errorf("preserving the unknown fields of the %s %s: %w", c.kind, e.Key, err)
	}
	document, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	known := fieldsOf(reflect.TypeFor[envelope]())
	for name := range rest {
		if _, ok := known.find(name); ok || slices.Contains(systemFields, name) {
			delete(rest, name)
		}
	}
	if len(rest) == 0 {
		return document, nil
	}
	return appendFields(document, rest)
}

func appendFields(object []byte, fields map[string]json.RawMessage) ([]byte, error) {
	more, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	out := bytes.TrimSuffix(object, []byte("}"))
	return slices.Concat(out, []byte(","), bytes.TrimPrefix(more, []byte("{"))), nil
}

// newToken returns the token of one commit.
func newToken() string {
	return strings.ReplaceAll(newUUID(), "-", "")[:16]
}

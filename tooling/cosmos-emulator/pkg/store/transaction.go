package store

import (
	"context"
	"errors"
	"math"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// Verb is the kind of an operation.
type Verb int

// The verbs.
const (
	Create Verb = iota + 1
	Upsert
	Replace
	Delete
)

// Operation is one operation of a transaction.
type Operation struct {
	Verb Verb
	// ID is the ID of the item for Replace and Delete. Create and Upsert use the ID in the body.
	ID   string
	Body document.Value
	// IfMatch is an ETag, "*" or empty.
	IfMatch string
}

// Outcome is the effect of a successful operation.
type Outcome int

// The outcomes.
const (
	Created Outcome = iota + 1
	Replaced
	Deleted
)

// Result is the result of one operation. The item is empty for a Delete.
type Result struct {
	Outcome Outcome
	Item    Item
}

// FailedOperation reports which operation of a transaction was rejected. No operation of the transaction took effect.
type FailedOperation struct {
	Index int
	Err   *Error
}

// Error returns the message of the rejected operation.
func (e *FailedOperation) Error() string { return e.Err.Error() }

// Unwrap returns the error of the rejected operation.
func (e *FailedOperation) Unwrap() error { return e.Err }

// MaxItemBytes is the maximum size of an item.
const MaxItemBytes = 2 << 20

// maxIDBytes is the service's limit for the ID of an item.
const maxIDBytes = 1023

// Transact executes operations on items of one logical partition: all at one LSN, or none. It returns after they are
// durable. If an operation is rejected, the error is a *FailedOperation.
func (s *Store) Transact(ctx context.Context, c *Container, pk partition.Key, ops []Operation) ([]Result, uint64, error) {
	var results []Result
	var lsn uint64
	o := &writeRequest{ctx: ctx}
	o.run = func(tx *bolt.Tx) (wrote bool, err error) {
		t := &transaction{store: s, tx: tx, pk: pk, prefix: pk.Encode(nil)}
		results, wrote, err = t.run(c, ops)
		lsn = t.lsn
		return wrote, err
	}
	if err := s.submitAndWait(o); err != nil {
		return nil, 0, err
	}
	return results, lsn, nil
}

// transaction is the state of one Transact. Nothing is written before all operations were accepted.
type transaction struct {
	store  *Store
	tx     *bolt.Tx
	c      *Container
	pk     partition.Key
	prefix []byte
	epk    string
	lsn    uint64
	now    int64
	number uint64 // last document number

	docs   *bolt.Bucket
	staged []*stagedItem
	byKey  map[string]*stagedItem
}

// stagedItem is one item of the transaction, before and after it.
type stagedItem struct {
	key    []byte
	before *record // nil if the item is not stored; may be expired
	after  *record // nil if it does not exist
	dirty  bool
}

// run executes the operations and writes their results.
func (t *transaction) run(c *Container, ops []Operation) (results []Result, wrote bool, err error) {
	// The container may have been replaced or deleted while the request waited.
	d := (*t.store.catalog.Load())[c.Database.Name]
	if d == nil || d.containers[c.Name] == nil || d.containers[c.Name].key != c.key {
		return nil, false, &FailedOperation{Err: &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}}
	}
	t.c = d.containers[c.Name]
	t.docs = t.tx.Bucket(t.c.bucket('d'))
	t.epk = t.pk.EPK()
	t.now = t.store.timestamp()
	t.lsn = t.docs.Sequence() + 1
	t.number = t.tx.Bucket(t.c.bucket('o')).Sequence()
	t.byKey = make(map[string]*stagedItem, len(ops))

	results = make([]Result, len(ops))
	for i := range ops {
		r, err := t.apply(&ops[i], i)
		if err != nil {
			var rejected *Error
			if errors.As(err, &rejected) {
				return nil, false, &FailedOperation{Index: i, Err: rejected}
			}
			return nil, false, err
		}
		results[i] = r
	}
	if wrote, err = t.flush(); err != nil {
		return nil, false, err
	}
	if !wrote {
		t.lsn--
	}
	return results, wrote, nil
}

// stage returns the staged item with an ID, and loads it for the first operation on it.
func (t *transaction) stage(id string) (*stagedItem, error) {
	key := append(t.prefix[:len(t.prefix):len(t.prefix)], id...)
	if s := t.byKey[string(key)]; s != nil {
		return s, nil
	}
	s := &stagedItem{key: key}
	if raw := t.docs.Get(key); raw != nil {
		r, err := decodeRecord(raw)
		if err != nil {
			return nil, err
		}
		s.before = &r
		if !r.expired(t.c, t.now) {
			s.after = &r
		}
	}
	t.byKey[string(key)] = s
	t.staged = append(t.staged, s)
	return s, nil
}

// apply executes one operation on the staged items.
func (t *transaction) apply(op *Operation, index int) (Result, error) {
	id := op.ID
	if op.Verb == Create || op.Verb == Upsert {
		v := op.Body.Get("id")
		if v.Kind != document.String || v.Str == "" {
			return Result{}, NewError(BadRequest, "%s", msgMissingID)
		}
		id = v.Str
	}
	if len(id) > maxIDBytes {
		return Result{}, NewError(BadRequest, "The id is longer than %d bytes.", maxIDBytes)
	}
	s, err := t.stage(id)
	if err != nil {
		return Result{}, err
	}
	exists := s.after != nil
	switch {
	case !exists && op.Verb != Create && op.Verb != Upsert:
		return Result{}, NewError(NotFound, "%s", msgNotFound)
	case exists && op.Verb == Create:
		return Result{}, NewError(Conflict, "%s", msgConflict)
	}
	if exists {
		etag := s.after.etag(t.c)
		// If-Match on an upsert of an item that does not exist has nothing to compare with: the service creates it.
		if !matchesETag(op.IfMatch, etag) {
			return Result{}, NewError(PreconditionFailed, "%s", msgPrecondition)
		}
	}
	if op.Verb == Delete {
		s.after, s.dirty = nil, true
		return Result{Outcome: Deleted}, nil
	}
	return t.put(s, id, op.Body, index)
}

// put stages a new version of an item.
func (t *transaction) put(s *stagedItem, id string, body document.Value, index int) (Result, error) {
	if body.Kind != document.Object {
		return Result{}, NewError(BadRequest, "The item is not a JSON object.")
	}
	if v := body.Get("id"); v.Kind != document.String || v.Str == "" {
		return Result{}, NewError(BadRequest, "%s", msgMissingID)
	} else if v.Str != id {
		return Result{}, NewError(BadRequest, "The id in the item's body is not the id of the request; an item's id cannot be changed.")
	}
	inDoc, err := t.c.PK.Extract(body)
	if err != nil {
		return Result{}, NewError(BadRequest, "%v", err)
	}
	if inDoc != t.pk {
		return Result{}, &Error{Kind: BadRequest, SubStatus: SubStatusPartitionKeyMismatch, Message: msgKeyMismatch}
	}
	r := &record{lsn: t.lsn, index: uint16(index), ts: t.now}
	if ttl := body.Get("ttl"); ttl.IsDefined() && ttl.Kind != document.Null && t.c.DefaultTTL != nil {
		n, ok := ttlSeconds(ttl)
		if !ok || n > math.MaxInt32 {
			return Result{}, NewError(BadRequest, "The input ttl is invalid. Ensure to provide a nonzero positive integer, or -1 for no expiry.")
		}
		r.ttl = int32(n)
	}
	outcome := Replaced
	if s.after != nil {
		r.number = s.after.number
	} else {
		outcome = Created
		t.number++
		r.number = t.number
	}
	r.build(t.c, body)
	// The folders are recorded before readers can see the item. Superfluous folders do no harm if the transaction fails.
	t.store.folders.add(t.c, body)
	if len(r.body) > MaxItemBytes {
		return Result{}, NewError(TooLarge, "%s", msgTooLarge)
	}
	s.after, s.dirty = r, true
	return Result{Outcome: outcome, Item: Item{Body: r.body, ETag: r.etag(t.c), LSN: r.lsn, TS: r.ts}}, nil
}

// flush writes the staged items.
func (t *transaction) flush() (wrote bool, err error) {
	for _, s := range t.staged {
		if !s.dirty {
			continue
		}
		wrote = true
		if s.before != nil {
			if err := removeIndexes(t.tx, t.c, t.pk, s.before, s.after != nil && s.after.number == s.before.number); err != nil {
				return false, err
			}
		}
		if s.after == nil {
			if s.before != nil {
				if err := t.docs.Delete(s.key); err != nil {
					return false, err
				}
			}
			continue
		}
		if err := t.insert(s); err != nil {
			return false, err
		}
	}
	if !wrote {
		return false, nil
	}
	if err := t.tx.Bucket(t.c.bucket('o')).SetSequence(t.number); err != nil {
		return false, err
	}
	return true, t.docs.SetSequence(t.lsn)
}

// insert writes a record and the index entries that differ from those of the previous version.
func (t *transaction) insert(s *stagedItem) error {
	if err := t.docs.Put(s.key, s.after.encode()); err != nil {
		return err
	}
	ref := encodeReference(t.epk, s.key)
	if s.before == nil || s.before.number != s.after.number {
		if err := t.tx.Bucket(t.c.bucket('o')).Put(u64(s.after.number), ref); err != nil {
			return err
		}
		if err := t.tx.Bucket(t.c.bucket('p')).Put(partitionOrderKey(t.pk, s.after.number), ref); err != nil {
			return err
		}
	}
	changes := t.tx.Bucket(t.c.bucket('c'))
	changes.FillPercent = 0.9 // keys are appended in order
	return changes.Put(changeKey(s.after.lsn, s.after.index), ref)
}

// removeIndexes deletes the index entries of a record. keepOrder keeps those that the next version shares.
func removeIndexes(tx *bolt.Tx, c *Container, pk partition.Key, r *record, keepOrder bool) error {
	if err := tx.Bucket(c.bucket('c')).Delete(changeKey(r.lsn, r.index)); err != nil {
		return err
	}
	if keepOrder {
		return nil
	}
	if err := tx.Bucket(c.bucket('o')).Delete(u64(r.number)); err != nil {
		return err
	}
	return tx.Bucket(c.bucket('p')).Delete(partitionOrderKey(pk, r.number))
}

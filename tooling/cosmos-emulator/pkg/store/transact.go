package store

import (
	"context"
	"errors"
	"math"

	bolt "go.etcd.io/bbolt"

	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/partition"
)

// Verb is what an operation does to its item.
type Verb int

// The verbs.
const (
	Create Verb = iota + 1
	Upsert
	Replace
	Delete
	Read
	Patch
)

// Op is one operation of a transaction.
type Op struct {
	Verb Verb
	// ID names the item for Replace, Delete, Read and Patch; Create and Upsert take it from the body.
	ID   string
	Body document.Value
	// IfMatch and IfNoneMatch are ETags, "*" or empty.
	IfMatch, IfNoneMatch string
	// Modify computes a Patch from the current document; an *Error it returns refuses the operation.
	Modify func(current document.Value) (document.Value, error)
}

// Outcome is what became of an operation.
type Outcome int

// The outcomes of operations that were not refused.
const (
	Created Outcome = iota + 1
	Replaced
	Deleted
	Found
	NotModified
)

// Result is one operation's. For a Delete the item is empty.
type Result struct {
	Outcome Outcome
	Item    Item
}

// FailedOp says which operation of a transaction was refused; all others were undone.
type FailedOp struct {
	Index int
	Err   *Error
}

func (e *FailedOp) Error() string { return e.Err.Error() }

// Unwrap gives the refusal.
func (e *FailedOp) Unwrap() error { return e.Err }

// MaxItemBytes is the largest item the service stores.
const MaxItemBytes = 2 << 20

// maxIDBytes is the service's limit for an item's id.
const maxIDBytes = 1023

// Transact runs operations on items of one logical partition: all happen, at one LSN, or none. It returns after
// they are durable. A refused operation is reported as a *FailedOp.
func (s *Store) Transact(ctx context.Context, c *Container, pk partition.Key, ops []Op) ([]Result, uint64, error) {
	var results []Result
	var lsn uint64
	o := &op{ctx: ctx}
	o.run = func(tx *bolt.Tx) (wrote bool, err error) {
		t := &transaction{store: s, tx: tx, pk: pk, prefix: pk.Encode(nil)}
		results, wrote, err = t.run(c, ops)
		lsn = t.lsn
		return wrote, err
	}
	if err := s.submit(o); err != nil {
		return nil, 0, err
	}
	return results, lsn, nil
}

// transaction is the work of one Transact. Nothing is written to the tx before every operation was accepted.
type transaction struct {
	store  *Store
	tx     *bolt.Tx
	c      *Container
	pk     partition.Key
	prefix []byte
	epk    string
	lsn    uint64
	now    int64
	number uint64 // last document number, counted here until flush

	docs   *bolt.Bucket
	staged []*slot
	byKey  map[string]*slot
	unique map[string]string // unique key -> record key of its owner, "" when freed
}

// slot is one item of the transaction: as it is in the file and as it will be.
type slot struct {
	key    []byte
	before *record // nil when the file has none; may be expired
	after  *record // nil when it does not exist
	dirty  bool
}

func (t *transaction) run(c *Container, ops []Op) (results []Result, wrote bool, err error) {
	// The container may have been replaced or deleted while the request waited.
	d := t.store.catalog.Load().databases[c.Database.Name]
	if d == nil || d.containers[c.Name] == nil || d.containers[c.Name].key != c.key {
		return nil, false, &FailedOp{Err: &Error{Kind: NotFound, SubStatus: SubStatusOwnerNotFound, Message: msgNotFound}}
	}
	t.c = d.containers[c.Name]
	t.docs = t.tx.Bucket(t.c.bucket('d'))
	t.epk = t.c.PK.EPK(t.pk)
	t.now = t.store.timestamp()
	t.lsn = t.docs.Sequence() + 1
	t.number = t.tx.Bucket(t.c.bucket('o')).Sequence()
	t.byKey = make(map[string]*slot, len(ops))

	results = make([]Result, len(ops))
	for i := range ops {
		r, err := t.apply(&ops[i], i)
		if err != nil {
			var refusal *Error
			if errors.As(err, &refusal) {
				return nil, false, &FailedOp{Index: i, Err: refusal}
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

// slot finds or loads an item.
func (t *transaction) slot(id string) (*slot, error) {
	key := append(t.prefix[:len(t.prefix):len(t.prefix)], id...)
	if s := t.byKey[string(key)]; s != nil {
		return s, nil
	}
	s := &slot{key: key}
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

func (t *transaction) apply(op *Op, index int) (Result, error) {
	id := op.ID
	if op.Verb == Create || op.Verb == Upsert {
		v := op.Body.Get("id")
		if v.Kind != document.String || v.Str == "" {
			return Result{}, Refuse(BadRequest, "%s", msgMissingID)
		}
		id = v.Str
	}
	if len(id) > maxIDBytes {
		return Result{}, Refuse(BadRequest, "The id is longer than %d bytes.", maxIDBytes)
	}
	s, err := t.slot(id)
	if err != nil {
		return Result{}, err
	}
	exists := s.after != nil
	switch {
	case !exists && op.Verb != Create && op.Verb != Upsert:
		return Result{}, Refuse(NotFound, "%s", msgNotFound)
	case exists && op.Verb == Create:
		return Result{}, Refuse(Conflict, "%s", msgConflict)
	}
	if exists {
		etag := s.after.etag(t.c)
		// If-Match on an upsert of an item that does not exist has nothing to compare with: the service creates it.
		if !matches(op.IfMatch, etag) {
			return Result{}, Refuse(PreconditionFailed, "%s", msgPrecondition)
		}
		if op.IfNoneMatch != "" && (op.IfNoneMatch == "*" || sameETag(op.IfNoneMatch, etag)) {
			if op.Verb != Read {
				return Result{}, Refuse(PreconditionFailed, "%s", msgPrecondition)
			}
			return Result{Outcome: NotModified, Item: Item{ETag: etag, LSN: s.after.lsn, TS: s.after.ts}}, nil
		}
	}
	switch op.Verb {
	case Read:
		return Result{Outcome: Found, Item: s.after.item(t.c)}, nil
	case Delete:
		if err := t.claim(s, nil); err != nil {
			return Result{}, err
		}
		s.after, s.dirty = nil, true
		return Result{Outcome: Deleted}, nil
	case Patch:
		current, err := document.Parse(s.after.body)
		if err != nil {
			return Result{}, err
		}
		body, err := op.Modify(current)
		if err != nil {
			return Result{}, err
		}
		return t.put(s, id, body, index)
	default:
		return t.put(s, id, op.Body, index)
	}
}

// put stages a new version of an item.
func (t *transaction) put(s *slot, id string, body document.Value, index int) (Result, error) {
	if body.Kind != document.Object {
		return Result{}, Refuse(BadRequest, "The item is not a JSON object.")
	}
	if v := body.Get("id"); v.Kind != document.String || v.Str == "" {
		return Result{}, Refuse(BadRequest, "%s", msgMissingID)
	} else if v.Str != id {
		return Result{}, Refuse(BadRequest, "The id in the item's body is not the id of the request; an item's id cannot be changed.")
	}
	inDoc, err := t.c.PK.Extract(body)
	if err != nil {
		return Result{}, Refuse(BadRequest, "%v", err)
	}
	if !inDoc.Equal(t.pk) {
		return Result{}, &Error{Kind: BadRequest, SubStatus: SubStatusPartitionKeyMismatch, Message: msgKeyMismatch}
	}
	r := &record{lsn: t.lsn, index: uint16(index), ts: t.now}
	if ttl := body.Get("ttl"); ttl.IsDefined() && ttl.Kind != document.Null && t.c.DefaultTTL != nil {
		n, ok := ttlSeconds(ttl)
		if !ok || n > math.MaxInt32 {
			return Result{}, Refuse(BadRequest, "The input ttl is invalid. Ensure to provide a nonzero positive integer, or -1 for no expiry.")
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
	// Before anybody can see the item; should it not be written after all, nothing is lost.
	t.store.folders.note(t.c, body)
	if len(r.body) > MaxItemBytes {
		return Result{}, Refuse(TooLarge, "%s", msgTooLarge)
	}
	if err := t.claim(s, &body); err != nil {
		return Result{}, err
	}
	s.after, s.dirty = r, true
	return Result{Outcome: outcome, Item: Item{Body: r.body, ETag: r.etag(t.c), LSN: r.lsn, TS: r.ts}}, nil
}

// claim moves an item's unique keys from its present version to the next one (nil: the item goes).
func (t *transaction) claim(s *slot, next *document.Value) error {
	if len(t.c.UniqueKeys) == 0 {
		return nil
	}
	if t.unique == nil {
		t.unique = map[string]string{}
	}
	var free []string
	holder := s.after
	if holder == nil && !s.dirty {
		holder = s.before // expired, and still in the index unless another item took over
	}
	if holder != nil {
		now, err := document.Parse(holder.body)
		if err != nil {
			return err
		}
		for i := range t.c.UniqueKeys {
			if k := string(uniqueKey(t.c, t.pk, i, now)); t.entry(k) == string(s.key) {
				free = append(free, k)
			}
		}
	}
	if next != nil {
		for i := range t.c.UniqueKeys {
			k := string(uniqueKey(t.c, t.pk, i, *next))
			owner, err := t.owner(k)
			if err != nil {
				return err
			}
			if owner != "" && owner != string(s.key) {
				return Refuse(Conflict, "%s", msgUnique)
			}
		}
	}
	for _, k := range free {
		t.unique[k] = ""
	}
	if next != nil {
		for i := range t.c.UniqueKeys {
			t.unique[string(uniqueKey(t.c, t.pk, i, *next))] = string(s.key)
		}
	}
	return nil
}

// entry is the record key that the unique index has for a key.
func (t *transaction) entry(k string) string {
	if owner, ok := t.unique[k]; ok {
		return owner
	}
	return string(t.tx.Bucket(t.c.bucket('u')).Get([]byte(k)))
}

// owner is the record key of the living item that holds a unique key, "" when it is free.
func (t *transaction) owner(k string) (string, error) {
	if owner, ok := t.unique[k]; ok {
		return owner, nil
	}
	key := t.tx.Bucket(t.c.bucket('u')).Get([]byte(k))
	if key == nil {
		return "", nil
	}
	raw := t.docs.Get(key)
	if raw == nil {
		return "", nil
	}
	r, err := decodeRecord(raw)
	if err != nil {
		return "", err
	}
	if r.expired(t.c, t.now) {
		return "", nil
	}
	return string(key), nil
}

// flush writes the accepted operations.
func (t *transaction) flush() (wrote bool, err error) {
	for _, s := range t.staged {
		if !s.dirty {
			continue
		}
		wrote = true
		if s.before != nil {
			if err := removeIndexes(t.tx, t.c, t.pk, s.key, s.before, s.after != nil && s.after.number == s.before.number); err != nil {
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
	unique := t.tx.Bucket(t.c.bucket('u'))
	for k, owner := range t.unique {
		if owner == "" {
			err = unique.Delete([]byte(k))
		} else {
			err = unique.Put([]byte(k), []byte(owner))
		}
		if err != nil {
			return false, err
		}
	}
	if err := t.tx.Bucket(t.c.bucket('o')).SetSequence(t.number); err != nil {
		return false, err
	}
	return true, t.docs.SetSequence(t.lsn)
}

// insert writes a record and the index entries that its predecessor did not already have.
func (t *transaction) insert(s *slot) error {
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
	changes.FillPercent = 0.9 // keys only grow
	if err := changes.Put(changeKey(s.after.lsn, s.after.index), ref); err != nil {
		return err
	}
	if at, ok := s.after.expires(t.c); ok {
		return t.tx.Bucket(t.c.bucket('t')).Put(append(u64(uint64(at)), u64(s.after.number)...), s.key)
	}
	return nil
}

// removeIndexes takes a record out of the indexes; keepOrder leaves those that its next version shares.
func removeIndexes(tx *bolt.Tx, c *Container, pk partition.Key, key []byte, r *record, keepOrder bool) error {
	if err := tx.Bucket(c.bucket('c')).Delete(changeKey(r.lsn, r.index)); err != nil {
		return err
	}
	if at, ok := r.expires(c); ok {
		if err := tx.Bucket(c.bucket('t')).Delete(append(u64(uint64(at)), u64(r.number)...)); err != nil {
			return err
		}
	}
	if keepOrder {
		return nil
	}
	if err := tx.Bucket(c.bucket('o')).Delete(u64(r.number)); err != nil {
		return err
	}
	return tx.Bucket(c.bucket('p')).Delete(partitionOrderKey(pk, r.number))
}

// Package audithistory reads the audit records of one cluster from the sink, newest first, in pages. A page scans a limited number of
// bytes, so that it may have fewer records than asked for, or none, although more follow.
//
// A record is confirmed if the checkpoint that the witness has follows it in its log. Whoever can write the sink, and not the witness, can append records that
// are not confirmed. With the keys of the services, a Reader also ignores a checkpoint in the witness that the service of the writer has not signed. It checks no
// hashes of whole chains: package internal/audit/verify does.
package audithistory

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

const (
	// scanLimit is the approximate number of bytes that a page scans.
	scanLimit = 64 << 20
	// chunkSize is the number of bytes in one read. A page reads at least minChunks of each log, so that it makes progress.
	chunkSize = 256 << 10
	minChunks = 2
)

// ErrToken is the error for a token that Page did not return.
var ErrToken = errors.New("it is not the token of a page")

// Reader reads from a sink. It is safe for concurrent use.
type Reader struct {
	log       sink.Reader
	witness   sink.WitnessReader
	keys      func() (audit.Keys, error)
	scanLimit int
}

// New returns a Reader of a sink and its witness. keys returns the public keys of all services; nil if the Reader has none.
func New(log sink.Reader, witness sink.WitnessReader, keys func() (audit.Keys, error)) *Reader {
	return &Reader{log: log, witness: witness, keys: keys, scanLimit: scanLimit}
}

// checkpoint returns the latest checkpoint of a writer in the witness; nil if there is none, or the service of the writer has not signed it.
func (r *Reader) checkpoint(ctx context.Context, writer string) ([]byte, error) {
	line, err := r.witness.Checkpoint(ctx, writer)
	if err != nil || line == nil || r.keys == nil {
		return line, err
	}
	keys, err := r.keys()
	if err != nil {
		return nil, err
	}
	if _, err := keys.ParseCheckpoint(writer, bytes.TrimSuffix(line, []byte("\n"))); err != nil {
		return nil, nil
	}
	return line, nil
}

// Record is a line with a record.
type Record struct {
	audit.Line
	// Confirmed reports whether the checkpoint in the witness confirms the record.
	Confirmed bool
}

// place is the place in a log up to which a page returns records, as a member of a token.
type place struct {
	// End is the byte offset.
	End int64 `json:"end"`
	// Confirmed reports whether the records before it are confirmed. If not, the next page searches the checkpoint of the witness again, which may be
	// a later one.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Page returns at most size records about a cluster with their outcomes, newest first, and the token of the next page, which is empty
// after the last one. The first page has the empty token. It returns ErrToken for an invalid token, and audit.ErrChanged if a line
// that names the cluster was changed: without it, the list would read as complete. The error names the writer and the place. Lines of a kind that only a
// later release has hide no records. Records that are stored after the first page are not part of the following ones.
func (r *Reader) Page(ctx context.Context, cluster, token string, size int) ([]Record, string, error) {
	places, err := r.decode(ctx, token)
	if err != nil {
		return nil, "", err
	}
	budget := max(r.scanLimit/max(len(places), 1), minChunks*chunkSize)
	var logs []*backward
	for _, writer := range slices.Sorted(maps.Keys(places)) {
		from := places[writer]
		log := &backward{log: r.log, writer: writer, cluster: strings.ToLower(cluster), end: from.End, limit: from.End, confirmed: from.Confirmed, budget: budget, perPage: budget}
		if !log.confirmed {
			// The witness first: its checkpoint is in what is read later.
			if log.checkpoint, err = r.checkpoint(ctx, writer); err != nil {
				return nil, "", err
			}
			if log.end, err = r.completeSize(ctx, writer); err != nil {
				return nil, "", err
			}
			if token == "" {
				log.limit = log.end
			}
		}
		logs = append(logs, log)
	}
	var found []Record
	for len(found) < size {
		newest, err := latest(ctx, logs)
		if err != nil {
			return nil, "", err
		}
		if newest == nil {
			break
		}
		found = append(found, Record{Line: *newest.next, Confirmed: newest.confirmed})
		newest.take()
	}
	next := map[string]place{}
	for _, log := range logs {
		if log.end > 0 {
			next[log.writer] = place{End: min(log.end, log.limit), Confirmed: log.confirmed}
		}
	}
	return found, encode(next), nil
}

// latest returns the log with the latest record that was not returned yet; nil if there is none, or the budget is used up.
func latest(ctx context.Context, logs []*backward) (*backward, error) {
	var newest *backward
	for _, log := range logs {
		if err := log.find(ctx); err != nil {
			return nil, err
		}
		if log.next == nil && log.end > 0 {
			return nil, nil // its next record may be the latest
		}
		if log.next != nil && (newest == nil || log.next.Time.After(newest.next.Time)) {
			newest = log
		}
	}
	return newest, nil
}

// backward reads the log of a writer from its end to its beginning.
type backward struct {
	log     sink.Reader
	writer  string
	cluster string
	// end is the offset of the end of the line that is read next. Everything after it was returned or does not match. Lines after limit were
	// returned by earlier pages, and are read for the checkpoint only.
	end, limit int64
	// checkpoint is the line in the witness. confirmed is true before it.
	checkpoint []byte
	confirmed  bool
	// buffer has the bytes before end that were read.
	buffer []byte
	// next is the record that find found, the line of length bytes before end; nil if there is none.
	next   *audit.Line
	length int
	// budget is the number of bytes that may still be read, first down to limit, and then perPage again. reached is true from limit on.
	budget, perPage int
	reached         bool
}

// find moves end to the next record about the cluster.
func (b *backward) find(ctx context.Context) error {
	for b.next == nil && b.end > 0 {
		if !b.reached && b.end <= b.limit {
			b.reached, b.budget = true, b.perPage // each page makes progress
		}
		line, ok, err := b.lastLine(ctx)
		if err == nil && !ok && b.end > b.limit {
			// So many lines follow only if somebody else has appended them. The page continues without the checkpoint.
			b.end, b.buffer = b.limit, nil
			continue
		}
		if err != nil || !ok {
			return err
		}
		b.confirmed = b.confirmed || bytes.Equal(line, b.checkpoint)
		if b.end > b.limit {
			b.skip(len(line))
			continue
		}
		if err := b.match(line); err != nil {
			return err
		}
		if b.next == nil {
			b.skip(len(line))
		}
	}
	return nil
}

// match decodes a line if it is a record about the cluster.
func (b *backward) match(line []byte) error {
	if !bytes.Contains(line, []byte(b.cluster)) {
		return nil
	}
	decoded, err := audit.ParseLine(bytes.TrimSuffix(line, []byte("\n")))
	if errors.Is(err, audit.ErrUnknownKind) {
		return nil // the line is not a record
	}
	if err != nil {
		return fmt.Errorf("reading the audit log of %s before byte %d: %w", b.writer, b.end, err)
	}
	if decoded.Record != nil && decoded.Record.Object.Cluster == b.cluster && decoded.Record.Outcome != audit.Started {
		b.next, b.length = &decoded, len(line)
	}
	return nil
}

// take moves end before the record that find found.
func (b *backward) take() {
	b.skip(b.length)
	b.next = nil
}

func (b *backward) skip(length int) {
	b.buffer = b.buffer[:len(b.buffer)-length]
	b.end -= int64(length)
}

// lastLine returns the line before end with its newline. ok is false if the budget is used up.
func (b *backward) lastLine(ctx context.Context) (line []byte, ok bool, err error) {
	for {
		if n := len(b.buffer); n > 0 {
			if start := bytes.LastIndexByte(b.buffer[:n-1], '\n') + 1; start > 0 || int64(n) == b.end {
				return b.buffer[start:], true, nil
			}
			if n > audit.MaxLine {
				return nil, false, fmt.Errorf("reading the audit log of %s before byte %d: %w", b.writer, b.end, audit.ErrChanged)
			}
		}
		if b.budget <= 0 {
			return nil, false, nil
		}
		if err := b.readMore(ctx); err != nil {
			return nil, false, err
		}
	}
}

// readMore reads the chunk before the buffer.
func (b *backward) readMore(ctx context.Context) (err error) {
	begin := b.end - int64(len(b.buffer))
	size := min(begin, chunkSize)
	content, err := b.log.Open(ctx, b.writer, begin-size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	chunk := make([]byte, size, int(size)+len(b.buffer))
	if _, err := io.ReadFull(content, chunk); err != nil {
		return fmt.Errorf("reading the audit log of %s: %w", b.writer, err)
	}
	b.budget -= int(size)
	b.buffer = append(chunk, b.buffer...)
	return nil
}

// decode returns the places of a token. The empty token has those of all logs, without their ends.
func (r *Reader) decode(ctx context.Context, token string) (map[string]place, error) {
	places := map[string]place{}
	if token == "" {
		writers, err := r.log.Writers(ctx)
		if err != nil {
			return nil, err
		}
		for _, writer := range writers {
			if audit.ValidWriter(writer) { // no writer made another one; a verification reports it
				places[writer] = place{}
			}
		}
		return places, nil
	}
	content, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || json.Unmarshal(content, &places) != nil || len(places) == 0 {
		return nil, ErrToken
	}
	for writer, at := range places {
		if !audit.ValidWriter(writer) {
			return nil, ErrToken
		}
		size, err := r.log.Size(ctx, writer)
		if err != nil {
			return nil, err
		}
		if at.End <= 0 || at.End > size {
			return nil, ErrToken
		}
		if end, err := r.byteAt(ctx, writer, at.End-1); err != nil || end != '\n' {
			return nil, errors.Join(ErrToken, err)
		}
	}
	return places, nil
}

// completeSize returns the size of a log without an incomplete last line.
func (r *Reader) completeSize(ctx context.Context, writer string) (int64, error) {
	size, err := r.log.Size(ctx, writer)
	if err != nil || size == 0 {
		return 0, err
	}
	from := max(size-audit.MaxLine, 0)
	content, err := r.log.Open(ctx, writer, from)
	if err != nil {
		return 0, err
	}
	tail, err := io.ReadAll(io.LimitReader(content, size-from))
	if err := errors.Join(err, content.Close()); err != nil {
		return 0, fmt.Errorf("reading the audit log of %s: %w", writer, err)
	}
	return from + int64(bytes.LastIndexByte(tail, '\n')) + 1, nil
}

func (r *Reader) byteAt(ctx context.Context, writer string, offset int64) (byte, error) {
	content, err := r.log.Open(ctx, writer, offset)
	if err != nil {
		return 0, err
	}
	var one [1]byte
	_, err = io.ReadFull(content, one[:])
	return one[0], errors.Join(err, content.Close())
}

func encode(places map[string]place) string {
	if len(places) == 0 {
		return ""
	}
	content, err := json.Marshal(places)
	if err != nil {
		return "" // strings, numbers and booleans
	}
	return base64.RawURLEncoding.EncodeToString(content)
}

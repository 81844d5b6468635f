// Package verify checks the audit chains in a sink: the hashes and the order of all lines, the signatures of all checkpoints, and that
// each chain has all checkpoints in the witness. It does not change anything.
//
// A record is confirmed by the next checkpoint of its chain. Nobody needs a key for the records after the last one, so that they are
// findings unless they are recent or the queue of the writer has them. None is valid behind a checkpoint that closes its chain. The age is
// that of the earliest record or of the last append, by the clock of the storage: whoever writes a record also chooses its time.
//
// What it cannot find: the removal of lines after the latest checkpoint that the witness has, if neither the queue of the writer nor
// a later line exists. Checkpoints are at most 10 seconds or 256 records apart, so that is the most that can be lost unnoticed.
package verify

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// Problem classifies a finding.
type Problem string

// The problems.
const (
	// Changed is a line whose content does not match its hash, or that is no line.
	Changed Problem = "changed"
	// Missing are lines between two others, or before the first one.
	Missing Problem = "missing"
	// Misplaced is a line that is repeated or in the wrong place.
	Misplaced Problem = "misplaced"
	// Replaced is a line with a valid hash that does not follow the line before it: one of the two was replaced.
	Replaced Problem = "replaced"
	// Forged is a checkpoint without a valid signature, one of a key that the chain has replaced, a chain without a checkpoint at its
	// beginning, or records without a checkpoint that follow the end of a closed chain or that the queue does not have.
	Forged Problem = "forged"
	// Unconfirmed are records that have no checkpoint although it is due.
	Unconfirmed Problem = "unconfirmed"
	// Cut is a chain that ends before a line that the witness or the queue has.
	Cut Problem = "cut"
	// Incomplete is a last line without an end.
	Incomplete Problem = "incomplete"
)

// Finding is a difference between a chain and what its writer wrote.
type Finding struct {
	Writer string `json:"writer"`
	// Sequence is the number of the first affected line, as far as it is known. Line is the place in the log, from 1; 0 if the finding
	// is not about a line of the log.
	Sequence uint64  `json:"sequence"`
	Line     int     `json:"line"`
	Problem  Problem `json:"problem"`
	Message  string  `json:"message"`
}

// Chain summarizes the chain of one writer.
type Chain struct {
	Writer string `json:"writer"`
	// Records and Checkpoints are the numbers of valid lines. Unconfirmed is the number of records after the last checkpoint: they may be
	// forged, and without the writer's queue, their removal cannot be found.
	Records     int `json:"records"`
	Checkpoints int `json:"checkpoints"`
	Unconfirmed int `json:"unconfirmed"`
	// Closed reports whether the last line is the checkpoint with which the writer closed the chain.
	Closed bool `json:"closed"`
	// Open is the number of actions that have begun and have no outcome yet: they are executed, or their process ended and was not
	// started again with its queue.
	Open int `json:"open"`
	// Last is the time of the last valid line.
	Last time.Time `json:"last"`
	// Queued is the number of bytes that the writer's queue has and the sink does not have yet.
	Queued int64 `json:"queued,omitempty"`
}

// Report is the result of Verify.
type Report struct {
	Chains   []Chain   `json:"chains"`
	Findings []Finding `json:"findings"`
}

// Input is what Verify reads.
type Input struct {
	Log sink.Reader
	// Witness may be nil. Then cut ends of chains are found only by Queues.
	Witness sink.WitnessReader
	Keys    audit.Keys
	// Queues are folders of writers' queues.
	Queues []string
	// Now returns the current time; nil is time.Now.
	Now func() time.Time
}

// Verify checks all chains. Writers may write meanwhile. An error means that something could not be read.
func Verify(ctx context.Context, in Input) (*Report, error) {
	if in.Now == nil {
		in.Now = time.Now
	}
	// The order matters while writers write: a line is in its queue first, then in the sink, then in the witness. What is read first must be
	// in what is read later.
	var witnessed []string
	if in.Witness != nil {
		var err error
		if witnessed, err = in.Witness.Writers(ctx); err != nil {
			return nil, err
		}
	}
	names, err := in.Log.Writers(ctx)
	if err != nil {
		return nil, err
	}
	exists := map[string]bool{}
	for _, name := range names {
		exists[name] = true
	}
	report := &Report{Findings: []Finding{}}
	for _, name := range witnessed {
		if !exists[name] {
			report.add(Finding{Writer: name, Problem: Cut, Message: "the witness has a checkpoint of this writer, and the sink has no log of it: the log was deleted"})
		}
	}
	checkers := map[string]*checker{}
	for _, name := range names {
		c := newChecker(name)
		c.report, c.keys = report, in.Keys
		if err := c.read(ctx, in); err != nil {
			return nil, err
		}
		checkers[name] = c
	}
	for _, dir := range in.Queues {
		q, err := writer.ReadQueue(dir)
		if err != nil {
			return nil, err
		}
		if err := report.compareQueue(ctx, in.Log, q, checkers[q.Writer]); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		checkers[name].checkTail()
		report.Chains = append(report.Chains, checkers[name].chain)
	}
	return report, nil
}

func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }

// checker checks the chain of one writer, line by line.
type checker struct {
	report *Report
	keys   audit.Keys
	chain  Chain
	// number is the place of the current line in the log, size the number of bytes up to its end.
	number int
	size   int64
	// tail are the records after the last valid checkpoint.
	tail tail
	// expect is the sequence number of the next line. previous is the hash of the line before; "" if that line was changed.
	expect   uint64
	previous string
	// key is the ID of the key of the last valid checkpoint. replaced are the keys of earlier ones.
	key      string
	replaced map[string]bool
	// open are the numbers of the records of actions without an outcome.
	open    map[uint64]bool
	witness witnessed
	// unknown is true after a checkpoint with a key that keys did not have.
	unknown bool
}

// maxCheckpoint is more than the length of a checkpoint in bytes.
const maxCheckpoint = 4 << 10

// witnessed reads the checkpoints that the witness has of a chain, in their order.
type witnessed struct {
	// lines are the lines after byte size of the witness; nil if all were read.
	lines *bufio.Reader
	size  int64
	// line is the latest line that was read, which ends at byte size; empty if none was, or if it was too long.
	line []byte
	// next is the first checkpoint that the log was not compared with; nil if there is none. last is the latest that was read.
	next, last *audit.Line
	// err is the error of reading the witness.
	err error
}

func newChecker(writer string) *checker {
	return &checker{chain: Chain{Writer: writer}, expect: 1, previous: audit.Genesis, replaced: map[string]bool{}, open: map[uint64]bool{}}
}

// tail are the records of a chain that no checkpoint confirms.
type tail struct {
	// sequence and line are the number and the place of the first record, earliest and latest the limits of their times.
	sequence         uint64
	line             int
	earliest, latest time.Time
	// read is when the log was read, modified when it was written, by the clock of the storage.
	read, modified time.Time
	// queued is true if the queue of the writer has the records.
	queued bool
}

// add adds a record.
func (t *tail) add(l audit.Line, line int) {
	if t.sequence == 0 {
		t.sequence, t.line, t.earliest, t.latest = l.Sequence, line, l.Time, l.Time
	}
	if l.Time.Before(t.earliest) {
		t.earliest = l.Time
	}
	if l.Time.After(t.latest) {
		t.latest = l.Time
	}
}

func (c *checker) find(sequence uint64, line int, problem Problem, format string, args ...any) {
	c.report.add(Finding{Writer: c.chain.Writer, Sequence: sequence, Line: line, Problem: problem, Message: fmt.Sprintf(format, args...)})
}

// read checks the log of a writer.
func (c *checker) read(ctx context.Context, in Input) (err error) {
	read := in.Now() // the content is that of the time when it was opened
	if _, err := c.readLines(ctx, in.Log, in.Witness, math.MaxInt64, true); err != nil {
		return err
	}
	if c.chain.Unconfirmed > 0 {
		c.tail.read = read
		c.tail.modified, err = in.Log.Modified(ctx, c.chain.Writer)
	}
	return err
}

// readLines checks the lines of a log that were not checked before, and stops after limit bytes. ended reports whether it has read the log to its end. If last
// is set, it also reports a last line without an end. witness may be nil.
func (c *checker) readLines(ctx context.Context, log sink.Reader, witness sink.WitnessReader, limit int64, last bool) (ended bool, err error) {
	if witness != nil && audit.ValidWriter(c.chain.Writer) {
		// The witness first: its checkpoints are in what is read later.
		opened, err := c.openWitness(ctx, witness)
		if err != nil {
			return false, err
		}
		defer func() { _ = opened.Close() }()
	}
	content, err := log.Open(ctx, c.chain.Writer, c.size)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	lines := bufio.NewReaderSize(content, 64<<10)
	for limit > 0 {
		text, n, err := readLine(lines)
		switch {
		case errors.Is(err, io.EOF):
			if len(text) > 0 && last {
				c.find(c.expect, c.number+1, Incomplete, "the last line has no end: the writer stopped while it exported, and completes the line after its next start, or the log was changed")
			}
			c.end()
			return true, c.witness.err
		case err != nil:
			return false, fmt.Errorf("reading the audit sink: %w", err)
		case ctx.Err() != nil:
			return false, ctx.Err()
		}
		limit -= n
		c.number, c.size = c.number+1, c.size+n
		if c.line(bytes.TrimSuffix(text, []byte("\n"))); c.witness.err != nil {
			return false, c.witness.err
		}
	}
	return false, nil
}

// readLine returns the next line with its newline, and its length. A line that is too long is returned without its rest.
func readLine(from *bufio.Reader) (line []byte, length int64, err error) {
	for {
		part, err := from.ReadSlice('\n')
		length += int64(len(part))
		if room := audit.MaxLine + 1 - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, length, err
		}
	}
}

// openWitness opens the checkpoints that were not read before. The caller must close them.
func (c *checker) openWitness(ctx context.Context, witness sink.WitnessReader) (io.Closer, error) {
	w := &c.witness
	w.lines, w.err = nil, nil
	size, err := witness.Size(ctx, c.chain.Writer)
	if err != nil || size == w.size {
		return io.NopCloser(nil), err
	}
	content, err := witness.Open(ctx, c.chain.Writer, min(w.size-int64(len(w.line)), size))
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(content, max(maxCheckpoint, len(w.line)))
	switch known, err := lines.Peek(len(w.line)); {
	case err != nil && !errors.Is(err, io.EOF):
		return nil, errors.Join(fmt.Errorf("reading the audit witness: %w", err), content.Close())
	case bytes.Equal(known, w.line):
		_, _ = lines.Discard(len(known))
		w.lines = lines
	default:
		if err := content.Close(); err != nil {
			return nil, err
		}
		if content, err = c.reopenWitness(ctx, witness, size); err != nil {
			return nil, err
		}
	}
	if w.next == nil {
		// The log has checkpoints before the witness. Those that were read before the witness had them are left to a checker that begins later.
		for c.advance(); w.next != nil && w.next.Sequence < c.expect; c.advance() {
		}
	}
	return content, nil
}

// reopenWitness opens a witness that does not continue what was read before. A writer of an earlier release replaces all checkpoints by its latest one, behind those that
// were read: then none is lost that the chain was not compared with. Everything else is a finding.
func (c *checker) reopenWitness(ctx context.Context, witness sink.WitnessReader, size int64) (io.ReadCloser, error) {
	w := &c.witness
	content, err := witness.Open(ctx, c.chain.Writer, 0)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(content, maxCheckpoint)
	text, err := lines.Peek(maxCheckpoint)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("reading the audit witness: %w", err), content.Close())
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	line, err := c.keys.ParseCheckpoint(c.chain.Writer, first)
	c.unknown = c.unknown || errors.Is(err, audit.ErrUnknownKey)
	if err != nil || w.last != nil && line.Sequence < w.last.Sequence {
		c.find(0, 0, Cut, "the witness had %d bytes of checkpoints of this writer and has %d: somebody removed or replaced them", w.size, size)
		w.size, w.line = size, nil
		return content, nil
	}
	w.lines, w.size, w.line = lines, 0, nil
	return content, nil
}

// advance reads the next checkpoint of the witness. It reports the lines that are none of this chain, and those that do not follow the one before: everybody who may
// append to the witness can add them, and they have no effect.
func (c *checker) advance() {
	w := &c.witness
	for w.next = nil; w.lines != nil; {
		text, n, err := readLine(w.lines)
		if err != nil { // a line without an end is one that is being written
			w.lines = nil
			if !errors.Is(err, io.EOF) {
				w.err = fmt.Errorf("reading the audit witness: %w", err)
			}
			return
		}
		w.size += n
		if w.line = text; int64(len(text)) < n {
			w.line = nil
		}
		line, err := c.keys.ParseCheckpoint(c.chain.Writer, bytes.TrimSuffix(text, []byte("\n")))
		switch {
		case err != nil:
			c.unknown = c.unknown || errors.Is(err, audit.ErrUnknownKey)
			c.find(0, 0, Forged, "a checkpoint in the witness is not valid: %v", err)
		case w.last != nil && line.Hash == w.last.Hash: // the writer has repeated it
		case w.last != nil && line.Sequence <= w.last.Sequence:
			c.find(line.Sequence, 0, Forged, "the witness has checkpoint %d after checkpoint %d", line.Sequence, w.last.Sequence)
		default:
			w.next, w.last = &line, &line
			return
		}
	}
}

// compare compares a checkpoint of the log with those of the witness.
func (c *checker) compare(line audit.Line) {
	c.missing(line.Sequence)
	if next := c.witness.next; next != nil && next.Sequence == line.Sequence {
		if line.Hash != next.Hash {
			c.find(line.Sequence, c.number, Replaced, "the witness has another checkpoint with this number")
		}
		c.advance()
	}
}

// missing reports the checkpoints of the witness before a number, which the log should have.
func (c *checker) missing(before uint64) {
	for next := c.witness.next; next != nil && next.Sequence < before; next = c.witness.next {
		c.find(next.Sequence, 0, Replaced, "the chain does not have checkpoint %d, which the witness has", next.Sequence)
		c.advance()
	}
}

// line checks the next line of the log, without its newline.
func (c *checker) line(content []byte) {
	line, err := audit.ParseLine(content)
	if err != nil {
		c.find(c.expect, c.number, Changed, "%v", err)
		c.expect, c.previous = c.expect+1, ""
		return
	}
	if line.Writer != c.chain.Writer {
		c.find(c.expect, c.number, Misplaced, "the line belongs to the chain of %s", line.Writer)
		return
	}
	switch {
	case line.Sequence < c.expect:
		c.find(line.Sequence, c.number, Misplaced, "the line comes after line %d of the chain: it was moved or inserted", c.expect-1)
		return
	case line.Sequence > c.expect:
		c.find(c.expect, c.number, Missing, "the lines %d to %d of the chain are missing before this line", c.expect, line.Sequence-1)
	case c.previous != "" && line.Previous != c.previous:
		c.find(line.Sequence, c.number, Replaced, "the line does not follow the line before it: one of them was replaced")
	}
	c.expect, c.previous, c.chain.Last = line.Sequence+1, line.Hash, line.Time
	c.checkSignature(line, content)
}

// checkSignature checks a checkpoint, and counts the line.
func (c *checker) checkSignature(line audit.Line, content []byte) {
	if line.Kind == audit.RecordLine {
		if line.Sequence == 1 {
			c.find(1, c.number, Forged, "the chain begins without a signed checkpoint")
		}
		c.chain.Records++
		c.chain.Unconfirmed++
		c.tail.add(line, c.number)
		if line.Pending {
			c.open[line.Sequence] = true
		}
		delete(c.open, line.Completes)
		return
	}
	if err := c.keys.Verify(line, content); err != nil {
		c.unknown = c.unknown || errors.Is(err, audit.ErrUnknownKey)
		c.find(line.Sequence, c.number, Forged, "the checkpoint is not valid: %v", err)
		return
	}
	// Whoever has a key that was replaced can choose the time of a checkpoint, but not its place.
	if c.replaced[line.Key] {
		c.find(line.Sequence, c.number, Forged, "the checkpoint is not valid: the key %s was replaced by %s earlier in the chain", line.Key, c.key)
		return
	}
	if c.key != "" && c.key != line.Key {
		c.replaced[c.key] = true
	}
	c.key = line.Key
	c.chain.Checkpoints++
	c.chain.Unconfirmed, c.chain.Closed, c.tail = 0, line.End, tail{}
	c.compare(line)
}

// end counts the open actions, and checks that the chain has all checkpoints of the witness.
func (c *checker) end() {
	c.chain.Open = len(c.open)
	c.missing(c.expect)
	if next := c.witness.next; next != nil {
		c.find(c.expect, 0, Cut, "the chain ends with line %d, and the witness has checkpoint %d: the end was cut", c.expect-1, next.Sequence)
	}
}

// checkTail reports the records that no checkpoint confirms, unless the queue has them or their checkpoint is not due yet.
func (c *checker) checkTail() {
	t, closed := c.tail, c.chain.Closed
	if t.sequence == 0 {
		return
	}
	c.chain.Closed = false
	limit := writer.MaxUnconfirmed
	switch {
	case t.queued:
	case closed:
		c.find(t.sequence, t.line, Forged, "the writer closed its chain with the checkpoint before this line, and no checkpoint follows")
	case t.latest.Sub(t.read) > limit:
		c.find(t.sequence, t.line, Unconfirmed, "no checkpoint confirms the records from this line on, and one has a time in the future: %s", t.latest.Format(time.RFC3339))
	case t.read.Sub(t.earliest) > limit || t.read.Sub(t.modified) > limit:
		c.find(t.sequence, t.line, Unconfirmed, "no checkpoint confirms the records from this line on, and it was due within %v: "+
			"the writer was killed, cannot write or cannot export, and confirms them later, or they were forged", limit)
	}
}

// compareQueue compares the log of a writer with what its queue has. c is the checker of the log, nil if there is none.
func (r *Report) compareQueue(ctx context.Context, log sink.Reader, q *writer.Snapshot, c *checker) (err error) {
	size, err := log.Size(ctx, q.Writer)
	if err != nil {
		return err
	}
	if size < q.Offset {
		r.add(Finding{Writer: q.Writer, Problem: Cut, Message: fmt.Sprintf("the log has %d bytes, and the writer's queue begins at byte %d: the end was cut", size, q.Offset)})
		return nil
	}
	if c == nil {
		return nil
	}
	end := q.Offset + int64(len(q.Content))
	c.chain.Queued = max(end-size, 0)
	if c.size > end {
		r.add(Finding{Writer: q.Writer, Problem: Forged, Message: fmt.Sprintf("the log has lines up to byte %d, and the writer's queue ends at byte %d: somebody else appended them", c.size, end)})
	}
	want := q.Content[:min(size, end)-q.Offset]
	if len(want) == 0 {
		first, err := audit.ParseLine(bytes.TrimSuffix(q.Content[:bytes.IndexByte(q.Content, '\n')+1], []byte("\n")))
		c.tail.queued = err == nil && c.size == q.Offset && first.Previous == c.previous
		return nil
	}
	content, err := log.Open(ctx, q.Writer, q.Offset)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(content, got); err != nil {
		return fmt.Errorf("reading the audit sink: %w", err)
	}
	if !bytes.Equal(got, want) {
		r.add(Finding{Writer: q.Writer, Problem: Replaced, Message: "the end of the log differs from the writer's queue"})
		return nil
	}
	// The hashes connect the lines before those of the queue.
	c.tail.queued = q.Offset < c.size && c.size <= end
	return nil
}

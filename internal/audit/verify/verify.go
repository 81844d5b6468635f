// Package verify checks the audit chains in a sink: the hashes and the order of all lines, the signatures of all checkpoints, and that
// no chain ends before the latest checkpoint in the witness. It does not change anything.
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
	"maps"
	"slices"
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
	// Forged is a checkpoint without a valid signature, one of a key that the chain has replaced, or a chain without a checkpoint at its
	// beginning.
	Forged Problem = "forged"
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
	// Records and Checkpoints are the numbers of valid lines. Unsigned is the number of records after the last checkpoint: without the
	// writer's queue, the removal of these cannot be found.
	Records     int `json:"records"`
	Checkpoints int `json:"checkpoints"`
	Unsigned    int `json:"unsigned"`
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
}

// Verify checks all chains. Writers may write meanwhile. An error means that something could not be read.
func Verify(ctx context.Context, in Input) (*Report, error) {
	// The order matters while writers write: a line is in its queue first, then in the sink, then in the witness.
	var queues []*writer.Snapshot
	for _, dir := range in.Queues {
		snapshot, err := writer.ReadQueue(dir)
		if err != nil {
			return nil, err
		}
		queues = append(queues, snapshot)
	}
	witnessed := map[string][]byte{}
	if in.Witness != nil {
		var err error
		if witnessed, err = in.Witness.Checkpoints(ctx); err != nil {
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
	for _, name := range slices.Sorted(maps.Keys(witnessed)) {
		if !exists[name] {
			report.add(Finding{Writer: name, Problem: Cut, Message: "the witness has a checkpoint of this writer, and the sink has no log of it: the log was deleted"})
		}
	}
	for _, name := range names {
		c := &checker{report: report, keys: in.Keys, chain: Chain{Writer: name}, expect: 1, replaced: map[string]bool{}, open: map[uint64]bool{}}
		if err := c.read(ctx, in.Log, witnessed[name]); err != nil {
			return nil, err
		}
		report.Chains = append(report.Chains, c.chain)
	}
	for _, q := range queues {
		if err := report.compareQueue(ctx, in.Log, q); err != nil {
			return nil, err
		}
	}
	return report, nil
}

func (r *Report) add(f Finding) { r.Findings = append(r.Findings, f) }

// checker checks the chain of one writer, line by line.
type checker struct {
	report *Report
	keys   audit.Keys
	chain  Chain
	// number is the place of the current line in the log.
	number int
	// expect is the sequence number of the next line. previous is the hash of the line before; "" if that line was changed.
	expect   uint64
	previous string
	// key is the ID of the key of the last valid checkpoint. replaced are the keys of earlier ones.
	key      string
	replaced map[string]bool
	// open are the numbers of the records of actions without an outcome.
	open map[uint64]bool
	// witness is the decoded checkpoint of the witness. found reports whether the log has it.
	witness *audit.Line
	found   bool
}

func (c *checker) find(sequence uint64, line int, problem Problem, format string, args ...any) {
	c.report.add(Finding{Writer: c.chain.Writer, Sequence: sequence, Line: line, Problem: problem, Message: fmt.Sprintf(format, args...)})
}

// read checks the log of a writer.
func (c *checker) read(ctx context.Context, log sink.Reader, witnessed []byte) (err error) {
	c.readWitness(witnessed)
	content, err := log.Open(ctx, c.chain.Writer, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	c.previous = audit.Genesis
	lines := bufio.NewReaderSize(content, 64<<10)
	for {
		text, err := readLine(lines)
		if len(text) > 0 {
			c.number++
			c.line(text)
		}
		switch {
		case errors.Is(err, io.EOF):
			c.end()
			return nil
		case err != nil:
			return fmt.Errorf("reading the audit sink: %w", err)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// readLine returns the next line with its newline. A line that is too long is returned without its rest.
func readLine(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		if room := audit.MaxLine + 1 - len(line); room > 0 {
			line = append(line, part[:min(len(part), room)]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// readWitness decodes the checkpoint of the witness.
func (c *checker) readWitness(text []byte) {
	if text == nil {
		return
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	line, err := audit.ParseLine(text)
	if err == nil && line.Writer != c.chain.Writer {
		err = fmt.Errorf("it is a checkpoint of %s", line.Writer)
	}
	if err == nil {
		err = c.keys.Verify(line, text)
	}
	if err != nil {
		c.find(0, 0, Forged, "the checkpoint in the witness is not valid: %v", err)
		return
	}
	c.witness = &line
}

// line checks the next line of the log.
func (c *checker) line(text []byte) {
	content, complete := bytes.CutSuffix(text, []byte("\n"))
	if !complete {
		c.find(c.expect, c.number, Incomplete, "the last line has no end: the writer stopped while it exported, and completes the line after its next start, or the log was changed")
		return
	}
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
		c.chain.Unsigned++
		if line.Pending {
			c.open[line.Sequence] = true
		}
		delete(c.open, line.Completes)
		return
	}
	if err := c.keys.Verify(line, content); err != nil {
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
	c.chain.Unsigned = 0
	if c.witness == nil || line.Sequence != c.witness.Sequence {
		return
	}
	c.found = true
	if line.Hash != c.witness.Hash {
		c.find(line.Sequence, c.number, Replaced, "the witness has another checkpoint with this number")
	}
}

// end counts the open actions, and checks that the chain has the checkpoint of the witness.
func (c *checker) end() {
	c.chain.Open = len(c.open)
	switch {
	case c.witness == nil || c.found:
	case c.expect <= c.witness.Sequence:
		c.find(c.expect, 0, Cut, "the chain ends with line %d, and the witness has checkpoint %d: the end was cut", c.expect-1, c.witness.Sequence)
	default:
		c.find(c.witness.Sequence, 0, Replaced, "the chain does not have checkpoint %d, which the witness has", c.witness.Sequence)
	}
}

// compareQueue compares the log of a writer with what its queue has.
func (r *Report) compareQueue(ctx context.Context, log sink.Reader, q *writer.Snapshot) (err error) {
	size, err := log.Size(ctx, q.Writer)
	if err != nil {
		return err
	}
	if size < q.Offset {
		r.add(Finding{Writer: q.Writer, Problem: Cut, Message: fmt.Sprintf("the log has %d bytes, and the writer's queue begins at byte %d: the end was cut", size, q.Offset)})
		return nil
	}
	end := q.Offset + int64(len(q.Content))
	if index := slices.IndexFunc(r.Chains, func(c Chain) bool { return c.Writer == q.Writer }); index >= 0 {
		r.Chains[index].Queued = max(end-size, 0)
	}
	want := q.Content[:min(size, end)-q.Offset]
	if len(want) == 0 {
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
	}
	return nil
}

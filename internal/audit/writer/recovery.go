package writer

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// recoverSegment checks the lines of a segment and moves end behind them. The line before the first segment is not known. It cuts the
// last segment after its last line.
//
// A machine that ends can lose any part of what was written and not synced: also a line before another one that is complete. Such a line
// cannot be distinguished from a changed one by itself. But each line has the number of the last line that was durable before it: if a
// complete line follows that was written after the missing one was durable, the queue was changed.
func (q *queue) recoverSegment(s *segment, first, last bool) error {
	content, err := os.ReadFile(s.path)
	if err != nil {
		return fmt.Errorf("opening the audit queue: %w", err)
	}
	rest := content
	for len(rest) > 0 {
		text, after, complete := bytes.Cut(rest, []byte("\n"))
		line, err := audit.ParseLine(text)
		// The line is not a broken one: without it, and with all lines after it, the chain would lose what a later release has stored.
		if complete && errors.Is(err, audit.ErrUnknownKind) {
			return fmt.Errorf("opening the audit queue: %s, line %d: %w; start that release again", s.path, line.Sequence, err)
		}
		good := complete && err == nil && line.Writer == q.writer
		good = good && (line.Follows(q.end) || first && len(rest) == len(content) && s.offset > 0)
		if !good {
			break
		}
		if err := q.recoverAction(line); err != nil {
			return err
		}
		q.end = line.At(q.end.Offset, len(text)+1)
		rest = after
	}
	if len(rest) == 0 {
		return nil
	}
	if !last || provesDurable(rest, q.end.Sequence+1) {
		return fmt.Errorf("%w: %s has a changed line after line %d of the chain of %s", ErrDamaged, s.path, q.end.Sequence, q.writer)
	}
	s.size -= int64(len(rest))
	return truncate(s.path, s.size)
}

// recoverAction notes the actions that have begun and not ended.
func (q *queue) recoverAction(line audit.Line) error {
	if line.Pending {
		encoded, err := audit.EncodeRecord(*line.Record)
		if err != nil {
			return err
		}
		q.open[line.Sequence] = opened{offset: q.end.Offset, encoded: encoded}
	}
	delete(q.open, line.Completes)
	return nil
}

// provesDurable reports whether text has a complete line that was written after the line with a number was durable.
func provesDurable(text []byte, sequence uint64) bool {
	for len(text) > 0 {
		content, after, complete := bytes.Cut(text, []byte("\n"))
		// What was lost has other bytes, and may have been the end of the line before.
		for _, prefix := range []string{recordPrefix, checkpointPrefix} {
			begin := bytes.LastIndex(content, []byte(prefix))
			if begin < 0 || !complete {
				continue
			}
			// The lines of earlier releases do not have the number. Their writer wrote one line only after the one before it was durable.
			line, err := audit.ParseLine(content[begin:])
			if err == nil && (line.Durable >= sequence || line.Durable == 0 && line.Sequence > 1) {
				return true
			}
		}
		text = after
	}
	return false
}

// recordPrefix and checkpointPrefix are the beginnings of lines. No string in a record contains them, because it has no bare quotes.
const (
	recordPrefix     = `{"kind":"` + audit.RecordLine + `","writer":"`
	checkpointPrefix = `{"kind":"` + audit.CheckpointLine + `","writer":"`
)

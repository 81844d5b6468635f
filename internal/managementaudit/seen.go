package managementaudit

import (
	"bytes"
	"errors"
	"io/fs"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// maxSeen is the number of events that a follower remembers. It reads fewer between two stores of its position.
const maxSeen = 8192

// seen is a set of the newest events that have a record.
type seen struct {
	keys  map[string]bool
	order []string
	next  int
}

func newSeen() *seen { return &seen{keys: map[string]bool{}, order: make([]string, maxSeen)} }

func (s *seen) has(key string) bool { return s.keys[key] }

func (s *seen) add(key string) {
	delete(s.keys, s.order[s.next])
	s.order[s.next] = key
	s.keys[key] = true
	s.next = (s.next + 1) % maxSeen
}

// readQueue adds the events that the queue of the chain has. The process may have ended after it stored a record and before it stored
// its position.
func (s *seen) readQueue(dir string) error {
	snapshot, err := writer.ReadQueue(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for text := range bytes.Lines(snapshot.Content) {
		line, err := audit.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err == nil && line.Record != nil && line.Record.Request != "" {
			s.add(line.Record.Request + "/" + line.Record.Outcome)
		}
	}
	return nil
}

package writer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// Snapshot is the content of a queue: the end of a writer's chain.
type Snapshot struct {
	Writer string
	// Offset is the place of Content in the chain, in bytes.
	Offset  int64
	Content []byte
}

// snapshotAttempts limits the attempts of ReadQueue while the writer deletes segments.
const snapshotAttempts = 10

// ReadQueue reads the queue in a folder, also while a writer uses it.
func ReadQueue(dir string) (*Snapshot, error) {
	name, err := os.ReadFile(filepath.Join(dir, nameFile))
	if err != nil {
		return nil, fmt.Errorf("reading the audit queue: %w", err)
	}
	s := &Snapshot{Writer: strings.TrimSuffix(string(name), "\n")}
	if !audit.ValidWriter(s.Writer) {
		return nil, fmt.Errorf("reading the audit queue: %s has no name of a writer", filepath.Join(dir, nameFile))
	}
	for range snapshotAttempts {
		err = s.read(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the audit queue: %w", err)
	}
	return s, nil
}

func (s *Snapshot) read(dir string) error {
	segments, err := findSegments(dir)
	if err != nil {
		return err
	}
	s.Content = nil
	for i, segment := range segments {
		content, err := os.ReadFile(segment.path)
		if err != nil {
			return err
		}
		if i == 0 {
			s.Offset = segment.offset
		}
		if segment.offset != s.Offset+int64(len(s.Content)) {
			return fmt.Errorf("%w: %s does not begin where the segment before it ends", ErrDamaged, segment.path)
		}
		s.Content = append(s.Content, content...)
	}
	// The last line may be incomplete.
	s.Content = s.Content[:bytes.LastIndexByte(s.Content, '\n')+1]
	return nil
}

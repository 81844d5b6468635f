// Package recorder records the commands and attachments of access sessions, and does not let them continue unrecorded.
//
// Each upgraded connection of pods/exec and pods/attach has a Recording: a file on the disk of the replica, in the format of
// internal/recording, which encrypts it for the readers of recordings. The file exists before the API server gets the request. A message is
// written to it before it is forwarded, and a message of the client is durable before. If that fails, the connection ends. Port forwarding
// is not recorded: its bytes are those of another protocol, and not a terminal.
//
// The Store exports the files to a sink, as package internal/audit/writer exports audit records, and describes them in an Index. It deletes a
// file when the recording has ended and both have it. While one of them is away, files remain, and the Store refuses further recordings at
// its limit.
package recorder

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// The bounds of a Store.
const (
	// DefaultMaxBytes is the maximum size of one recording in bytes, encrypted.
	DefaultMaxBytes = 64 << 20
	// DefaultMaxTotal is the maximum size of all recordings on a replica in bytes, and MinTotal the smallest one.
	DefaultMaxTotal = 512 << 20
	MinTotal        = 1 << 20
	// MaxOpen is the number of recordings at the same time on a replica. Each has at most one part of a message per direction in memory.
	MaxOpen = 128
	// endReserve is the space for the end of each recording.
	endReserve = 16 << 10
	// minFree is the free space of the disk, and of the limit of all recordings, that a new recording needs.
	minFree = 512 << 10
)

const (
	lockFile = "lock"
	suffix   = ".recording"
	// damaged is the suffix of files that are no recordings.
	damaged = ".damaged"
)

// ReasonUnavailable is the reason of the errors of a Store and its recordings.
const ReasonUnavailable = "RECORDING_UNAVAILABLE"

// Options are the parts of a Store.
type Options struct {
	// Dir is the folder of the recordings that are not exported, on a disk that survives a restart of the replica.
	Dir string
	// Sink is where recordings are exported to. Its logs have the names of package internal/recording.
	Sink  sink.Log
	Index Index
	// Keys are those of the readers of recordings. Signing signs recordings: the audit key of the session gateway.
	Keys    *seal.PublicKeys
	Signing *audit.SigningKey
	// MaxBytes, MaxTotal and MaxOpen are the bounds; 0 means the defaults.
	MaxBytes, MaxTotal int64
	MaxOpen            int
	Log                *slog.Logger
	Metrics            prometheus.Registerer

	// sync makes the content of a file durable; nil is disk.SyncData.
	sync func(*os.File) error
}

// Index has a description of each recording, by which people find it.
type Index interface {
	// Put stores the description of a recording, or replaces an earlier one of the same recording.
	Put(ctx context.Context, d Description) error
}

// Description describes a recording.
type Description struct {
	recording.Facts
	// Bytes is the size of its log, and End is when and why it ended; nil while it is in progress.
	Bytes int64
	End   *recording.End
	// Complete is set if the recording has its end. It is false after the end if the process was killed or the disk could not be written.
	Complete bool
}

// Store holds the recordings of one replica. It is safe for concurrent use.
type Store struct {
	options Options
	lock    *os.File
	metrics *metrics
	// changed is signaled when there is something to export.
	changed chan struct{}

	mu sync.Mutex
	// recordings are those on the disk, by their IDs, and open is the number of those in progress.
	recordings map[string]*Recording
	open       int
	// total is the number of bytes of all files, with the space for their ends.
	total int64
}

// Open opens or creates the folder of a Store. It takes over what an earlier process has left. Run must be called afterwards.
func Open(options Options) (*Store, error) {
	options.MaxBytes, options.MaxTotal = cmp.Or(options.MaxBytes, DefaultMaxBytes), cmp.Or(options.MaxTotal, DefaultMaxTotal)
	options.MaxOpen = cmp.Or(options.MaxOpen, MaxOpen)
	if options.sync == nil {
		options.sync = disk.SyncData
	}
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the folder of recordings: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(options.Dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the folder of recordings: %w", err)
	}
	s := &Store{options: options, lock: lock, changed: make(chan struct{}, 1), recordings: map[string]*Recording{}}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the folder of recordings: another process uses %s: %w", options.Dir, err), lock.Close())
	}
	if err := s.recover(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.metrics = newMetrics(options.Metrics, s)
	return s, nil
}

// recover takes over the files of an earlier process.
func (s *Store) recover() error {
	paths, err := filepath.Glob(filepath.Join(s.options.Dir, "*"+suffix))
	if err != nil {
		return err
	}
	for _, path := range paths {
		r, err := s.recoverFile(path)
		if errors.Is(err, recording.ErrFormat) {
			s.options.Log.Error("a file is not a recording; it is kept under another name", logkey.Path, path, logkey.Error, err)
			err = os.Rename(path, strings.TrimSuffix(path, suffix)+damaged)
		}
		if err != nil {
			return fmt.Errorf("reading the recording %s: %w", path, err)
		}
		if r == nil {
			continue
		}
		s.recordings[r.facts.ID] = r
		s.total += r.size
		s.signal()
	}
	return nil
}

// recoverFile returns the recording in a file, up to the first line that is incomplete or unreadable: what was not durable can be lost in any part.
// It deletes a file without the first lines, which were not durable, and returns nil: the API server has not got its request.
func (s *Store) recoverFile(path string) (*Recording, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	found, err := scan(file)
	if err != nil {
		return nil, err
	}
	if found.lines < firstLines {
		return nil, os.Remove(path)
	}
	if found.facts.ID != strings.TrimSuffix(filepath.Base(path), suffix) {
		return nil, fmt.Errorf("%w: its ID is %s", recording.ErrFormat, found.facts.ID)
	}
	// Its last lines may be in the memory of the file system only.
	if err := errors.Join(file.Truncate(found.size), file.Sync()); err != nil {
		return nil, err
	}
	end := found.end
	if end == nil {
		end = &recording.End{Time: info.ModTime().UTC(), Reason: "The session gateway was interrupted."}
	}
	r := newRecording(s, path, *found.facts)
	r.began, r.ended, r.complete, r.size, r.durable = true, end, found.end != nil, found.size, found.size
	return r, nil
}

// firstLines is the number of lines that a recording has before its connection is opened: the facts, and the header of the asciicast.
const firstLines = 2

// scanned is what the complete lines of a file state.
type scanned struct {
	lines int
	size  int64
	facts *recording.Facts
	end   *recording.End
}

// scan reads the complete lines of a file. It ends before a line that cannot be read, and returns an error if that is the first one.
func scan(file io.Reader) (*scanned, error) {
	var found scanned
	reader := bufio.NewReaderSize(file, 64<<10)
	for {
		line, err := reader.ReadBytes('\n') // the file has at most the bytes of the bounds
		if errors.Is(err, io.EOF) {
			return &found, nil
		}
		if err != nil {
			return nil, err
		}
		parsed, err := recording.ParseLine(line, found.lines == 0)
		switch {
		case err != nil && found.lines == 0:
			return nil, err
		case err != nil:
			return &found, nil
		case found.lines == 0:
			found.facts = parsed.Facts
		}
		found.end = parsed.End
		found.lines++
		found.size += int64(len(line))
	}
}

// Available returns an error if a new recording would be refused.
func (s *Store) Available() error {
	s.mu.Lock()
	open, total := s.open, s.total
	s.mu.Unlock()
	switch {
	case open >= s.options.MaxOpen:
		return apierror.New(apierror.Throttled, "The session gateway records %d commands, which is the maximum.", open).WithReason(ReasonUnavailable).WithRetryAfter(retryAfter)
	case total+minFree > s.options.MaxTotal:
		return s.refused(causeFull, unavailable("%s", messageFull))
	}
	space, err := disk.SpaceOf(s.options.Dir)
	if err == nil && space.FreeBytes < minFree {
		err = fmt.Errorf("%w: %s", disk.ErrFull, space)
	}
	if err != nil {
		return s.refused(causeDisk, unavailable("%s", messageDisk).WithCause(err))
	}
	return nil
}

// retryAfter is the pause after which a caller should repeat a request that was refused.
const retryAfter = 30 * time.Second

// The messages of failures. They fit into a close frame with the beginning that unavailable adds.
const (
	messageFull = "too many recordings are not exported."
	messageDisk = "the disk of the session gateway is full or away."
)

func unavailable(format string, arguments ...any) *apierror.Error {
	return apierror.New(apierror.Unavailable, "The request cannot be recorded: "+format, arguments...).WithReason(ReasonUnavailable).WithRetryAfter(retryAfter)
}

// refused counts a failure.
func (s *Store) refused(cause string, err *apierror.Error) *apierror.Error {
	s.metrics.failures.WithLabelValues(cause).Inc()
	return err
}

// Start begins a recording, durably. Its command is encrypted. The caller must call Begin or Discard, and End after Begin.
func (s *Store) Start(facts recording.Facts, command []string) (*Recording, error) {
	if err := s.Available(); err != nil {
		return nil, err
	}
	lines, first, err := recording.NewWriter(s.options.Keys, s.options.Signing, facts, command)
	if err != nil {
		return nil, err
	}
	facts.Start = facts.Start.UTC()
	r := newRecording(s, filepath.Join(s.options.Dir, facts.ID+suffix), facts)
	r.lines = lines
	s.mu.Lock()
	s.open++
	s.recordings[facts.ID] = r
	s.total += endReserve
	s.mu.Unlock()
	if err := r.create(first); err != nil {
		r.Discard()
		return nil, err
	}
	return r, nil
}

// reserve counts bytes before they are written. It returns false if they exceed the limit.
func (s *Store) reserve(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total+bytes > s.options.MaxTotal {
		return false
	}
	s.total += bytes
	return true
}

func (s *Store) release(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total -= bytes
}

// signal makes Run export.
func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default: // a signal waits already
	}
}

// all returns the recordings on the disk, in the order of their IDs.
func (s *Store) all() []*Recording {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Recording
	for _, id := range slices.Sorted(maps.Keys(s.recordings)) {
		all = append(all, s.recordings[id])
	}
	return all
}

func (s *Store) logFailure(ctx context.Context, message, id string, err error) {
	s.options.Log.ErrorContext(ctx, message, logkey.RequestID, id, logkey.Error, err)
}

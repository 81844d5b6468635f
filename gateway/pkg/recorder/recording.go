package recorder

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/recording"
)

// part is the number of bytes of a message that are encrypted and written at once.
const part = 16 << 10

// Recording is the recording of one connection. It is safe for concurrent use.
type Recording struct {
	store *Store
	path  string
	facts recording.Facts

	// syncing is locked during a sync. It is locked before mu.
	syncing sync.Mutex

	mu sync.Mutex
	// file and lines are nil if the recording has ended.
	file  *os.File
	lines *recording.Writer
	// began is set when the API server may have got the request. Only then is it exported.
	began bool
	// size is the number of bytes in the file, and durable of those that are on the disk.
	size, durable int64
	// torn is set if the file may have an incomplete line after size, and lost if a sync has failed, after which nobody knows what is on the disk.
	torn, lost bool
	// failure is why it cannot be continued. failed is closed with it.
	failure error
	failed  chan struct{}
	// ended is set at the end, and complete if the file has the end.
	ended    *recording.End
	complete bool

	// exported is the number of bytes that the sink has, -1 if unknown. described is set when the Index has the recording. Only Run uses them.
	exported  int64
	described bool
}

func newRecording(s *Store, path string, facts recording.Facts) *Recording {
	return &Recording{store: s, path: path, facts: facts, failed: make(chan struct{}), exported: -1}
}

// create creates the file with its first lines, durably.
func (r *Recording) create(first []byte) error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	file, err := os.OpenFile(r.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return r.fail(causeDisk, unavailable("%s", messageDisk).WithCause(err))
	}
	r.file = file
	if err := r.write(first); err != nil {
		return err
	}
	if err := errors.Join(r.store.options.sync(file), disk.Sync(filepath.Dir(r.path))); err != nil {
		r.lost = true
		return r.fail(causeDisk, unavailable("%s", messageDisk).WithCause(err))
	}
	r.durable = r.size
	return nil
}

// fail notes why the recording cannot be continued, and returns the first failure. mu must be locked.
func (r *Recording) fail(cause string, err *apierror.Error) error {
	if r.failure == nil {
		r.failure = r.store.refused(cause, err)
		close(r.failed)
	}
	return r.failure
}

// write writes lines to the file. mu must be locked. After an error the file has none of them.
func (r *Recording) write(lines []byte) error {
	bytes := int64(len(lines))
	switch {
	case r.failure != nil:
		return r.failure
	case r.size+bytes+endReserve > r.store.options.MaxBytes:
		return r.fail(causeSize, apierror.New(apierror.Throttled, "The recording of the command has %d bytes, which is the maximum. Start another command.", r.store.options.MaxBytes).WithReason(ReasonUnavailable))
	case !r.store.reserve(bytes):
		return r.fail(causeFull, unavailable("%s", messageFull))
	}
	if err := r.put(lines); err != nil {
		r.store.release(bytes)
		return r.fail(causeDisk, unavailable("%s", messageDisk).WithCause(err))
	}
	return nil
}

// put writes lines to the file. An incomplete line is removed.
func (r *Recording) put(lines []byte) error {
	if r.torn {
		if err := r.file.Truncate(r.size); err != nil {
			return err
		}
		r.torn = false
	}
	if _, err := r.file.Write(lines); err != nil {
		r.torn = true
		return err
	}
	r.size += int64(len(lines))
	return nil
}

// Begin states that the API server has not refused the request. From here on the recording is exported.
func (r *Recording) Begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.began = true
	r.store.signal()
}

// Discard deletes the recording of a request that the API server has not got or has refused. It has no effect after End.
func (r *Recording) Discard() {
	r.mu.Lock()
	if r.ended != nil {
		r.mu.Unlock()
		return
	}
	r.ended = &recording.End{}
	if r.file != nil {
		_ = r.file.Close()
		_ = os.Remove(r.path) // one that remains is exported after the next start
	}
	size := r.size
	r.mu.Unlock()
	r.store.forget(r, size+endReserve, true)
}

// forget removes a recording whose file was deleted. ending is true for a recording in progress.
func (s *Store) forget(r *Recording, bytes int64, ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.recordings, r.facts.ID)
	s.total -= bytes
	if ending {
		s.open--
	}
}

// Failed is closed when the recording cannot be continued. Err returns the reason.
func (r *Recording) Failed() <-chan struct{} { return r.failed }

// Err returns why the recording cannot be continued; nil if it can.
func (r *Recording) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// Take records a message from the client or from the API server. protocol is that of the connection to the API server. Take returns the message that
// the other side may get: it is written to the file, and input is durable. It is empty if the protocol gives the message no meaning.
func (r *Recording) Take(protocol string, client bool, content []byte) (forwarded []byte, err error) {
	m, err := parse(protocol, client, content)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	switch m.channel {
	case channelStdin:
		err = r.data(now, recording.Stdin, m.data)
	case channelStdout:
		err = r.data(now, recording.Stdout, m.data)
	case channelStderr:
		err = r.data(now, recording.Stderr, m.data)
	case channelError:
		err = r.take(func() []byte { return r.lines.Marker(now, string(m.data)) })
	case channelResize:
		if m.forwarded != nil {
			err = r.take(func() []byte { return r.lines.Resize(now, m.width, m.height) })
		}
	}
	if err != nil {
		return nil, err
	}
	return m.forwarded, nil
}

// Input records what a client has sent in one part. It is durable when Input returns nil.
func (r *Recording) Input(content []byte) error { return r.data(time.Now(), recording.Stdin, content) }

// data records data of a stream.
func (r *Recording) data(now time.Time, stream recording.Stream, data []byte) error {
	for len(data) > 0 {
		some := data[:min(len(data), part)]
		data = data[len(some):]
		if err := r.take(func() []byte { return r.lines.Data(now, stream, some) }); err != nil {
			return err
		}
	}
	if stream != recording.Stdin {
		return nil
	}
	return r.sync()
}

// take writes the lines that encode returns.
func (r *Recording) take(encode func() []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.failure != nil:
		return r.failure
	case r.ended != nil:
		return apierror.New(apierror.Unavailable, "The recording has ended.")
	}
	lines := encode()
	if len(lines) == 0 {
		return nil
	}
	if err := r.write(lines); err != nil {
		r.lines.Undo()
		return err
	}
	r.store.signal()
	return nil
}

// sync makes what is written durable. A sync that another call began later than the write is enough.
func (r *Recording) sync() error {
	r.mu.Lock()
	wanted := r.size
	r.mu.Unlock()
	r.syncing.Lock()
	defer r.syncing.Unlock()
	r.mu.Lock()
	file, size, failure := r.file, r.size, r.failure
	done := r.durable >= wanted
	r.mu.Unlock()
	switch {
	case done:
		return nil
	case failure != nil:
		return failure
	case file == nil:
		return nil
	}
	err := r.store.options.sync(file)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.lost = true
		return r.fail(causeDisk, unavailable("%s", messageDisk).WithCause(err))
	}
	r.durable = size
	return nil
}

// End ends the recording with a reason for people. It returns an error if the recording could not be continued or has no end.
func (r *Recording) End(ctx context.Context, reason string) error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	end := recording.End{Time: time.Now().UTC(), Reason: reason[:min(len(reason), maxReason)]}
	r.mu.Lock()
	before := r.size
	err := r.finish(end)
	r.ended, r.complete = &end, err == nil
	r.file, r.lines = nil, nil
	added, failure := r.size-before, r.failure
	r.mu.Unlock()
	r.store.finish(endReserve - added)
	if err != nil {
		r.store.logFailure(ctx, "a recording has no end", r.facts.ID, err)
	}
	return errors.Join(failure, err)
}

// finish writes the end, for which space is reserved except on a full disk, makes everything durable, and closes the file. mu must be locked.
func (r *Recording) finish(end recording.End) error {
	defer func() { _ = r.file.Close() }() // it is synced, or incomplete
	if r.lost {
		return errLost
	}
	written := r.put(r.lines.End(end))
	if err := r.store.options.sync(r.file); err != nil {
		return errors.Join(written, err)
	}
	r.durable = r.size
	return written
}

// errLost is the error for the end of a recording of which a part may be lost.
var errLost = errors.New("an earlier write to the disk has failed")

// maxReason limits the reason of the end.
const maxReason = 1 << 10

// finish counts that a recording has ended, and releases the unused bytes of the space for its end.
func (s *Store) finish(unused int64) {
	s.mu.Lock()
	s.open--
	s.total -= unused
	s.mu.Unlock()
	s.signal()
}

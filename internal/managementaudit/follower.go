package managementaudit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// LogName is the name of the API server's log in its folder. Older files have names with the time of their rotation.
	LogName = "audit.log"
	// MaxMegabytes is the size at which the API server starts another file, and MaxBackups the number of older files that it keeps.
	// The log needs at most 144 MB of disk.
	MaxMegabytes, MaxBackups = 16, 8
	// maxLine bounds a line. The longest parts of an event are a URL and a user agent, which an API server limits to 1 MiB together.
	maxLine = 4 << 20
	// saveAfter is the number of records after which the position is stored within one file.
	saveAfter = 64

	firstRetry = 200 * time.Millisecond
	lastRetry  = 15 * time.Second
)

// Options configure a Follower.
type Options struct {
	// Cluster is the name of the management cluster.
	Cluster string
	// LogDir is the folder of the API server's log. It must exist.
	LogDir string
	// PositionFile is the file of the position.
	PositionFile string
	// QueueDir is the folder of the queue of Recorder.
	QueueDir string
	Recorder audit.Recorder
	Metrics  prometheus.Registerer
	Log      *slog.Logger
}

// Follower copies a log to an audit chain. Only one follower may use a position file.
type Follower struct {
	o    Options
	seen *seen
	at   position
	// unsaved counts records since the position was stored.
	unsaved int

	records prometheus.Counter
	gaps    prometheus.Counter
	failing prometheus.Gauge
}

// New returns a follower that continues at the stored position.
func New(o Options) (*Follower, error) {
	f := &Follower{o: o, seen: newSeen(),
		records: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "management_audit", Name: "records_total", Help: "Audit events of the API server that have a record."}),
		gaps:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "management_audit", Name: "gaps_total", Help: "Places where audit events are missing: files that were removed before they were read, and lines that cannot be read."}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "management_audit", Name: "failing", Help: "1 if audit events cannot be read or stored at present, else 0."})}
	o.Metrics.MustRegister(f.records, f.gaps, f.failing)
	var err error
	if f.at, err = loadPosition(o.PositionFile); err != nil {
		// Everything that the log still has is read again.
		o.Log.Error("the position in the audit log is lost; the whole log is read again", logkey.Path, o.PositionFile, logkey.Error, err)
	}
	if err := f.seen.readQueue(o.QueueDir); err != nil {
		return nil, err
	}
	return f, nil
}

// Run follows the log until ctx ends. While events cannot be read or stored, it retries.
func (f *Follower) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the audit log: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(f.o.LogDir); err != nil {
		return fmt.Errorf("watching the audit log in %s: %w", f.o.LogDir, err)
	}
	retry := backoff.New(firstRetry, lastRetry)
	for {
		if err := f.copyNew(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			f.failing.Set(1)
			f.o.Log.ErrorContext(ctx, "copying audit events of a management cluster failed; retrying", logkey.Path, f.o.LogDir, logkey.Error, err)
			if retry.Wait(ctx) != nil {
				return nil
			}
			continue
		}
		f.failing.Set(0)
		retry.Reset()
		if !await(ctx, watcher) {
			return nil
		}
	}
}

// await waits for a change of the log and takes all pending notifications. It returns false when ctx ends.
func await(ctx context.Context, watcher *fsnotify.Watcher) bool {
	select {
	case <-ctx.Done():
		return false
	case <-watcher.Events:
	case <-watcher.Errors: // an overflow of notifications is a change too
	}
	for {
		select {
		case <-watcher.Events:
		case <-watcher.Errors:
		default:
			return true
		}
	}
}

// logFile is a file of the log.
type logFile struct {
	path  string
	inode uint64
}

// files returns the files of the log, the oldest first.
func (f *Follower) files() ([]logFile, error) {
	entries, err := os.ReadDir(f.o.LogDir)
	if err != nil {
		return nil, fmt.Errorf("listing audit logs: %w", err)
	}
	base, extension, _ := strings.Cut(LogName, ".")
	var names []string
	current := false
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case name == LogName:
			current = true
		case strings.HasPrefix(name, base+"-") && strings.HasSuffix(name, "."+extension):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if current {
		names = append(names, LogName)
	}
	var files []logFile
	for _, name := range names {
		path := filepath.Join(f.o.LogDir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed or renamed meanwhile, which is a change that wakes the follower
		}
		if err != nil {
			return nil, fmt.Errorf("listing audit logs: %w", err)
		}
		files = append(files, logFile{path, inodeOf(info)})
	}
	return files, nil
}

// copyNew copies everything after the position.
func (f *Follower) copyNew(ctx context.Context) error {
	files, err := f.files()
	if err != nil || len(files) == 0 {
		return err
	}
	begin := 0
	if f.at.Inode != 0 {
		begin = slices.IndexFunc(files, func(file logFile) bool { return file.inode == f.at.Inode })
	}
	if begin < 0 {
		// The API server removed the file before it was read to its end.
		if err := f.noteGap(ctx, "Removed"); err != nil {
			return err
		}
		f.at, begin = position{}, 0
	}
	for i := begin; i < len(files); i++ {
		if files[i].inode != f.at.Inode {
			f.at = position{Inode: files[i].inode}
		}
		if same, err := f.copyFile(ctx, files[i]); err != nil || !same {
			return err
		}
	}
	return f.save()
}

func (f *Follower) save() error {
	f.unsaved = 0
	return f.at.save(f.o.PositionFile)
}

// copyFile copies the complete lines of a file after the position. It returns false if the file was renamed meanwhile.
func (f *Follower) copyFile(ctx context.Context, source logFile) (same bool, err error) {
	file, err := os.Open(source.path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening an audit log: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || inodeOf(info) != source.inode {
		return false, err
	}
	head, err := headOf(file, f.at.Offset)
	if err != nil {
		return false, fmt.Errorf("reading an audit log: %w", err)
	}
	if f.at.Offset > 0 && (info.Size() < f.at.Offset || head != f.at.Head) {
		// The file of the position was removed and its inode belongs to another file, or the file was changed.
		if err := f.noteGap(ctx, "Removed"); err != nil {
			return false, err
		}
		f.at = position{Inode: source.inode}
	}
	if _, err := file.Seek(f.at.Offset, io.SeekStart); err != nil {
		return false, fmt.Errorf("reading an audit log: %w", err)
	}
	lines := bufio.NewReaderSize(file, 64<<10)
	for {
		line, size, err := readLine(lines)
		if errors.Is(err, io.EOF) {
			return true, nil // the rest is not a complete line yet
		}
		if err != nil {
			return false, fmt.Errorf("reading an audit log: %w", err)
		}
		if err := f.copyLine(ctx, line); err != nil {
			return false, errors.Join(err, f.save())
		}
		f.at.Offset += size
		if f.at.Offset-size < headSize {
			if f.at.Head, err = headOf(file, f.at.Offset); err != nil {
				return false, fmt.Errorf("reading an audit log: %w", err)
			}
		}
		if f.unsaved >= saveAfter {
			if err := f.save(); err != nil {
				return false, err
			}
		}
	}
}

// readLine returns a line without its newline, and its size with it. The line is nil if it is longer than maxLine.
func readLine(r *bufio.Reader) (line []byte, size int64, err error) {
	for {
		part, err := r.ReadSlice('\n')
		size += int64(len(part))
		if size <= maxLine {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		if size > maxLine {
			return nil, size, nil
		}
		return line[:len(line)-1], size, nil
	}
}

// copyLine stores the record of a line, if it has one.
func (f *Follower) copyLine(ctx context.Context, line []byte) error {
	e, err := parse(line)
	if err != nil {
		return f.noteGap(ctx, "Unreadable")
	}
	if !e.recorded() || f.seen.has(e.key()) {
		return nil
	}
	if err := f.o.Recorder.Append(ctx, e.record(f.o.Cluster)); err != nil {
		return fmt.Errorf("storing an audit event: %w", err)
	}
	f.seen.add(e.key())
	f.unsaved++
	f.records.Inc()
	return nil
}

// noteGap stores a record that events are missing, so that a reader of the chain does not take it for complete.
func (f *Follower) noteGap(ctx context.Context, code string) error {
	f.o.Log.ErrorContext(ctx, "audit events of a management cluster are missing", logkey.Path, f.o.LogDir, logkey.Reason, code)
	err := f.o.Recorder.Append(ctx, audit.Record{Action: "kubernetes.audit", Outcome: audit.Failed, Code: "EventsMissing" + code,
		Object: audit.Object{Kind: "managementCluster", ID: f.o.Cluster}})
	if err != nil {
		return fmt.Errorf("storing that audit events are missing: %w", err)
	}
	f.gaps.Inc()
	f.unsaved++
	return nil
}

package managementaudit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/rotatedlog"
)

const (
	// LogName is the name of the API server's log in its folder. Older files have names with the time of their rotation.
	LogName = "audit.log"
	// MaxMegabytes is the size at which the API server starts another file, and MaxBackups the number of older files that it keeps.
	// The log needs at most 144 MB of disk.
	MaxMegabytes, MaxBackups = 16, 8
	// maxLine bounds a line. The longest parts of an event are a URL and a user agent, which an API server limits to 1 MiB together.
	maxLine = 4 << 20
	// saveAfter is the number of records after which the position is stored before the end of the log.
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
	log  *rotatedlog.Reader
	// at is the position after the last line that was copied.
	at rotatedlog.Position
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
	if f.at, err = rotatedlog.Load(o.PositionFile); err != nil {
		// Everything that the log still has is read again.
		o.Log.Error("the position in the audit log is lost; the whole log is read again", logkey.Path, o.PositionFile, logkey.Error, err)
	}
	f.log = rotatedlog.New(o.LogDir, LogName, maxLine, f.at)
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
	defer f.log.Close()
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

// copyNew copies everything after the position.
func (f *Follower) copyNew(ctx context.Context) error {
	if err := f.log.Seek(f.at); err != nil {
		return err
	}
	for {
		line, err := f.log.Next()
		switch {
		case errors.Is(err, io.EOF):
			return f.save()
		case errors.Is(err, rotatedlog.ErrRemoved):
			err = f.noteGap(ctx, "Removed")
		case errors.Is(err, rotatedlog.ErrTooLong):
			err = f.noteGap(ctx, "Unreadable")
		case err == nil:
			if f.at.Inode == 0 {
				// If copying the first line fails, the stored position has the file, whose removal is then noticed.
				f.at.Inode = f.log.Position().Inode
			}
			err = f.copyLine(ctx, line)
		}
		if err != nil {
			return errors.Join(err, f.save())
		}
		f.at = f.log.Position()
		if f.unsaved >= saveAfter {
			if err := f.save(); err != nil {
				return err
			}
		}
	}
}

// save stores the position. A log without files has none.
func (f *Follower) save() error {
	f.unsaved = 0
	if f.at == (rotatedlog.Position{}) {
		return nil
	}
	return f.at.Save(f.o.PositionFile)
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

package logforwarder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/reportqueue"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Options configure a Forwarder.
type Options struct {
	// HostedDir has a folder for each control plane, with its log files.
	HostedDir string
	// StateDir is the folder of positions and poison boxes. Only one forwarder may use it.
	StateDir string
	// Location is the Azure region in records.
	Location string
	Azure    Azure
	// SettingsAge is the age after which diagnostic settings are read again.
	SettingsAge time.Duration
	// FlushInterval is the time for which new lines are collected before they are appended.
	FlushInterval time.Duration
	// Reports gets the reports about the delivery; nil if nobody reads them. ReportAfter is the age of the oldest undelivered line at which a
	// failure is reported.
	Reports     ReportWriter
	ReportAfter time.Duration
	Metrics     prometheus.Registerer
	Log         *slog.Logger
	// Now returns the time; nil is time.Now.
	Now func() time.Time
}

// ControlPlane is a hosted control plane of a cluster.
type ControlPlane struct {
	// Name is its namespace, UID the UID of the namespace, and ResourceID the ARM resource ID of its cluster.
	Name, UID, ResourceID string
	// HostedCluster is the namespace and the name of its HostedCluster, with a slash between them. Without it, nothing is reported.
	HostedCluster string
}

// Forwarder delivers the logs of the control planes of a management cluster. Set and Remove may be called before and while Run runs.
type Forwarder struct {
	options  Options
	settings *settingsClient
	metrics  *metrics
	reports  *reportqueue.Queue

	mu            sync.Mutex
	controlPlanes map[string]*controlPlane
	// ending has the latest control plane of each name that was removed, until it has ended.
	ending map[string]*controlPlane
	// start starts a control plane; it is nil while Run does not run.
	start   func(*controlPlane)
	watcher *fsnotify.Watcher
}

// New returns a forwarder.
func New(o Options) (*Forwarder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("creating the state folder: %w", err)
	}
	f := &Forwarder{options: o, settings: newSettingsClient(&o.Azure), reports: reportqueue.New(), controlPlanes: map[string]*controlPlane{}, ending: map[string]*controlPlane{}}
	f.metrics = newMetrics(o.Metrics, newDeliveries(o.Now, o.ReportAfter, f.reports.Add))
	return f, nil
}

// stateDir returns the state folder of a control plane.
func (f *Forwarder) stateDir(name string) string { return filepath.Join(f.options.StateDir, name) }

// Set makes the forwarder deliver the logs of a control plane. Another UID is another incarnation.
func (f *Forwarder) Set(c ControlPlane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.controlPlanes[c.Name]; old != nil {
		if old.uid == c.UID {
			return
		}
		f.remove(old)
	}
	next := newControlPlane(f, c)
	if old := f.ending[c.Name]; old != nil {
		next.after = old.done
	}
	f.controlPlanes[c.Name] = next
	if f.start != nil {
		f.start(next)
	}
}

// Remove ends the delivery of the logs of a control plane that was deleted, when the rest is delivered.
func (f *Forwarder) Remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.controlPlanes[name]; c != nil {
		f.remove(c)
	}
}

// remove is Remove for a caller that holds the lock.
func (f *Forwarder) remove(c *controlPlane) {
	delete(f.controlPlanes, c.name)
	close(c.finish)
	if c.started {
		f.ending[c.name] = c
	}
}

// ended forgets a control plane that was removed and has ended.
func (f *Forwarder) ended(c *controlPlane) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ending[c.name] == c {
		delete(f.ending, c.name)
	}
}

// Prune removes the state of control planes that do not exist. Call it when all control planes are set. Their last lines may be lost, because
// the forwarder did not run when they were deleted.
func (f *Forwarder) Prune() error {
	entries, err := os.ReadDir(f.options.StateDir)
	if err != nil {
		return fmt.Errorf("listing the state folder: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, entry := range entries {
		if !entry.IsDir() || f.controlPlanes[entry.Name()] != nil || f.ending[entry.Name()] != nil {
			continue
		}
		f.metrics.gaps.WithLabelValues(gapDeleted, string(hostedreport.LogFaultService)).Inc()
		f.options.Log.Warn("a cluster was deleted while its logs were not delivered; its last lines may be lost", logkey.ControlPlane, entry.Name())
		if err := os.RemoveAll(f.stateDir(entry.Name())); err != nil {
			return fmt.Errorf("removing the state of %s: %w", entry.Name(), err)
		}
	}
	return nil
}

// Run delivers until ctx ends.
func (f *Forwarder) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the logs: %w", err)
	}
	defer watcher.Close()
	if err := f.watchHosted(ctx, watcher); err != nil {
		return nil // ctx has ended
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { f.reports.Run(ctx, f.options.Log, f.report) })
	f.mu.Lock()
	f.watcher = watcher
	f.start = func(c *controlPlane) {
		c.started = true
		f.watch(c.name)
		group.Go(func() {
			c.run(ctx)
			f.ended(c)
		})
	}
	for _, c := range f.controlPlanes {
		f.start(c)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.start = nil
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			f.notify(event.Name)
		case err := <-watcher.Errors:
			// The notifications overflowed: any log may have grown, and any folder may be new.
			f.options.Log.WarnContext(ctx, "notifications of logs were lost; reading all logs", logkey.Error, err)
			f.notifyAll()
		}
	}
}

// watchHosted watches the folder of the control planes, which may not exist yet.
func (f *Forwarder) watchHosted(ctx context.Context, watcher *fsnotify.Watcher) error {
	retry := backoff.New(firstRetry, 15*time.Second)
	for {
		err := watcher.Add(f.options.HostedDir)
		if err == nil {
			return nil
		}
		f.options.Log.WarnContext(ctx, "the folder of the logs cannot be watched; retrying", logkey.Path, f.options.HostedDir, logkey.Error, err)
		if err := retry.Wait(ctx); err != nil {
			return err
		}
	}
}

// watch watches the folder of a control plane if it exists. Its creation is announced by the folder of all control planes. The caller holds
// the lock.
func (f *Forwarder) watch(name string) {
	if err := f.watcher.Add(filepath.Join(f.options.HostedDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.options.Log.Error("a log cannot be watched", logkey.ControlPlane, name, logkey.Error, err)
	}
}

// notify wakes the control plane of a file or a folder that changed.
func (f *Forwarder) notify(path string) {
	relative, err := filepath.Rel(f.options.HostedDir, path)
	if err != nil {
		return
	}
	name, file, isFile := strings.Cut(relative, string(filepath.Separator))
	if isFile && !isLog(file) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.controlPlanes[name]
	if c == nil {
		return
	}
	if !isFile {
		f.watch(name)
	}
	signal(c.wake)
}

// isLog reports whether a file of a control plane is one of its logs, or an older part of one.
func isLog(file string) bool {
	for _, s := range sources() {
		extension := filepath.Ext(s.file)
		if file == s.file || strings.HasPrefix(file, strings.TrimSuffix(s.file, extension)+"-") && strings.HasSuffix(file, extension) {
			return true
		}
	}
	return false
}

func (f *Forwarder) notifyAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, c := range f.controlPlanes {
		f.watch(name)
		signal(c.wake)
	}
}

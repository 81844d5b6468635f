package logforwarder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/rotatedlog"
)

// stream delivers one category of a control plane to one storage account.
type stream struct {
	forwarder *Forwarder
	key       streamKey
	source    source
	record    customerlog.Record
	setting   string
	account   string
	container *container.Client
	// stateDir is the state folder of the control plane, and position the file with the position of the stream.
	stateDir, position string
	log                *slog.Logger

	// wake has a value when the log may have grown. finish is closed when the control plane was deleted.
	wake   chan struct{}
	finish <-chan struct{}

	reader *rotatedlog.Reader
	// at is the position after the last line that was delivered. unsaved is the number of bytes between it and the stored position.
	at      rotatedlog.Position
	unsaved int
	// delayed is whose fault it is that the stream is not at the end of the log, or "" if nothing has failed since it was.
	delayed hostedreport.LogFault
}

// newStream returns a stream that continues at its stored position. A new stream begins with the oldest line that the control plane kept.
func newStream(f *Forwarder, c *controlPlane, s source, setting customerlog.Setting) (*stream, error) {
	account := setting.Properties.Account()
	client, err := f.options.Azure.container(account, s.category.Container())
	if err != nil {
		return nil, err
	}
	key := streamKey{c.name, settingFolder(setting.Name), s.category}
	stateDir := f.stateDir(c.name)
	st := &stream{forwarder: f, key: key, source: s, setting: setting.Name, account: account, container: client, stateDir: stateDir,
		record:   customerlog.Record{Category: s.category, ResourceID: c.resourceID, Location: f.options.Location},
		position: filepath.Join(stateDir, key.setting, string(s.category)+".json"), wake: make(chan struct{}, 1), finish: c.finish,
		log: f.options.Log.With(logkey.ControlPlane, c.name, logkey.ResourceID, c.resourceID, logkey.Type, string(s.category))}
	st.log = st.log.With(logkey.Name, setting.Name)
	if st.at, err = rotatedlog.Load(st.position); err != nil {
		st.log.Error("the position in a customer's log is lost; the whole log is delivered again", logkey.Path, st.position, logkey.Error, err)
	}
	st.reader = rotatedlog.New(filepath.Join(f.options.HostedDir, c.name), s.file, maxLine, st.at)
	return st, nil
}

// run delivers until ctx ends, or until the log is delivered to its end after finish.
func (s *stream) run(ctx context.Context) {
	s.forwarder.metrics.streams.Inc()
	defer s.forwarder.metrics.streams.Dec()
	defer s.forwarder.metrics.deliveries.remove(s.key)
	defer s.reader.Close()
	retry := backoff.New(firstRetry, lastRetry)
	failing := ""
	for {
		select {
		case <-s.finish:
			s.reader.Finish()
		default:
		}
		more, err := s.forward(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			fault, reason := hostedreport.LogFaultService, "StateNotStored"
			var failed *deliveryError
			if errors.As(err, &failed) {
				fault, reason = failed.fault, failed.reason
			}
			s.forwarder.metrics.deliveries.failed(s.key, fault, reason)
			s.delayed = fault
			pause := retry.Next()
			if failing != reason {
				s.log.WarnContext(ctx, "delivering logs to a customer's storage account failed; retrying", logkey.Reason, reason, logkey.State, fault,
					logkey.Error, err, logkey.RetryIn, pause.String())
				failing = reason
			}
			if backoff.Sleep(ctx, pause) != nil {
				return
			}
			continue
		}
		if failing != "" {
			s.log.InfoContext(ctx, "delivering logs to a customer's storage account continues")
			failing = ""
		}
		s.forwarder.metrics.deliveries.delivered(s.key)
		retry.Reset()
		if more {
			continue
		}
		s.delayed = ""
		select {
		case <-ctx.Done():
			return
		case <-s.finish:
			// The rest may have been written since the last read.
			s.reader.Finish()
			if more, err := s.forward(ctx); err == nil && !more {
				return
			}
			continue
		case <-s.wake:
		}
		// Lines of an interval are one append.
		select {
		case <-ctx.Done():
			return
		case <-s.finish:
		case <-time.After(s.forwarder.options.FlushInterval):
		}
	}
}

// encoded is a record with the line that it has and the position after it.
type encoded struct {
	line, record []byte
	after        rotatedlog.Position
}

// forward delivers the next batch and stores the position after it. more is false at the end of the log.
func (s *stream) forward(ctx context.Context) (more bool, err error) {
	if err := s.reader.Seek(s.at); err != nil {
		return false, err
	}
	var batch []encoded
	size := 0
	for size < batchBytes {
		line, err := s.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return false, s.deliver(ctx, batch, s.reader.Position())
		case errors.Is(err, rotatedlog.ErrRemoved) || errors.Is(err, rotatedlog.ErrTooLong):
			// What was read before is delivered first. The next call begins with this place.
			if len(batch) > 0 {
				return true, s.deliver(ctx, batch, batch[len(batch)-1].after)
			}
			if errors.Is(err, rotatedlog.ErrTooLong) {
				return true, s.poison(line, reasonTooLarge, s.reader.Position())
			}
			fault := cmp.Or(s.delayed, hostedreport.LogFaultService)
			s.forwarder.metrics.gaps.WithLabelValues(gapRotated, string(fault)).Inc()
			s.log.ErrorContext(ctx, "lines of a customer's log are lost: the control plane removed files before they were delivered", logkey.State, fault)
			s.at = s.reader.Position()
			s.save()
			return true, nil
		case err != nil:
			return false, err
		}
		if s.at.Inode == 0 {
			// From now on, the removal of the first file is noticed.
			s.at = rotatedlog.Position{Inode: s.reader.Position().Inode}
			s.save()
		}
		at, content, deliver, err := s.source.decode(line, s.forwarder.options.Now())
		record := []byte(nil)
		reason := reasonNotJSON
		if err == nil && deliver {
			if record = s.record.Encode(at, content); len(record) > maxBlock {
				err, reason = errors.New("the record is larger than a block"), reasonTooLarge
			}
		}
		if err != nil {
			if len(batch) > 0 {
				return true, s.deliver(ctx, batch, batch[len(batch)-1].after)
			}
			return true, s.poison(line, reason, s.reader.Position())
		}
		if deliver {
			if size > 0 && size+len(record) > maxBlock {
				return true, s.deliver(ctx, batch, batch[len(batch)-1].after)
			}
			batch = append(batch, encoded{line, record, s.reader.Position()})
		}
		size += len(line) + len(record) + 1
		s.forwarder.metrics.deliveries.begin(s.key)
	}
	return true, s.deliver(ctx, batch, s.reader.Position())
}

// deliver appends a batch, and stores the position after it. The storage may refuse a record permanently: deliver finds it by halving the batch.
func (s *stream) deliver(ctx context.Context, batch []encoded, after rotatedlog.Position) error {
	if len(batch) > 0 {
		var content bytes.Buffer
		for _, e := range batch {
			content.Write(e.record)
		}
		sending, cancel := withGrace(ctx)
		err := appendTo(sending, s.container, customerlog.BlobName(s.record.ResourceID, s.forwarder.options.Now()), content.Bytes())
		cancel()
		switch {
		case refused(err) && len(batch) == 1:
			return s.poison(batch[0].line, reasonRefused, after)
		case refused(err):
			half := len(batch) / 2
			if err := s.deliver(ctx, batch[:half], batch[half-1].after); err != nil {
				return err
			}
			return s.deliver(ctx, batch[half:], after)
		case err != nil:
			err = classify(err)
			var failed *deliveryError
			if errors.As(err, &failed) && ctx.Err() == nil {
				s.forwarder.metrics.appends.WithLabelValues(string(failed.fault)).Inc()
			}
			return err
		}
		s.forwarder.metrics.appends.WithLabelValues("succeeded").Inc()
		s.forwarder.metrics.records.WithLabelValues(string(s.source.category)).Add(float64(len(batch)))
	}
	moved := after != s.at
	if after.Inode == s.at.Inode {
		s.unsaved += int(after.Offset - s.at.Offset)
	} else {
		s.unsaved += batchBytes
	}
	s.at = after
	// Lines of other categories are read again after a restart at no cost, so that their positions need not be stored each time.
	if len(batch) > 0 || moved && s.unsaved >= batchBytes {
		s.save()
	}
	return nil
}

// withGrace returns a context that ends stopGrace after ctx.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = backoff.Sleep(longer, stopGrace)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}

// poison puts a line into the poison box, and stores the position after it.
func (s *stream) poison(line []byte, reason string, after rotatedlog.Position) error {
	entry := Poisoned{Time: s.forwarder.options.Now().UTC(), Category: string(s.source.category), Setting: s.setting, Account: s.account, Reason: reason}
	entry.keep(line)
	if err := os.MkdirAll(s.stateDir, 0o700); err != nil {
		return err
	}
	discarded, err := addPoison(s.stateDir, entry, poisonBytes)
	if err != nil {
		return err
	}
	if discarded {
		s.forwarder.metrics.discarded.Inc()
	}
	s.forwarder.metrics.poisoned.WithLabelValues(reason).Inc()
	s.log.Warn("a line of a customer's log cannot be delivered; it is in the poison box", logkey.Reason, reason, logkey.Path, filepath.Join(s.stateDir, PoisonFile))
	s.at = after
	s.save()
	return nil
}

// save stores the position. If that fails, delivery continues: a repeated line costs less than one that the control plane removes meanwhile.
func (s *stream) save() {
	err := os.MkdirAll(filepath.Dir(s.position), 0o700)
	if err == nil {
		err = s.at.Save(s.position)
	}
	if err != nil {
		s.forwarder.metrics.checkpoints.Inc()
		s.log.Error("storing the position in a customer's log failed; lines are delivered again after a restart", logkey.Path, s.position, logkey.Error, err)
		return
	}
	s.unsaved = 0
}

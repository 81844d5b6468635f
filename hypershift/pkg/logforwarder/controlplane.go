package logforwarder

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// controlPlane delivers the logs of one hosted control plane.
type controlPlane struct {
	forwarder  *Forwarder
	name       string
	resourceID string
	// hostedCluster is the namespace and the name of the HostedCluster, with a slash between them; empty if it is unknown.
	hostedCluster string
	// uid is the UID of the namespace: the incarnation of the control plane.
	uid string
	log *slog.Logger

	// wake has a value when a log may have grown. finish is closed when the control plane was deleted, and done when its delivery has ended.
	wake   chan struct{}
	finish chan struct{}
	done   chan struct{}

	// after is the done of the previous control plane with the name, whose state folder this one uses next; nil if there is none.
	after   <-chan struct{}
	started bool

	streams map[streamKey]*running
	group   sync.WaitGroup
}

// running is a stream with the account for which it was started.
type running struct {
	*stream
	stop func()
}

func newControlPlane(f *Forwarder, c ControlPlane) *controlPlane {
	return &controlPlane{forwarder: f, name: c.Name, uid: c.UID, resourceID: c.ResourceID, hostedCluster: c.HostedCluster, wake: make(chan struct{}, 1), finish: make(chan struct{}), done: make(chan struct{}),
		streams: map[streamKey]*running{}, log: f.options.Log.With(logkey.ControlPlane, c.Name, logkey.ResourceID, c.ResourceID)}
}

// settingFolder returns the name of the folder of a setting. The name of a setting may contain anything.
func settingFolder(name string) string {
	return fmt.Sprintf("setting-%x", sha256.Sum256([]byte(strings.ToLower(name))))[:24]
}

// signal wakes a receiver that may have a signal already.
func signal(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// run delivers until ctx ends, or until the rest of the logs is delivered after finish. Resource Manager does not announce changes of settings.
// They are read again when a log has grown and they are older than Options.SettingsAge, so a cluster without new lines costs nothing.
func (c *controlPlane) run(ctx context.Context) {
	defer close(c.done)
	if c.after != nil {
		select {
		case <-ctx.Done():
			return
		case <-c.after:
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer c.group.Wait()
	defer cancel()
	key := streamKey{controlPlane: c.name}
	defer c.forwarder.metrics.deliveries.remove(key)
	defer c.forwarder.metrics.deliveries.forget(c.name)
	retry := backoff.New(firstRetry, lastRetry)
	var readAgain time.Time
	failing := false
	for {
		if now := c.forwarder.options.Now(); !now.Before(readAgain) {
			settings, err := c.forwarder.settings.of(ctx, c.resourceID)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				var failed *deliveryError
				fault, reason := hostedreport.LogFaultService, "InvalidResponse"
				if errors.As(err, &failed) {
					fault, reason = failed.fault, failed.reason
				}
				pause := retry.Next()
				if !failing {
					c.log.WarnContext(ctx, "reading the diagnostic settings of a cluster failed; retrying", logkey.State, fault, logkey.Error, err, logkey.RetryIn, pause.String())
				}
				failing = true
				c.forwarder.metrics.deliveries.failed(key, fault, reason)
				readAgain = now.Add(pause)
			default:
				if failing {
					c.log.InfoContext(ctx, "the diagnostic settings of a cluster are read again")
				}
				failing = false
				c.forwarder.metrics.deliveries.delivered(key)
				retry.Reset()
				readAgain = now.Add(backoff.Jitter(c.forwarder.options.SettingsAge))
				c.apply(ctx, settings)
			}
		}
		// While settings cannot be read, the next attempt does not wait for a line.
		var attempt <-chan time.Time
		if failing {
			attempt = time.After(readAgain.Sub(c.forwarder.options.Now()))
		}
		select {
		case <-ctx.Done():
			return
		case <-c.finish:
			c.drain(ctx, cancel)
			return
		case <-attempt:
		case <-c.wake:
			for _, s := range c.streams {
				signal(s.wake)
			}
		}
	}
}

// drain waits until the streams have delivered the rest of the logs. The streams have the files open, which the control plane has removed.
func (c *controlPlane) drain(ctx context.Context, cancel func()) {
	ended := make(chan struct{})
	go func() {
		c.group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		<-ended
		return // the next start removes the state
	case <-time.After(drainTime):
		cancel()
		<-ended
		fault := hostedreport.LogFaultCustomer
		for _, s := range c.streams {
			if s.delayed != "" && s.delayed != hostedreport.LogFaultCustomer {
				fault = s.delayed
			}
		}
		c.forwarder.metrics.gaps.WithLabelValues(gapDeleted, string(fault)).Inc()
		c.log.Error("the last lines of a deleted cluster's logs are lost: they could not be delivered in time", logkey.Limit, drainTime.String())
	}
	c.removeState()
}

func (c *controlPlane) removeState() {
	if err := os.RemoveAll(c.forwarder.stateDir(c.name)); err != nil {
		c.log.Error("removing the state of a deleted cluster's logs failed", logkey.Error, err)
	}
}

// apply starts the streams that settings select, and stops all others.
func (c *controlPlane) apply(ctx context.Context, settings []customerlog.Setting) {
	wanted := map[streamKey]bool{}
	selections := map[string]selection{}
	for _, setting := range settings {
		selected := selection{setting: setting.Name, account: setting.Properties.Account()}
		if err := setting.Properties.Validate(); err != nil {
			c.log.WarnContext(ctx, "a diagnostic setting is invalid; its logs are not delivered", logkey.Name, setting.Name, logkey.Error, err)
			selected.problem = hostedreport.LogSettingInvalid
			selections[settingFolder(setting.Name)] = selected
			continue
		}
		if len(setting.Properties.Enabled()) == 0 {
			continue
		}
		if selected.account == "" {
			selected.problem = hostedreport.LogDestinationUnsupported
		}
		selections[settingFolder(setting.Name)] = selected
		if selected.problem != "" {
			continue
		}
		for _, category := range setting.Properties.Enabled() {
			for _, source := range sources() {
				if source.category != category {
					continue
				}
				key := streamKey{c.name, settingFolder(setting.Name), category}
				wanted[key] = true
				if s := c.streams[key]; s != nil && s.account == setting.Properties.Account() {
					continue
				}
				c.stop(key)
				c.start(ctx, key, source, setting)
			}
		}
	}
	for key, s := range c.streams {
		if !wanted[key] {
			c.stop(key)
			if err := os.Remove(s.position); err != nil && !os.IsNotExist(err) {
				c.log.Error("removing the position of a stream failed", logkey.Path, s.position, logkey.Error, err)
			}
			_ = os.Remove(filepath.Dir(s.position)) // it remains as long as it has positions of other categories
		}
	}
	c.forwarder.metrics.deliveries.selected(c.name, selections)
}

func (c *controlPlane) start(ctx context.Context, key streamKey, source source, setting customerlog.Setting) {
	s, err := newStream(c.forwarder, c, source, setting)
	if err != nil {
		c.log.ErrorContext(ctx, "starting the delivery of logs failed", logkey.Name, setting.Name, logkey.Error, err)
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	c.forwarder.metrics.deliveries.add(key)
	c.group.Go(func() {
		defer close(ended)
		s.run(ctx)
	})
	c.streams[key] = &running{s, func() { cancel(); <-ended }}
	s.log.Info("delivering logs to a customer's storage account", logkey.Target, setting.Properties.StorageAccountID)
}

// stop ends a stream and waits for it.
func (c *controlPlane) stop(key streamKey) {
	if s := c.streams[key]; s != nil {
		s.stop()
		delete(c.streams, key)
	}
}

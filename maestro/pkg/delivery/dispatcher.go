// Package delivery sends resources to their agents and stores what the agents report. One replica at a time serves a
// consumer, with two loops: one sends the outbox in order, with separate lanes for new work and resyncs; the other processes
// the events of the agent in order. Consumers never wait for one another. A delivery stays in the outbox until the agent has
// confirmed it and is sent again with growing delay, so the link may lose any message.
//
// The loops of a consumer stop as soon as this replica cannot be certain that it is the one that serves it. If two replicas
// serve a consumer for a moment, the agent receives the same versions twice, which has no effect.
package delivery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Publisher sends an event to a topic and waits for the broker's acknowledgement. *mqttlink.Link implements it.
type Publisher interface {
	Publish(ctx context.Context, topic string, evt *cloudevents.Event) error
	// Ready returns nil if the broker responds to a ping.
	Ready(ctx context.Context) error
	// Connected reports whether there is a connection, without using it.
	Connected() bool
	// Connects returns the number of connections so far.
	Connects() int64
}

// Options configure a Dispatcher.
type Options struct {
	Store *store.Store
	Link  Publisher
	// Announce is called after a commit with the reports that changed the status of a resource.
	Announce func([]*store.Report)
	// SourceID is the name of this server in topics and events.
	SourceID string
	// Resend is the longest delay before an unconfirmed delivery is first sent again. It doubles up to MaxResend.
	Resend, MaxResend time.Duration
	// SafetyPoll is the interval at which the outbox is read without a notification.
	SafetyPoll time.Duration
	// ResyncWindow bounds the unconfirmed deliveries of a resync.
	ResyncWindow int
	// Rebalance is the interval at which the consumers are distributed over the replicas.
	Rebalance time.Duration
	// Traces creates a span for each sending of a resource with a trace context; nil creates none.
	Traces   *tracing.Tracing
	Registry prometheus.Registerer
	Log      *slog.Logger
}

func (o *Options) complete() {
	setDefault := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	setDefault(&o.Resend, 15*time.Second)
	setDefault(&o.MaxResend, 5*time.Minute)
	setDefault(&o.SafetyPoll, 5*time.Second)
	setDefault(&o.Rebalance, 2*time.Second)
	if o.ResyncWindow <= 0 {
		o.ResyncWindow = 32
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Traces == nil {
		o.Traces = tracing.Off()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// rejoinInterval is the mean pause before a replica joins the others again.
const rejoinInterval = 500 * time.Millisecond

// Dispatcher serves the consumers that are assigned to this replica.
type Dispatcher struct {
	o       Options
	metrics *metrics

	mu           sync.RWMutex
	serving      map[string]*consumer
	joinErr      error
	rebalanceNow chan struct{}
}

// New returns a Dispatcher. Call Run to serve.
func New(o Options) *Dispatcher {
	o.complete()
	return &Dispatcher{
		o: o, metrics: newMetrics(o.Registry), serving: map[string]*consumer{},
		joinErr: errors.New("the replica has not joined the others yet"), rebalanceNow: make(chan struct{}, 1),
	}
}

// Run serves until ctx ends and returns when every loop has ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := d.serve(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, postgres.ErrCertificateEnds) {
			continue // the replica joins again with its next certificate
		}
		d.setJoined(err)
		d.o.Log.WarnContext(ctx, "membership of the replicas lost", logkey.Error, err)
		_ = backoff.Sleep(ctx, backoff.Jitter(rejoinInterval))
	}
	return nil
}

// Ready returns why the replica serves no consumer, or nil if it serves its share.
func (d *Dispatcher) Ready(context.Context) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.joinErr
}

// Serving returns the consumers that this replica serves.
func (d *Dispatcher) Serving() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	names := make([]string, 0, len(d.serving))
	for name := range d.serving {
		names = append(names, name)
	}
	return names
}

// Wake makes the loop of a consumer read the outbox, if this replica serves the consumer.
func (d *Dispatcher) Wake(consumer string) {
	d.mu.RLock()
	c := d.serving[consumer]
	d.mu.RUnlock()
	if c != nil {
		c.wake()
	}
}

// Rebalance distributes the consumers at once, for example after one was registered.
func (d *Dispatcher) Rebalance() {
	select {
	case d.rebalanceNow <- struct{}{}:
	default:
	}
}

// LinkUp requests the statuses of all consumers. Call it when the MQTT link comes up: reports that were sent before are lost.
func (d *Dispatcher) LinkUp(context.Context) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, c := range d.serving {
		c.requestStatuses()
		c.wake()
	}
}

// Receive queues an event that an agent published.
func (d *Dispatcher) Receive(_ context.Context, topic string, evt *cloudevents.Event) {
	// The broker checks the topic against the agent's certificate, but not the consumer that the event names.
	source, name, channel, ok := maestroapi.ParseTopic(topic)
	if !ok || source != d.o.SourceID || channel != maestroapi.ChannelAgentEvents {
		return
	}
	d.mu.RLock()
	c := d.serving[name]
	d.mu.RUnlock()
	if c != nil {
		c.receive(evt)
	}
}

// HandleInvalid counts and logs a message that is not an event.
func (d *Dispatcher) HandleInvalid(topic string, err error) {
	d.metrics.invalid.Inc()
	d.o.Log.Error("invalid message of an agent dropped", logkey.Topic, topic, logkey.Error, err)
}

// serve joins the replicas and serves the share of this one until the membership is lost.
func (d *Dispatcher) serve(ctx context.Context) error {
	membership, err := d.o.Store.Join(ctx)
	if err != nil {
		return err
	}
	defer membership.Leave()
	defer d.stopAll()
	ctx, cancel := membership.UntilCertificateEnds(ctx)
	defer cancel()

	ticker := time.NewTicker(d.o.Rebalance)
	defer ticker.Stop()
	for {
		if err := d.rebalance(ctx, membership); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		d.setJoined(nil)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		case <-d.rebalanceNow:
		}
	}
}

func (d *Dispatcher) rebalance(ctx context.Context, m *store.Membership) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	names, err := d.o.Store.ConsumerNames(ctx)
	if err != nil {
		return err
	}
	share, err := m.Share(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range d.Serving() {
		if share[name] {
			continue
		}
		d.stop(name)
		if err := m.Release(ctx, name); err != nil {
			return err
		}
		d.o.Log.InfoContext(ctx, "consumer released", logkey.Consumer, name)
	}
	for name := range share {
		d.mu.RLock()
		_, serving := d.serving[name]
		d.mu.RUnlock()
		if serving {
			continue
		}
		ok, err := m.Claim(ctx, name)
		if err != nil {
			return err
		}
		// If not, another replica has not released it yet; the next round tries again.
		if ok {
			d.start(name)
		}
	}
	return nil
}

func (d *Dispatcher) start(name string) {
	c := newConsumer(name, d)
	d.mu.Lock()
	d.serving[name] = c
	d.mu.Unlock()
	c.start()
	d.metrics.serving.Inc()
	d.o.Log.Info("consumer acquired", logkey.Consumer, name)
}

func (d *Dispatcher) stop(name string) {
	d.mu.Lock()
	c := d.serving[name]
	delete(d.serving, name)
	d.mu.Unlock()
	if c != nil {
		c.stop()
		d.metrics.serving.Dec()
	}
}

func (d *Dispatcher) stopAll() {
	for _, name := range d.Serving() {
		d.stop(name)
	}
}

func (d *Dispatcher) setJoined(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.joinErr = err
}

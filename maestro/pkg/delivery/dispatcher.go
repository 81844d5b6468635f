// Package delivery brings resources to their agents and takes in what the agents report. Each consumer is served by one
// replica at a time, by two loops of its own: one sends the outbox in order, new work and resyncs in separate lanes; the
// other works through the agent's events in order. Consumers never wait for one another. What is sent stays in the
// outbox until the agent has confirmed it, and falls due again with growing delay; so the link may lose anything.
//
// A consumer's loops stop the moment this replica is no longer sure to be the one that serves it. Should two serve the
// same one all the same, for an instant, the agent sees the same versions twice, which changes nothing.
package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/prometheus/client_golang/prometheus"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Publisher sends an event to a topic and waits for the broker's acknowledgement. It is a mqttlink.Link.
type Publisher interface {
	Publish(ctx context.Context, topic string, evt *cloudevents.Event) error
	Ready(ctx context.Context) error
	// Connects counts the connections so far.
	Connects() int64
}

// Options of a dispatcher.
type Options struct {
	Store *store.Store
	Link  Publisher
	// Announce is called after a commit with the reports that changed a resource's status.
	Announce func([]*store.Report)
	// SourceID is this server's name in topics and events.
	SourceID string
	// Resend is when an unconfirmed delivery falls due again the first time; it doubles up to MaxResend.
	Resend, MaxResend time.Duration
	// SafetyPoll is how often the outbox is looked at when nothing says that there is something.
	SafetyPoll time.Duration
	// ResyncWindow bounds how many deliveries of a resync may be unconfirmed at a time.
	ResyncWindow int
	// Rebalance is how often the replicas' shares are looked at.
	Rebalance time.Duration
	Registry  prometheus.Registerer
	Log       *slog.Logger
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
		o.Log = slog.Default()
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
}

// Dispatcher serves the consumers that fall to this replica.
type Dispatcher struct {
	o       Options
	metrics *metrics

	mu       sync.RWMutex
	serving  map[string]*consumer
	joinErr  error
	rejoined chan struct{}
}

// New makes a dispatcher. Run makes it work.
func New(o Options) *Dispatcher {
	o.complete()
	return &Dispatcher{
		o: o, metrics: newMetrics(o.Registry), serving: map[string]*consumer{},
		joinErr: fmt.Errorf("the replica has not joined yet"), rejoined: make(chan struct{}, 1),
	}
}

// Run serves until the context ends, and returns once every loop has ended.
func (d *Dispatcher) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := d.serve(ctx)
		if ctx.Err() != nil {
			break
		}
		d.setJoined(err)
		d.o.Log.Warn("membership lost; joining the replicas again", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	return nil
}

// Ready says why the replica serves nobody, nil when it does its share.
func (d *Dispatcher) Ready(context.Context) error {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.joinErr
}

// Serving lists the consumers this replica serves.
func (d *Dispatcher) Serving() []string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	names := make([]string, 0, len(d.serving))
	for name := range d.serving {
		names = append(names, name)
	}
	return names
}

// Wake says that a consumer has new work in the outbox.
func (d *Dispatcher) Wake(consumer string) {
	d.mu.RLock()
	c := d.serving[consumer]
	d.mu.RUnlock()
	if c != nil {
		c.wake()
	}
}

// Rebalance makes the replica look for consumers at once, as after one was registered.
func (d *Dispatcher) Rebalance() {
	select {
	case d.rejoined <- struct{}{}:
	default:
	}
}

// LinkUp says that the MQTT link has come up: everything an agent reported while it was down is lost.
func (d *Dispatcher) LinkUp(context.Context) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, c := range d.serving {
		c.askStatuses()
		c.wake()
	}
}

// Receive takes an event that an agent published.
func (d *Dispatcher) Receive(_ context.Context, topic string, evt *cloudevents.Event) {
	// The broker checks the topic against the agent's certificate; nobody checks the consumer that the event names.
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

// Invalid takes note of a message that is no event.
func (d *Dispatcher) Invalid(topic string, err error) {
	d.metrics.invalid.Inc()
	d.o.Log.Error("message from an agent dropped", "topic", topic, "error", err)
}

// serve joins the replicas and keeps up the share that falls to this one, until the membership breaks.
func (d *Dispatcher) serve(ctx context.Context) error {
	membership, err := d.o.Store.Join(ctx)
	if err != nil {
		return err
	}
	defer membership.Leave()
	defer d.stopAll()

	ticker := time.NewTicker(d.o.Rebalance)
	defer ticker.Stop()
	for {
		if err := d.rebalance(ctx, membership); err != nil {
			return err
		}
		d.setJoined(nil)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		case <-d.rejoined:
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
		d.o.Log.Info("consumer released", "consumer", name)
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
		// If not, the replica that served it so far has not let go yet; the next round will tell.
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
	d.metrics.serving.Inc()
	d.o.Log.Info("consumer served", "consumer", name)
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

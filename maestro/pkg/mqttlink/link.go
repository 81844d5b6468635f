// Package mqttlink carries CloudEvents over MQTT 5, in binary mode, as the published Maestro and its agents do. A Link
// keeps one connection to the broker: it connects, subscribes, says that it is up, hands every event to its receiver in
// order, and connects again with back-off when the connection breaks. Sessions are clean, so whatever was published
// while the link was down is lost: that is why being up again is an event of its own, upon which its owner resyncs.
//
// A message that is too large for the broker is refused here. Published, it would make the broker close the connection.
package mqttlink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	cloudeventsmqtt "github.com/cloudevents/sdk-go/protocol/mqtt_paho/v2"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
)

// MaxMessageBytes bounds a message with its properties. Event Grid's limit is 512 KiB for the whole packet; the rest is
// room for what packing adds.
const MaxMessageBytes = 500 << 10

var (
	// ErrDown: there is no connection. Nothing was sent.
	ErrDown = errors.New("the MQTT link is down")
	// ErrTooLarge: the message is larger than the broker takes. Nothing was sent, and nothing will be by trying again.
	ErrTooLarge = errors.New("the message is larger than the broker takes")
	// ErrRefused: the broker answered that it will not take this message.
	ErrRefused = errors.New("the broker refuses the message")
)

// Options of a link.
type Options struct {
	// Address is the broker's host:port.
	Address string
	TLS     *tls.Config
	// ClientID must be unique at the broker for this client's certificate.
	ClientID string
	// Subscribe lists the topic filters.
	Subscribe []string
	// Receive is called with every event in order, one at a time. While it blocks, the broker queues.
	Receive func(ctx context.Context, topic string, evt *cloudevents.Event)
	// Invalid is called with what cannot be decoded as a CloudEvent.
	Invalid func(topic string, err error)
	// Up is called after each time the subscriptions stand, before the first event of that connection is received.
	Up func(ctx context.Context)
	// MinBackoff and MaxBackoff bound the pause before connecting again; 0 means 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// AckTimeout is how long a publish waits for the broker's acknowledgement; 0 means 10 s.
	AckTimeout time.Duration
	KeepAlive  time.Duration
	Log        *slog.Logger
}

// Link is one client's connection to the broker, through all its breaks.
type Link struct {
	o Options

	mu     sync.RWMutex
	client *paho.Client
	// alive ends with the connection of the client.
	alive context.Context

	connects atomic.Int64
	lastErr  atomic.Pointer[error]
}

// New makes a link. Run makes it work.
func New(o Options) *Link {
	if o.MinBackoff <= 0 {
		o.MinBackoff = 100 * time.Millisecond
	}
	if o.MaxBackoff < o.MinBackoff {
		o.MaxBackoff = max(10*time.Second, o.MinBackoff)
	}
	if o.AckTimeout <= 0 {
		o.AckTimeout = 10 * time.Second
	}
	if o.KeepAlive <= 0 {
		o.KeepAlive = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return &Link{o: o}
}

// Run keeps the link up until the context ends, and returns once everything it started has.
func (l *Link) Run(ctx context.Context) error {
	pauses := pauses{least: l.o.MinBackoff, most: l.o.MaxBackoff}
	for {
		stood, err := l.connection(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.lastErr.Store(&err)
		pause := pauses.after(stood)
		l.o.Log.Warn("MQTT link down", "broker", l.o.Address, "error", err, "retryIn", pause.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// stableAfter is how long a connection must have stood to show that nothing is wrong with connecting.
const stableAfter = time.Second

// pauses are those before connecting again: each about twice the one before, and the shortest again after a connection that stood.
// Connections that break now and then, however often, cost next to nothing; a broker that ends each at once is left in peace.
type pauses struct{ least, most, next time.Duration }

// after is the pause after a connection that stood for so long, 0 when it was never up.
func (p *pauses) after(stood time.Duration) time.Duration {
	if p.next == 0 || stood >= stableAfter {
		p.next = p.least
	}
	pause := p.next/2 + rand.N(p.next/2+1)
	p.next = min(2*p.next, p.most)
	return pause
}

// Ready says why the link is down, nil when it is up.
func (l *Link) Ready(context.Context) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.client != nil {
		return nil
	}
	if err := l.lastErr.Load(); err != nil {
		return fmt.Errorf("MQTT broker %s: %w", l.o.Address, *err)
	}
	return fmt.Errorf("MQTT broker %s: not connected yet", l.o.Address)
}

// Connects counts how often the link has come up.
func (l *Link) Connects() int64 { return l.connects.Load() }

// connection lives one connection, from dialling to the error that ends it, and says for how long it was up.
func (l *Link) connection(parent context.Context) (stood time.Duration, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()

	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: l.o.TLS}
	conn, err := dialer.DialContext(ctx, "tcp", l.o.Address)
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()

	ended := make(chan error, 4)
	end := func(err error) {
		select {
		case ended <- err:
		default:
		}
	}
	// The receiver waits for Up, so that nothing is handled before a resync was asked for.
	up := make(chan struct{})
	client := paho.NewClient(paho.ClientConfig{
		ClientID:      l.o.ClientID,
		Conn:          packets.NewThreadSafeConn(conn),
		PacketTimeout: l.o.AckTimeout,
		OnClientError: func(err error) { end(fmt.Errorf("connection lost: %w", err)) },
		OnServerDisconnect: func(d *paho.Disconnect) {
			end(fmt.Errorf("the broker ended the session (reason %#x)", d.ReasonCode))
		},
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			select {
			case <-up:
			case <-ctx.Done():
				return false, ctx.Err()
			}
			l.receive(ctx, p.Packet)
			return true, nil
		}},
	})
	handshake, cancelHandshake := context.WithTimeout(ctx, 10*time.Second)
	defer cancelHandshake()
	if err := l.startSession(handshake, client); err != nil {
		return 0, err
	}
	defer func() {
		_ = client.Disconnect(&paho.Disconnect{})
		<-client.Done()
	}()
	if err := l.subscribe(handshake, client); err != nil {
		return 0, err
	}

	alive, dead := context.WithCancel(ctx)
	defer dead()
	l.connects.Add(1)
	l.mu.Lock()
	l.client, l.alive = client, alive
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.client = nil
		l.mu.Unlock()
	}()
	l.o.Log.Info("MQTT link up", "broker", l.o.Address, "client", l.o.ClientID)
	if l.o.Up != nil {
		l.o.Up(ctx)
	}
	close(up)

	since := time.Now()
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-ended:
	case <-client.Done():
		err = errors.New("the connection has ended")
	}
	return time.Since(since), err
}

// startSession begins a session that knows nothing of those before it.
func (l *Link) startSession(ctx context.Context, client *paho.Client) error {
	ack, err := client.Connect(ctx, &paho.Connect{
		ClientID: l.o.ClientID, KeepAlive: uint16(l.o.KeepAlive / time.Second), CleanStart: true,
	})
	if err != nil {
		return fmt.Errorf("start the session: %w", err)
	}
	if ack.ReasonCode != 0 {
		return fmt.Errorf("start the session: the broker answers %#x", ack.ReasonCode)
	}
	return nil
}

func (l *Link) subscribe(ctx context.Context, client *paho.Client) error {
	if len(l.o.Subscribe) == 0 {
		return nil
	}
	subscribe := &paho.Subscribe{}
	for _, filter := range l.o.Subscribe {
		subscribe.Subscriptions = append(subscribe.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: 1})
	}
	if _, err := client.Subscribe(ctx, subscribe); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return nil
}

func (l *Link) receive(ctx context.Context, p *paho.Publish) {
	evt, err := Decode(ctx, p)
	if err != nil {
		if l.o.Invalid != nil {
			l.o.Invalid(p.Topic, err)
		}
		return
	}
	l.o.Receive(ctx, p.Topic, evt)
}

// Decode reads the CloudEvent in a message.
func Decode(ctx context.Context, p *paho.Publish) (*cloudevents.Event, error) {
	if p.Properties == nil {
		p.Properties = &paho.PublishProperties{}
	}
	evt, err := binding.ToEvent(ctx, cloudeventsmqtt.NewMessage(p))
	if err != nil {
		return nil, fmt.Errorf("the message is no CloudEvent: %w", err)
	}
	if err := evt.Validate(); err != nil {
		return nil, fmt.Errorf("the message is no valid CloudEvent: %w", err)
	}
	return evt, nil
}

// Message packs an event for a topic.
func Message(ctx context.Context, topic string, evt *cloudevents.Event) (*paho.Publish, error) {
	msg := &paho.Publish{QoS: 1, Topic: topic}
	if err := cloudeventsmqtt.WritePubMessage(ctx, (*binding.EventMessage)(evt), msg); err != nil {
		return nil, fmt.Errorf("pack event %s: %w", evt.ID(), err)
	}
	return msg, nil
}

// Size estimates the bytes of a message on the wire, never too low.
func Size(msg *paho.Publish) int {
	size := len(msg.Topic) + len(msg.Payload) + 64
	if msg.Properties != nil {
		for _, property := range msg.Properties.User {
			size += len(property.Key) + len(property.Value) + 5
		}
	}
	return size
}

// Publish sends an event and waits until the broker has it. The errors are ErrDown, ErrTooLarge, ErrRefused, or a
// failure after which it is unknown whether the broker has it.
func (l *Link) Publish(ctx context.Context, topic string, evt *cloudevents.Event) error {
	msg, err := Message(ctx, topic, evt)
	if err != nil {
		return err
	}
	if size := Size(msg); size > MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes with its properties, at most %d", ErrTooLarge, size, MaxMessageBytes)
	}
	l.mu.RLock()
	client, alive := l.client, l.alive
	l.mu.RUnlock()
	if client == nil {
		return ErrDown
	}
	// An acknowledgement that was not there when the connection broke never comes.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	answer, err := client.Publish(ctx, msg)
	if err == nil {
		return nil
	}
	if answer != nil && answer.ReasonCode >= 0x80 {
		return fmt.Errorf("%w: reason %#x", ErrRefused, answer.ReasonCode)
	}
	return fmt.Errorf("publish to %s: %w", topic, err)
}

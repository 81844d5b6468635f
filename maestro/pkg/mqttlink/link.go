// Package mqttlink carries CloudEvents over MQTT 5, in binary mode, as the published Maestro and its agents do. A Link
// maintains one connection to the broker: it connects, subscribes, calls Up, passes every event to its receiver in order,
// and reconnects with backoff. Sessions are clean, so messages that are published while the link is down are lost. The
// owner of a link therefore resyncs whenever Up is called.
//
// Publish rejects a message that is too large for the broker, because the broker would close the connection.
package mqttlink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	cloudeventsmqtt "github.com/cloudevents/sdk-go/protocol/mqtt_paho/v2"
	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// MaxMessageBytes bounds a message with its properties. Event Grid accepts packets of 512 KiB; the difference is for the
// headers of the packet. A broker can announce a lower limit.
const MaxMessageBytes = 500 << 10

var (
	// ErrDown means that there is no connection. Nothing was sent.
	ErrDown = errors.New("the MQTT connection is down")
	// ErrTooLarge means that the message exceeds MaxMessageBytes. Nothing was sent, and a retry has the same result.
	ErrTooLarge = errors.New("the message is larger than the broker accepts")
	// ErrBrokerLimit is an ErrTooLarge for the limit that the broker of the connection announces. A retry can succeed when the broker has another one.
	ErrBrokerLimit = fmt.Errorf("%w by its own limit", ErrTooLarge)
	// ErrRefused means that the broker rejected the message with a reason code.
	ErrRefused = errors.New("the broker rejected the message")
)

// Options of a link.
type Options struct {
	// Address is the host:port of the broker.
	Address string
	TLS     *tls.Config
	// ClientID must be unique at the broker for the certificate of this client.
	ClientID string
	// Subscribe lists the topic filters.
	Subscribe []string
	// Receive is called with every event in order, one at a time. The broker queues messages while it blocks.
	Receive func(ctx context.Context, topic string, evt *cloudevents.Event)
	// Invalid is called for each message that is not a CloudEvent.
	Invalid func(topic string, err error)
	// Up is called each time the subscriptions are established, before Receive is called for that connection.
	Up func(ctx context.Context)
	// MinBackoff and MaxBackoff bound the pause before reconnecting; 0 means 100 ms and 10 s.
	MinBackoff, MaxBackoff time.Duration
	// AckTimeout bounds the wait for the broker's acknowledgement of a message; 0 means 10 s.
	AckTimeout time.Duration
	// KeepAlive is MQTT's keep-alive interval; 0 means 30 s.
	KeepAlive time.Duration
	// Log receives the changes of the connection; nil discards them.
	Log *slog.Logger
}

// Link is the connection of one client to the broker. It survives broken network connections.
type Link struct {
	o       Options
	backoff *backoff.Backoff // used by Run only

	mu     sync.RWMutex
	client *paho.Client
	// maxMessage is the limit of the current connection in bytes, at most MaxMessageBytes.
	maxMessage int
	// pinger sends pings over the current connection.
	pinger *pinger
	// alive is the context of the current connection.
	alive context.Context

	connects atomic.Int64
	lastErr  atomic.Pointer[error]
}

// New returns a link. Call Run to connect.
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
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Link{o: o, backoff: backoff.New(o.MinBackoff, o.MaxBackoff)}
}

// Run connects, and connects again whenever the connection breaks, until ctx ends. It returns when everything that it
// started has stopped.
func (l *Link) Run(ctx context.Context) error {
	for {
		up, err := l.runConnection(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.lastErr.Store(&err)
		pause := l.pauseAfter(up)
		l.o.Log.WarnContext(ctx, "MQTT connection lost", logkey.Broker, l.o.Address, logkey.Error, err, logkey.RetryIn, pause.String())
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

// stableAfter is the duration of a connection after which connecting counts as successful.
const stableAfter = time.Second

// pauseAfter returns the pause after a connection that was up for the given time, 0 if it never was. Occasional breaks cost
// next to nothing; a broker that closes every connection at once is not flooded with new ones.
func (l *Link) pauseAfter(up time.Duration) time.Duration {
	if up >= stableAfter {
		l.backoff.Reset()
	}
	return l.backoff.Next()
}

// Ready returns nil if the broker responds, or why it does not. It sends a ping over the connection, because the connection to a hung
// broker stays open.
func (l *Link) Ready(ctx context.Context) error {
	l.mu.RLock()
	pinger, alive := l.pinger, l.alive
	l.mu.RUnlock()
	if pinger != nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(alive, cancel)()
		if err := pinger.ping(ctx); err != nil {
			return fmt.Errorf("MQTT broker %s: %w", l.o.Address, err)
		}
		return nil
	}
	if err := l.lastErr.Load(); err != nil {
		return fmt.Errorf("MQTT broker %s: %w", l.o.Address, *err)
	}
	return fmt.Errorf("MQTT broker %s: not connected yet", l.o.Address)
}

// Connected reports whether there is a connection. It sends nothing: the broker may have stopped responding.
func (l *Link) Connected() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.client != nil
}

// Connects returns the number of connections so far.
func (l *Link) Connects() int64 { return l.connects.Load() }

// runConnection establishes one connection and returns the error that ended it and how long the link was up.
func (l *Link) runConnection(parent context.Context) (up time.Duration, err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()

	dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: l.o.TLS}
	conn, err := dialer.DialContext(ctx, "tcp", l.o.Address)
	if err != nil {
		return 0, fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()

	ended := make(chan error, 4)
	end := func(err error) {
		select {
		case ended <- err:
		default:
		}
	}
	// Events are received after Up has returned, so that the resync is requested first.
	ready := make(chan struct{})
	safe := packets.NewThreadSafeConn(conn)
	pings := newPinger(safe)
	client := paho.NewClient(paho.ClientConfig{
		ClientID:      l.o.ClientID,
		Conn:          safe,
		PingHandler:   pings,
		PacketTimeout: l.o.AckTimeout,
		OnClientError: func(err error) { end(fmt.Errorf("connection lost: %w", err)) },
		OnServerDisconnect: func(d *paho.Disconnect) {
			end(fmt.Errorf("the broker closed the session (reason %#x)", d.ReasonCode))
		},
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			select {
			case <-ready:
			case <-ctx.Done():
				return false, ctx.Err()
			}
			l.receive(ctx, p.Packet)
			return true, nil
		}},
	})
	handshake, cancelHandshake := context.WithTimeout(ctx, 10*time.Second)
	defer cancelHandshake()
	maxMessage, err := l.startSession(handshake, client)
	if err != nil {
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
	l.client, l.alive, l.pinger, l.maxMessage = client, alive, pings, maxMessage
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.client, l.pinger = nil, nil
		l.mu.Unlock()
	}()
	l.o.Log.InfoContext(ctx, "MQTT connected", logkey.Broker, l.o.Address, logkey.Client, l.o.ClientID)
	if l.o.Up != nil {
		l.o.Up(ctx)
	}
	close(ready)

	began := time.Now()
	select {
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-ended:
	case <-client.Done():
		err = errors.New("the connection was closed")
	}
	return time.Since(began), err
}

// startSession starts a clean session and returns the limit of its messages in bytes. The client of the library keeps the broker's Receive Maximum and
// Server Keep Alive (MQTT 5, section 3.2.2.3).
func (l *Link) startSession(ctx context.Context, client *paho.Client) (maxMessage int, err error) {
	ack, err := client.Connect(ctx, &paho.Connect{
		ClientID: l.o.ClientID, KeepAlive: uint16(l.o.KeepAlive / time.Second), CleanStart: true,
	})
	if err != nil {
		return 0, fmt.Errorf("starting the MQTT session: %w", err)
	}
	if ack.ReasonCode != 0 {
		return 0, fmt.Errorf("starting the MQTT session: the broker returned reason %#x", ack.ReasonCode)
	}
	maxMessage = MaxMessageBytes
	if p := ack.Properties; p != nil {
		if p.MaximumQoS != nil && *p.MaximumQoS < qualityOfService {
			return 0, fmt.Errorf("starting the MQTT session: the broker has no acknowledged messages: its Maximum QoS is %d", *p.MaximumQoS)
		}
		if p.MaximumPacketSize != nil {
			maxMessage = int(min(MaxMessageBytes, *p.MaximumPacketSize))
		}
	}
	return maxMessage, nil
}

// qualityOfService is that of all messages and subscriptions: the broker acknowledges each message.
const qualityOfService = 1

func (l *Link) subscribe(ctx context.Context, client *paho.Client) error {
	if len(l.o.Subscribe) == 0 {
		return nil
	}
	subscribe := &paho.Subscribe{}
	for _, filter := range l.o.Subscribe {
		subscribe.Subscriptions = append(subscribe.Subscriptions, paho.SubscribeOptions{Topic: filter, QoS: qualityOfService})
	}
	if _, err := client.Subscribe(ctx, subscribe); err != nil {
		return fmt.Errorf("subscribing: %w", err)
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

// Decode returns the CloudEvent of a message.
func Decode(ctx context.Context, p *paho.Publish) (*cloudevents.Event, error) {
	if p.Properties == nil {
		p.Properties = &paho.PublishProperties{}
	}
	evt, err := binding.ToEvent(ctx, cloudeventsmqtt.NewMessage(p))
	if err != nil {
		return nil, fmt.Errorf("the message is not a CloudEvent: %w", err)
	}
	if err := evt.Validate(); err != nil {
		return nil, fmt.Errorf("the message is not a valid CloudEvent: %w", err)
	}
	return evt, nil
}

// Message encodes an event as a message for a topic.
func Message(ctx context.Context, topic string, evt *cloudevents.Event) (*paho.Publish, error) {
	msg := &paho.Publish{QoS: qualityOfService, Topic: topic}
	if err := cloudeventsmqtt.WritePubMessage(ctx, (*binding.EventMessage)(evt), msg); err != nil {
		return nil, fmt.Errorf("encoding event %s: %w", evt.ID(), err)
	}
	return msg, nil
}

// Size returns an upper bound of the bytes of a message on the wire.
func Size(msg *paho.Publish) int {
	size := len(msg.Topic) + len(msg.Payload) + 64
	if msg.Properties != nil {
		for _, property := range msg.Properties.User {
			size += len(property.Key) + len(property.Value) + 5
		}
	}
	return size
}

// Publish sends an event and waits for the broker's acknowledgement. It returns ErrDown, ErrTooLarge or ErrRefused if the
// broker does not have the message. After any other error it is unknown whether the broker has it.
func (l *Link) Publish(ctx context.Context, topic string, evt *cloudevents.Event) error {
	msg, err := Message(ctx, topic, evt)
	if err != nil {
		return err
	}
	size := Size(msg)
	if size > MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes with its properties, the limit is %d", ErrTooLarge, size, MaxMessageBytes)
	}
	l.mu.RLock()
	client, alive, maxMessage := l.client, l.alive, l.maxMessage
	l.mu.RUnlock()
	switch {
	case client == nil:
		return ErrDown
	case size > maxMessage: // MQTT-3.2.2-15: the client must not send it
		return fmt.Errorf("%w: %d bytes with its properties, the limit is %d", ErrBrokerLimit, size, maxMessage)
	}
	// No acknowledgement arrives after the connection has broken.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(alive, cancel)()
	response, err := client.Publish(ctx, msg)
	if err == nil {
		return nil
	}
	if response != nil && response.ReasonCode >= 0x80 {
		return fmt.Errorf("%w: reason %#x", ErrRefused, response.ReasonCode)
	}
	return fmt.Errorf("publishing to %s: %w", topic, err)
}

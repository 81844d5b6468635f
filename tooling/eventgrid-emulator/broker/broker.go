// Package broker is an MQTT 5 broker that keeps the rules of Azure Event Grid's MQTT broker, for a region that runs on
// one machine and for tests that run it inside their own process. A client is who its TLS certificate's DNS name says,
// may use only the topics of that name, and is cut off when it breaks a limit; nothing is retained and nothing is kept
// for longer than its session. As with the real one, an acknowledged publish promises only that the broker had the
// message: whoever needs more must be able to ask again (Maestro's resync).
//
// The MQTT engine (mochi-mqtt) stays behind this package, so that it can be exchanged.
package broker

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Limits of Event Grid's MQTT broker that this one keeps. The offline queue's (100 messages) is coarser here: a session
// whose queue is full is ended, whether or not its client is connected.
const (
	MaxPacketBytes      = 512 << 10
	maxQoS              = 1
	maxTopicAliases     = 10
	maxSessionExpirySec = 3600
	maxPendingWrites    = 4096
	maxInflight         = 4096
	defaultMaxSessions  = 1000
)

// Options of a broker.
type Options struct {
	// TLS is the server's side of the connection. It must ask for and verify client certificates.
	TLS *tls.Config
	// Permit decides which topics a client may use; nil is MaestroTopics("maestro", maestroapi.ServerName).
	Permit Permit
	// MaxSessions bounds the sessions the broker holds, connected or not. 0 means 1000.
	MaxSessions int
	Log         *slog.Logger
}

// Broker is a running MQTT broker.
type Broker struct {
	server *mqtt.Server
	hook   *rules
	addr   net.Addr

	closing sync.Once
	closeBy error
}

// Start serves MQTT on the listener until Close.
func Start(listener net.Listener, o Options) (*Broker, error) {
	switch {
	case o.TLS == nil:
		return nil, errors.New("the broker needs a TLS configuration: Event Grid takes no plain connections")
	case o.TLS.ClientAuth != tls.RequireAndVerifyClientCert:
		return nil, errors.New("the broker's TLS configuration must require and verify client certificates")
	}
	if o.Permit == nil {
		o.Permit = MaestroTopics("maestro", maestroapi.ServerName)
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}

	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumPacketSize = MaxPacketBytes
	capabilities.MaximumQos = maxQoS
	capabilities.RetainAvailable = 0
	capabilities.SubIDAvailable = 0
	capabilities.TopicAliasMaximum = maxTopicAliases
	capabilities.MaximumSessionExpiryInterval = maxSessionExpirySec
	capabilities.MaximumClientWritesPending = maxPendingWrites
	capabilities.MaximumInflight = maxInflight
	capabilities.MinimumProtocolVersion = 5
	capabilities.MaximumClients = int64(o.MaxSessions)
	// Without this a PUBACK repeats every user property of the PUBLISH.
	capabilities.Compatibilities.NoInheritedPropertiesOnAck = true

	b := &Broker{
		server: mqtt.New(&mqtt.Options{
			Capabilities:             capabilities,
			Logger:                   o.Log,
			ClientNetReadBufferSize:  64 << 10,
			ClientNetWriteBufferSize: 64 << 10,
			SysTopicResendInterval:   3600,
		}),
		addr: listener.Addr(),
	}
	b.hook = &rules{permit: o.Permit, maxSessions: o.MaxSessions, log: o.Log, sessions: b.server.Clients}
	if err := b.server.AddHook(b.hook, nil); err != nil {
		return nil, fmt.Errorf("install the broker's rules: %w", err)
	}
	if err := b.server.AddListener(listeners.NewNet("mqtts", tls.NewListener(listener, o.TLS))); err != nil {
		return nil, fmt.Errorf("attach the listener: %w", err)
	}
	if err := b.server.Serve(); err != nil {
		return nil, fmt.Errorf("serve MQTT: %w", err)
	}
	return b, nil
}

// Addr is where the broker listens.
func (b *Broker) Addr() string { return b.addr.String() }

// Close ends every session and stops listening. It returns when both are done.
func (b *Broker) Close() error {
	b.closing.Do(func() { b.closeBy = b.server.Close() })
	return b.closeBy
}

// Run serves until the context ends.
func (b *Broker) Run(ctx context.Context) error {
	<-ctx.Done()
	return b.Close()
}

// Drop cuts the connections of the client with this name, as a network failure would, and says how many there were. An
// empty name means every client.
func (b *Broker) Drop(name string) int {
	dropped := 0
	for _, cl := range b.server.Clients.GetAll() {
		if cl.Closed() || name != "" && nameOf(cl.ID) != name {
			continue
		}
		cl.Stop(errors.New("dropped by fault injection"))
		dropped++
	}
	return dropped
}

// Poison makes the broker cut the connection of whoever publishes a message whose payload contains the text, as a broker
// does that cannot take a message. An empty text ends that.
func (b *Broker) Poison(text string) {
	b.hook.poison.Store(&text)
}

// Message is one that a client publishes.
type Message struct {
	// Client is the publisher's name, Topic where the message goes.
	Client, Topic string
	// Properties are the message's user properties; of a CloudEvent in binary mode, its attributes.
	Properties map[string]string
}

// Fault has the broker ask about each message that is published. With an error before, the broker does not get the message; with
// one after, it passes the message on. Either way the publisher hears nothing, as one does that is killed there. nil ends that.
func (b *Broker) Fault(ask func(Message) (before, after error)) { b.hook.fault.Store(&ask) }

// Connected lists the names of the clients that have a connection.
func (b *Broker) Connected() []string {
	var names []string
	for _, cl := range b.server.Clients.GetAll() {
		if !cl.Closed() {
			names = append(names, nameOf(cl.ID))
		}
	}
	return names
}

// Stats are counters since the start, and the sessions there are now.
type Stats struct {
	Sessions, Received, Sent, Refused, Overflowed int64
}

// Stats reads the broker's counters.
func (b *Broker) Stats() Stats {
	return Stats{
		Sessions:   int64(b.server.Clients.Len()),
		Received:   atomic.LoadInt64(&b.server.Info.MessagesReceived),
		Sent:       atomic.LoadInt64(&b.server.Info.MessagesSent),
		Refused:    b.hook.refused.Load(),
		Overflowed: b.hook.overflowed.Load(),
	}
}

// rules is what makes the engine behave as Event Grid does.
type rules struct {
	mqtt.HookBase
	permit      Permit
	maxSessions int
	log         *slog.Logger
	sessions    *mqtt.Clients
	refused     atomic.Int64
	overflowed  atomic.Int64
	poison      atomic.Pointer[string]
	fault       atomic.Pointer[func(Message) (before, after error)]
}

func (*rules) ID() string { return "event-grid-rules" }

func (*rules) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnACLCheck, mqtt.OnPublish, mqtt.OnPublishDropped:
		return true
	}
	return false
}

// OnConnect refuses what Event Grid refuses before a session exists. It also puts the certificate's name in front of
// the client id, so that one client can never take over another one's session by claiming its id.
func (r *rules) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	name, err := certificateName(cl)
	if err != nil {
		return r.refuse(cl, packets.ErrNotAuthorized, err.Error())
	}
	if pk.Connect.ClientIdentifier == "" {
		return r.refuse(cl, packets.ErrClientIdentifierNotValid, "the client id is empty and the broker assigns none")
	}
	cl.ID = name + "/" + pk.Connect.ClientIdentifier
	if _, known := r.sessions.Get(cl.ID); !known && r.sessions.Len() >= r.maxSessions {
		return r.refuse(cl, packets.ErrQuotaExceeded, "the broker holds as many sessions as it may")
	}
	if pk.Connect.WillFlag && !r.permit(name, pk.Connect.WillTopic, true) {
		return r.refuse(cl, packets.ErrNotAuthorized, "the will's topic is not one of the client's")
	}
	return nil
}

// OnConnectAuthenticate accepts whoever OnConnect let pass: the certificate has been verified by then.
func (*rules) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

// OnACLCheck keeps a client to its own topics, for publishing (write) as for subscribing and receiving.
func (r *rules) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	if r.permit(nameOf(cl.ID), topic, write) {
		return true
	}
	r.refused.Add(1)
	r.log.Warn("topic refused", "client", cl.ID, "topic", topic, "publish", write)
	return false
}

// OnPublish refuses retained messages, which the engine would pass on without retaining them.
func (r *rules) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if text := r.poison.Load(); text != nil && *text != "" && bytes.Contains(pk.Payload, []byte(*text)) {
		cl.Stop(errors.New("cut by fault injection"))
		return pk, packets.ErrRejectPacket
	}
	if pk.FixedHeader.Retain {
		r.refused.Add(1)
		return pk, packets.ErrRetainNotSupported
	}
	if ask := r.fault.Load(); ask != nil && *ask != nil {
		m := Message{Client: nameOf(cl.ID), Topic: pk.TopicName, Properties: map[string]string{}}
		for _, property := range pk.Properties.User {
			m.Properties[property.Key] = property.Val
		}
		before, after := (*ask)(m)
		if before != nil {
			return pk, packets.ErrRejectPacket
		}
		if after != nil {
			pk.FixedHeader.Qos = 0 // which is passed on as well, and is not acknowledged
		}
	}
	return pk, nil
}

// OnPublishDropped ends the session of a client that does not keep up. The engine would drop the message and go on;
// a client that reconnects knows that it missed something, one that missed a message in silence does not.
func (r *rules) OnPublishDropped(cl *mqtt.Client, _ packets.Packet) {
	r.overflowed.Add(1)
	r.log.Warn("session ended: its queue is full", "client", cl.ID, "limit", maxPendingWrites)
	cl.Stop(packets.ErrQuotaExceeded)
}

func (r *rules) refuse(cl *mqtt.Client, code packets.Code, why string) error {
	r.refused.Add(1)
	r.log.Warn("connection refused", "client", cl.ID, "remote", cl.Net.Remote, "reason", why)
	return code
}

func certificateName(cl *mqtt.Client) (string, error) {
	conn, ok := cl.Net.Conn.(*tls.Conn)
	if !ok {
		return "", errors.New("the connection is not TLS")
	}
	chain := conn.ConnectionState().PeerCertificates
	if len(chain) == 0 || len(chain[0].DNSNames) == 0 {
		return "", errors.New("the client's certificate carries no DNS name")
	}
	return chain[0].DNSNames[0], nil
}

func nameOf(clientID string) string {
	name, _, _ := strings.Cut(clientID, "/")
	return name
}

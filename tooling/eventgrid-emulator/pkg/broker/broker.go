// Package broker is an MQTT 5 broker with the rules of Azure Event Grid's MQTT broker, for local regions and for tests.
//
// The DNS name of a client's TLS certificate identifies the client and determines its topics. A client that exceeds a
// limit is disconnected. Messages are not retained, and are stored only as long as their session.
//
// As in Event Grid, an acknowledgement of a publish means only that the broker received the message. Clients that need
// more must be able to request the state again, as Maestro's resync does.
//
// Only this package uses the MQTT engine (mochi-mqtt), so that it can be replaced.
package broker

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// The limits of Event Grid's MQTT broker. Event Grid queues up to 100 messages for a disconnected session; this broker
// closes a session with a full queue, connected or not.
const (
	MaxPacketBytes      = 512 << 10
	maxQoS              = 1
	maxTopicAliases     = 10
	maxSessionExpirySec = 3600
	maxPendingWrites    = 4096
	maxInflight         = 4096
	maxKeepAliveSec     = 1160
	defaultMaxSessions  = 1000
)

// reasonTime bounds the time in which a client receives the reason for which its connection is closed.
const reasonTime = time.Second

// Options configure a Broker.
type Options struct {
	// TLS is the server's TLS configuration. It must require and verify client certificates.
	TLS *tls.Config
	// Source is the name of the Maestro server in topics; empty means maestro.
	Source string
	// MaxSessions bounds the number of sessions, connected or not; 0 means 1000.
	MaxSessions int
	// Refused records the connections and topics that no rule allows a verified workload; nil means that they are only logged.
	Refused func(context.Context, mesh.Refusal)
	// MaxPacketBytes is a limit of packets other than that of Event Grid; 0 means MaxPacketBytes.
	MaxPacketBytes uint32
	Log            *slog.Logger
}

// Broker is a running MQTT broker. It is safe for concurrent use.
type Broker struct {
	server *mqtt.Server
	hook   *eventGridHook
	addr   net.Addr

	closeOnce sync.Once
	closeErr  error
}

// Start serves MQTT on a network listener until Close.
func Start(network net.Listener, o Options) (*Broker, error) {
	switch {
	case o.TLS == nil:
		return nil, errors.New("a TLS configuration is required: Event Grid accepts no plain connections")
	case o.TLS.ClientAuth != tls.RequireAndVerifyClientCert:
		return nil, errors.New("the TLS configuration must require and verify client certificates")
	}
	if o.MaxSessions <= 0 {
		o.MaxSessions = defaultMaxSessions
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Source = cmp.Or(o.Source, "maestro")

	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumPacketSize = cmp.Or(o.MaxPacketBytes, MaxPacketBytes)
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
		addr: network.Addr(),
	}
	b.hook = &eventGridHook{
		permissions: newPermissions(o), maxSessions: o.MaxSessions, maxPacket: capabilities.MaximumPacketSize, log: o.Log, sessions: b.server.Clients, disconnect: b.server.DisconnectClient,
		connections: newConnections(),
	}
	if err := b.server.AddHook(b.hook, nil); err != nil {
		return nil, fmt.Errorf("installing the broker's hook: %w", err)
	}
	// The engine sets no deadline before it has read CONNECT, and has the buffers of a client from then on. Twice the sessions are the sessions and
	// clients that connect.
	limited := process.LimitConnections(network, 2*o.MaxSessions)
	accepting := listener{listeners.NewNet("mqtts", tls.NewListener(limited, o.TLS)), b.hook.connections.end, b.disconnectAll}
	if err := b.server.AddListener(accepting); err != nil {
		return nil, fmt.Errorf("adding the listener: %w", err)
	}
	if err := b.server.Serve(); err != nil {
		return nil, fmt.Errorf("serving MQTT: %w", err)
	}
	return b, nil
}

// Addr returns the address of the listener.
func (b *Broker) Addr() string { return b.addr.String() }

// Close closes all sessions and the listener, and waits for both.
func (b *Broker) Close() error {
	b.closeOnce.Do(func() { b.closeErr = b.server.Close() })
	return b.closeErr
}

// disconnectAll disconnects all clients of a listener, because the broker stops.
func (b *Broker) disconnectAll(listener string) {
	for _, cl := range b.server.Clients.GetAll() {
		if cl.Net.Listener == listener && !cl.Closed() {
			_ = b.server.DisconnectClient(cl, packets.ErrServerShuttingDown) // the client may have ended
		}
	}
}

// Run serves until ctx ends.
func (b *Broker) Run(ctx context.Context) error {
	<-ctx.Done()
	return b.Close()
}

// DropConnections closes the connections of a client, as a network failure does, and returns their number. An empty name
// means all clients.
func (b *Broker) DropConnections(name string) int {
	dropped := 0
	for _, cl := range b.server.Clients.GetAll() {
		if cl.Closed() || name != "" && clientOf(cl.ID).name != name {
			continue
		}
		cl.Stop(errors.New("dropped by fault injection"))
		dropped++
	}
	return dropped
}

// RejectPayload makes the broker drop the connection of each client that publishes a payload containing text, as a broker
// does that cannot process a message. An empty text disables this.
func (b *Broker) RejectPayload(text string) {
	b.hook.rejectedPayload.Store(&text)
}

// Message is a message that a client publishes.
type Message struct {
	// Client is the name of the publisher.
	Client, Topic string
	// Properties are the user properties. For a CloudEvent in binary mode these are its attributes.
	Properties map[string]string
}

// InjectFault calls fault for each published message. If before is not nil, the broker drops the message. If after is not
// nil, the broker delivers the message. In both cases the publisher receives no acknowledgement, as if it was killed at
// that time. A nil fault disables this.
func (b *Broker) InjectFault(fault func(Message) (before, after error)) { b.hook.fault.Store(&fault) }

// Connected returns the names of the connected clients.
func (b *Broker) Connected() []string {
	var names []string
	for _, cl := range b.server.Clients.GetAll() {
		if !cl.Closed() {
			names = append(names, clientOf(cl.ID).name)
		}
	}
	return names
}

// Stats contains the number of sessions, and counters since the start.
type Stats struct {
	Sessions, Received, Sent, Rejected, Overflowed int64
}

// Stats returns the broker's counters.
func (b *Broker) Stats() Stats {
	return Stats{
		Sessions:   int64(b.server.Clients.Len()),
		Received:   atomic.LoadInt64(&b.server.Info.MessagesReceived),
		Sent:       atomic.LoadInt64(&b.server.Info.MessagesSent),
		Rejected:   b.hook.rejected.Load(),
		Overflowed: b.hook.overflowed.Load(),
	}
}

// eventGridHook implements the rules of Event Grid as a hook of the engine.
type eventGridHook struct {
	mqtt.HookBase
	permissions *permissions
	maxSessions int
	// maxPacket is the limit of packets in bytes.
	maxPacket       uint32
	log             *slog.Logger
	sessions        *mqtt.Clients
	rejected        atomic.Int64
	overflowed      atomic.Int64
	rejectedPayload atomic.Pointer[string]
	fault           atomic.Pointer[func(Message) (before, after error)]
	// disconnect closes a connection with a reason.
	disconnect func(*mqtt.Client, packets.Code) error
	ends       certificateEnds
	// connections has the connections with a session.
	connections *connections
}

// ID implements mqtt.Hook.
func (*eventGridHook) ID() string { return "event-grid" }

// Provides implements mqtt.Hook.
func (*eventGridHook) Provides(b byte) bool {
	switch b {
	case mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnSessionEstablish, mqtt.OnSessionEstablished, mqtt.OnDisconnect, mqtt.OnACLCheck, mqtt.OnPacketEncode, mqtt.OnPublish, mqtt.OnPublishDropped:
		return true
	}
	return false
}

// OnConnect rejects the connections that Event Grid rejects, and those of workloads without a rule. It also adds the identity in the
// certificate to the client ID as a prefix, so that a client cannot take over the session of another one by using its ID.
func (h *eventGridHook) OnConnect(cl *mqtt.Client, pk packets.Packet) error {
	from, err := certificateClient(cl)
	if err != nil {
		return h.reject(cl, packets.ErrNotAuthorized, err.Error())
	}
	if !h.permissions.connect(from) {
		h.permissions.refuse(from, mesh.Connect, "")
		return h.reject(cl, packets.ErrNotAuthorized, "the workload "+string(from.workload)+" is not authorized for any topic")
	}
	if pk.Connect.ClientIdentifier == "" {
		return h.reject(cl, packets.ErrClientIdentifierNotValid, "the client ID is empty")
	}
	cl.ID = from.name + "/" + string(from.workload) + "/" + pk.Connect.ClientIdentifier
	if _, exists := h.sessions.Get(cl.ID); !exists && h.sessions.Len() >= h.maxSessions {
		return h.reject(cl, packets.ErrQuotaExceeded, "the maximum number of sessions is reached")
	}
	if pk.Connect.WillFlag && !h.permissions.topic(from, pk.Connect.WillTopic, true) {
		h.permissions.refuse(from, mesh.Publish, pk.Connect.WillTopic)
		return h.reject(cl, packets.ErrNotAuthorized, "the client is not authorized for the topic of its will")
	}
	// Without an interval, the engine would keep the connection of a client that is gone.
	if cl.State.Keepalive == 0 || cl.State.Keepalive > maxKeepAliveSec {
		cl.State.Keepalive, cl.State.ServerKeepalive = maxKeepAliveSec, true
	}
	return nil
}

// OnPacketEncode announces the limit of packets, which the engine enforces only (MQTT 5, section 3.2.2.3.6).
func (h *eventGridHook) OnPacketEncode(_ *mqtt.Client, pk packets.Packet) packets.Packet {
	if pk.FixedHeader.Type == packets.Connack {
		pk.Properties.MaximumPacketSize = h.maxPacket
	}
	return pk
}

// OnSessionEstablish closes the previous connection of a client and waits for its end.
func (h *eventGridHook) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	h.connections.begin(cl, func(previous *mqtt.Client) {
		h.log.Info(takenOver, logkey.Client, cl.ID)
		h.close(previous, packets.ErrSessionTakenOver)
	})
}

// takenOver is the message of the log record of a client that has connected again.
const takenOver = "the client has connected again; its previous connection is closed"

// OnSessionEstablished begins to watch the certificate of a client.
func (h *eventGridHook) OnSessionEstablished(cl *mqtt.Client, _ packets.Packet) {
	from, err := certificateClient(cl)
	if err != nil {
		return // OnConnect has verified it
	}
	h.ends.watch(cl, from.end, func() {
		h.log.Info("connection closed: the certificate of the client has ended", logkey.Client, cl.ID)
		h.close(cl, packets.ErrMaxConnectTime)
	})
}

// close closes the connection of a client with a reason.
func (h *eventGridHook) close(cl *mqtt.Client, reason packets.Code) {
	// The engine writes the reason before it closes the connection. A client that does not read delays only that.
	closing := time.AfterFunc(reasonTime, func() { cl.Stop(reason) })
	defer closing.Stop()
	_ = h.disconnect(cl, reason)
}

// OnDisconnect ends the watch of the certificate.
func (h *eventGridHook) OnDisconnect(cl *mqtt.Client, _ error, _ bool) { h.ends.forget(cl) }

// OnConnectAuthenticate accepts all connections that OnConnect accepted: their certificates are verified.
func (*eventGridHook) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool { return true }

// OnACLCheck authorizes a client to publish to a topic (write), or to subscribe and receive.
func (h *eventGridHook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	if h.permissions.topic(clientOf(cl.ID), topic, write) {
		return true
	}
	h.rejected.Add(1)
	h.permissions.refuse(clientOf(cl.ID), actionOf(write), topic)
	return false
}

// OnPublish rejects retained messages, which the engine would deliver without retaining them, and injects faults.
func (h *eventGridHook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if text := h.rejectedPayload.Load(); text != nil && *text != "" && bytes.Contains(pk.Payload, []byte(*text)) {
		cl.Stop(errors.New("cut by fault injection"))
		return pk, packets.ErrRejectPacket
	}
	if pk.FixedHeader.Retain {
		h.rejected.Add(1)
		return pk, packets.ErrRetainNotSupported
	}
	if fault := h.fault.Load(); fault != nil && *fault != nil {
		m := Message{Client: clientOf(cl.ID).name, Topic: pk.TopicName, Properties: map[string]string{}}
		for _, property := range pk.Properties.User {
			m.Properties[property.Key] = property.Val
		}
		before, after := (*fault)(m)
		if before != nil {
			return pk, packets.ErrRejectPacket
		}
		if after != nil {
			pk.FixedHeader.Qos = 0 // QoS 0 is delivered as well, without an acknowledgement
		}
	}
	return pk, nil
}

// OnPublishDropped closes the session of a client whose queue is full. The engine would only drop the message. A client
// that reconnects knows that it may have missed messages; otherwise it would not.
func (h *eventGridHook) OnPublishDropped(cl *mqtt.Client, _ packets.Packet) {
	h.overflowed.Add(1)
	h.log.Warn("session closed: its queue is full", logkey.Client, cl.ID, logkey.Limit, maxPendingWrites)
	cl.Stop(packets.ErrQuotaExceeded)
}

// reject counts and logs a rejected connection and returns code.
func (h *eventGridHook) reject(cl *mqtt.Client, code packets.Code, reason string) error {
	h.rejected.Add(1)
	h.log.Warn("connection rejected", logkey.Client, cl.ID, logkey.Remote, cl.Net.Remote, logkey.Reason, reason)
	return code
}

// certificateClient returns the identity in the client's certificate.
func certificateClient(cl *mqtt.Client) (client, error) {
	conn, ok := cl.Net.Conn.(*tls.Conn)
	if !ok {
		return client{}, errors.New("the connection is not TLS")
	}
	id, err := mesh.PeerOf(conn.ConnectionState())
	if err != nil {
		return client{}, err
	}
	names := conn.ConnectionState().PeerCertificates[0].DNSNames
	// The separator of client IDs cannot be part of a DNS name.
	if len(names) == 0 || names[0] == "" || strings.Contains(names[0], "/") {
		return client{}, errors.New("the client's certificate has no DNS name")
	}
	return client{workload: id.Peer, name: names[0], end: conn.ConnectionState().PeerCertificates[0].NotAfter}, nil
}

// clientOf returns the client in a client ID of OnConnect.
func clientOf(clientID string) client {
	name, rest, _ := strings.Cut(clientID, "/")
	workload, _, _ := strings.Cut(rest, "/")
	return client{workload: mesh.Peer(workload), name: name}
}

package broker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// authority issues certificates for one test.
type authority struct {
	t           *testing.T
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	a := &authority{t: t, key: key, certificate: &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der := must.Get(x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, key.Public(), key))(t)
	a.certificate = must.Get(x509.ParseCertificate(der))(t)
	return a
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// issue issues a certificate of the workload that has the name in a region: the Maestro server, or an agent.
func (a *authority) issue(name string) tls.Certificate {
	workload := mesh.MaestroAgent
	if name == maestroapi.ServerName {
		workload = mesh.MaestroServer
	}
	return a.issueFor(workload, name)
}

func (a *authority) issueFor(workload mesh.Peer, names ...string) tls.Certificate {
	a.t.Helper()
	return a.issueUntil(time.Now().Add(time.Hour), workload, names...)
}

// issueUntil is issueFor with the end of the certificate.
func (a *authority) issueUntil(end time.Time, workload mesh.Peer, names ...string) tls.Certificate {
	a.t.Helper()
	uris := []*url.URL{mesh.ID{TrustDomain: "test", Peer: workload}.URL()}
	if workload == "" {
		uris = nil
	}
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(a.t)
	der := must.Get(x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), DNSNames: names, URIs: uris,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.certificate, key.Public(), a.key))(a.t)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// testBroker is a broker with the authority of its clients.
type testBroker struct {
	*authority
	*broker.Broker
}

func start(t *testing.T, o broker.Options) testBroker {
	t.Helper()
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return startWith(t, o)
}

// startWith starts a broker with the log of the options.
func startWith(t *testing.T, o broker.Options) testBroker {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	return startOn(t, listener, o)
}

// startOn starts a broker with a listener and the log of the options.
func startOn(t *testing.T, listener net.Listener, o broker.Options) testBroker {
	t.Helper()
	a := newAuthority(t)
	o.TLS = &tls.Config{Certificates: []tls.Certificate{a.issue("broker")}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
	b := must.Get(broker.Start(listener, o))(t)
	t.Cleanup(func() { _ = b.Close() })
	return testBroker{a, b}
}

// client is a paho client with the messages and errors that it received.
type client struct {
	*paho.Client
	received chan string
	ended    chan error
}

func (r testBroker) dial(certificates ...tls.Certificate) (net.Conn, error) {
	return tls.Dial("tcp", r.Addr(), &tls.Config{RootCAs: r.pool(), ServerName: "broker", Certificates: certificates})
}

func (r testBroker) connect(name string, connect *paho.Connect) (*client, error) {
	return r.connectWith(r.issue(name), name, connect)
}

func (r testBroker) connectWith(certificate tls.Certificate, name string, connect *paho.Connect) (*client, error) {
	conn, err := r.dial(certificate)
	if err != nil {
		return nil, err
	}
	c := &client{received: make(chan string, 100), ended: make(chan error, 10)}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn: packets.NewThreadSafeConn(conn), PacketTimeout: time.Minute,
		OnClientError:      func(err error) { c.ended <- err },
		OnServerDisconnect: func(d *paho.Disconnect) { c.ended <- fmt.Errorf("disconnected with %#x", d.ReasonCode) },
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			c.received <- string(p.Packet.Payload)
			return true, nil
		}},
	})
	if connect == nil {
		connect = &paho.Connect{ClientID: name, KeepAlive: 30, CleanStart: true}
	}
	if _, err := c.Connect(r.t.Context(), connect); err != nil {
		_ = conn.Close()
		return nil, err
	}
	r.t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	return c, nil
}

func (r testBroker) mustConnect(name string) *client {
	r.t.Helper()
	c, err := r.connect(name, nil)
	if err != nil {
		r.t.Fatalf("connect %s: %v", name, err)
	}
	return c
}

func (c *client) subscribe(t *testing.T, filter string, qos byte) error {
	t.Helper()
	ack, err := c.Subscribe(t.Context(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}}})
	if err == nil && ack.Reasons[0] >= 0x80 {
		err = fmt.Errorf("rejected with %#x", ack.Reasons[0])
	}
	return err
}

func (c *client) publish(t *testing.T, topic, payload string) error {
	t.Helper()
	ack, err := c.Publish(t.Context(), &paho.Publish{Topic: topic, QoS: 1, Payload: []byte(payload)})
	if err == nil && ack.ReasonCode >= 0x80 {
		err = fmt.Errorf("rejected with %#x", ack.ReasonCode)
	}
	return err
}

const (
	down1 = "sources/maestro/consumers/mgmt-1/sourceevents"
	up1   = "sources/maestro/consumers/mgmt-1/agentevents"
	down2 = "sources/maestro/consumers/mgmt-2/sourceevents"
	up2   = "sources/maestro/consumers/mgmt-2/agentevents"
)

func TestTopicAuthorization(t *testing.T) {
	r := start(t, broker.Options{})
	cases := map[string]struct {
		client, topic    string
		publish, allowed bool
	}{
		"ServerPublishesDown":       {"maestro-server", down1, true, true},
		"ServerPublishesUp":         {"maestro-server", up1, true, false},
		"ServerSubscribesToAgents":  {"maestro-server", "sources/maestro/consumers/+/agentevents", false, true},
		"ServerSharesSubscription":  {"maestro-server", "$share/g/sources/maestro/consumers/+/agentevents", false, true},
		"ServerSubscribesDown":      {"maestro-server", down1, false, false},
		"ServerSubscribesToAll":     {"maestro-server", "#", false, false},
		"ServerOtherSources":        {"maestro-server", "sources/+/consumers/+/agentevents", false, false},
		"ConsumerSubscribes":        {"mgmt-1", down1, false, true},
		"ConsumerPublishes":         {"mgmt-1", up1, true, true},
		"ConsumerOtherTopic":        {"mgmt-1", down2, false, false},
		"ConsumerAllTopics":         {"mgmt-1", "sources/maestro/consumers/+/sourceevents", false, false},
		"ConsumerPublishesForOther": {"mgmt-1", up2, true, false},
		"ConsumerPublishesDown":     {"mgmt-1", down1, true, false},
		"ConsumerSubscribesUp":      {"mgmt-1", up1, false, false},
		"PrefixOfName":              {"mgmt", down1, false, false},
		"OtherTopic":                {"mgmt-1", "anything", true, false},
		"System":                    {"mgmt-1", "$SYS/#", false, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			client := r.mustConnect(c.client)
			err := error(nil)
			if c.publish {
				err = client.publish(t, c.topic, "x")
			} else {
				err = client.subscribe(t, c.topic, 1)
			}
			if (err == nil) != c.allowed {
				t.Errorf("got error %v, want allowed: %t", err, c.allowed)
			}
		})
	}
}

// TestAllowedTopics uses each channel as each workload, with the names of the server and of a consumer. The workload decides, not
// the name.
func TestAllowedTopics(t *testing.T) {
	r := start(t, broker.Options{})
	var allowed []string
	for _, workload := range mesh.Peers() {
		for _, name := range []string{maestroapi.ServerName, "mgmt-1"} {
			c, err := r.connectWith(r.issueFor(workload, name), name, nil)
			if err != nil {
				continue
			}
			for topic, channel := range map[string]string{down1: maestroapi.ChannelSourceEvents, up1: maestroapi.ChannelAgentEvents} {
				if c.publish(t, topic, "x") == nil {
					allowed = append(allowed, string(workload)+" "+name+" "+mesh.Publish+" "+channel)
				}
				if c.subscribe(t, topic, 1) == nil {
					allowed = append(allowed, string(workload)+" "+name+" "+mesh.Subscribe+" "+channel)
				}
			}
		}
	}
	slices.Sort(allowed)
	want := []string{
		"maestro-agent mgmt-1 publish agentevents", "maestro-agent mgmt-1 subscribe sourceevents",
		"maestro-server maestro-server publish sourceevents", "maestro-server maestro-server subscribe agentevents",
		"maestro-server mgmt-1 publish sourceevents", "maestro-server mgmt-1 subscribe agentevents",
	}
	if !slices.Equal(allowed, want) {
		t.Errorf("allowed are %q, want %q", allowed, want)
	}
}

func TestMessagesAreDelivered(t *testing.T) {
	r := start(t, broker.Options{})
	server, agent, other := r.mustConnect("maestro-server"), r.mustConnect("mgmt-1"), r.mustConnect("mgmt-2")
	for c, filter := range map[*client]string{server: "sources/maestro/consumers/+/agentevents", agent: down1, other: down2} {
		must.Do(t, c.subscribe(t, filter, 1))
	}
	must.Do(t, server.publish(t, down1, "spec"))
	if got := <-agent.received; got != "spec" {
		t.Errorf("the agent received %q", got)
	}
	must.Do(t, agent.publish(t, up1, "status"))
	if got := <-server.received; got != "status" {
		t.Errorf("the server received %q", got)
	}
	if len(other.received) > 0 {
		t.Errorf("another consumer received %q", <-other.received)
	}
}

func TestRejectedConnections(t *testing.T) {
	r := start(t, broker.Options{MaxSessions: 2})
	other := newAuthority(t)

	t.Run("NoCertificate", func(t *testing.T) {
		conn, err := r.dial()
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("got error %v, want one that names the certificate", err)
		}
	})
	t.Run("ForeignCertificate", func(t *testing.T) {
		conn, err := r.dial(other.issue("mgmt-1"))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		if err == nil {
			t.Error("a certificate of another authority was accepted")
		}
	})
	t.Run("Plain", func(t *testing.T) {
		conn := must.Get(net.Dial("tcp", r.Addr()))(t)
		defer conn.Close()
		if _, err := paho.NewClient(paho.ClientConfig{Conn: conn}).Connect(t.Context(), &paho.Connect{ClientID: "mgmt-1", KeepAlive: 30}); err == nil {
			t.Error("a plain connection was accepted")
		}
	})
	t.Run("NoIdentity", func(t *testing.T) {
		if _, err := r.connectWith(r.issueFor("", "mgmt-1"), "mgmt-1", nil); err == nil {
			t.Error("a certificate without a SPIFFE ID was accepted")
		}
	})
	t.Run("NoClientID", func(t *testing.T) {
		if _, err := r.connect("mgmt-1", &paho.Connect{KeepAlive: 30, CleanStart: true}); err == nil {
			t.Error("an empty client id was accepted")
		}
	})
	t.Run("ForeignWill", func(t *testing.T) {
		will := &paho.Connect{ClientID: "w", KeepAlive: 30, CleanStart: true, WillMessage: &paho.WillMessage{Topic: up2, Payload: []byte("x"), QoS: 1}, WillProperties: &paho.WillProperties{}}
		if _, err := r.connect("mgmt-1", will); err == nil {
			t.Error("a will for another consumer's topic was accepted")
		}
	})
	t.Run("TooManySessions", func(t *testing.T) {
		r.mustConnect("mgmt-1")
		r.mustConnect("mgmt-2")
		if _, err := r.connect("mgmt-3", nil); err == nil {
			t.Error("a session above the limit was accepted")
		}
	})
}

func TestClientCannotTakeOverSession(t *testing.T) {
	r := start(t, broker.Options{})
	agent := r.mustConnect("mgmt-1")
	must.Do(t, agent.subscribe(t, down1, 1))
	must.Get(r.connect("mgmt-2", &paho.Connect{ClientID: "mgmt-1", KeepAlive: 30, CleanStart: true}))(t)
	server := r.mustConnect("maestro-server")
	must.Do(t, server.publish(t, down1, "x"))
	select {
	case <-agent.received:
	case err := <-agent.ended:
		t.Errorf("the session was taken over: %v", err)
	}
}

func TestLimits(t *testing.T) {
	r := start(t, broker.Options{})
	t.Run("LargestPacket", func(t *testing.T) {
		if err := r.mustConnect("mgmt-1").publish(t, up1, strings.Repeat("x", broker.MaxPacketBytes-200)); err != nil {
			t.Errorf("a packet within the limit was rejected: %v", err)
		}
	})
	t.Run("TooLargePacket", func(t *testing.T) {
		client := r.mustConnect("mgmt-1")
		ctx, cancel := context.WithCancel(t.Context())
		published := make(chan error, 1)
		go func() {
			_, err := client.Publish(ctx, &paho.Publish{Topic: up1, QoS: 1, Payload: []byte(strings.Repeat("x", broker.MaxPacketBytes))})
			published <- err
		}()
		// The client library waits for an acknowledgement although the broker has closed the connection.
		<-client.ended
		cancel()
		if err := <-published; err == nil {
			t.Error("a packet over the limit was accepted")
		}
	})
	t.Run("QoS2", func(t *testing.T) {
		client := r.mustConnect("mgmt-1")
		if _, err := client.Publish(t.Context(), &paho.Publish{Topic: up1, QoS: 2, Payload: []byte("x")}); err == nil {
			t.Error("QoS 2 was accepted")
		}
	})
	t.Run("Retain", func(t *testing.T) {
		client := r.mustConnect("mgmt-1")
		if _, err := client.Publish(t.Context(), &paho.Publish{Topic: up1, QoS: 1, Retain: true, Payload: []byte("x")}); err == nil {
			t.Error("a retained message was accepted")
		}
	})
}

func TestDropConnections(t *testing.T) {
	r := start(t, broker.Options{})
	one, two := r.mustConnect("mgmt-1"), r.mustConnect("mgmt-2")
	if n := r.DropConnections("mgmt-1"); n != 1 {
		t.Errorf("%d connections dropped", n)
	}
	<-one.ended
	if err := two.publish(t, up2, "x"); err != nil {
		t.Errorf("the other client was dropped as well: %v", err)
	}
	r.DropConnections("")
	<-two.ended
}

// TestInjectFault simulates a publisher that is killed before and after the broker received its message.
func TestInjectFault(t *testing.T) {
	r := start(t, broker.Options{})
	server, agent := r.mustConnect("maestro-server"), r.mustConnect("mgmt-1")
	must.Do(t, agent.subscribe(t, down1, 1))
	publish := func(ctx context.Context, payload string) error {
		_, err := server.Publish(ctx, &paho.Publish{Topic: down1, QoS: 1, Payload: []byte(payload),
			Properties: &paho.PublishProperties{User: paho.UserProperties{{Key: "at", Value: payload}}}})
		return err
	}
	killed := errors.New("killed")
	arrived := make(chan struct{}, 1)
	r.InjectFault(func(m broker.Message) (before, after error) {
		if m.Client != "maestro-server" || m.Topic != down1 {
			t.Errorf("the fault was called with %+v", m)
		}
		switch m.Properties["at"] {
		case "before":
			arrived <- struct{}{}
			return killed, nil
		case "after":
			arrived <- struct{}{}
			return nil, killed
		}
		return nil, nil
	})
	for _, at := range []string{"before", "after"} {
		ctx, cancel := context.WithCancel(t.Context())
		published := make(chan error, 1)
		go func() { published <- publish(ctx, at) }()
		<-arrived
		// The broker processes the packets of a connection in their order, so that an acknowledgement would precede that of the next message.
		if err := publish(t.Context(), "next"); err != nil {
			t.Error(err)
		}
		cancel()
		if <-published == nil {
			t.Errorf("%s: the publish was acknowledged", at)
		}
	}
	if err := publish(t.Context(), "alive"); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"next", "after", "next", "alive"} {
		if got := <-agent.received; got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
}

func TestStartRequiresClientCertificates(t *testing.T) {
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	for name, config := range map[string]*tls.Config{"None": nil, "Optional": {ClientAuth: tls.VerifyClientCertIfGiven}} {
		t.Run(name, func(t *testing.T) {
			if _, err := broker.Start(listener, broker.Options{TLS: config}); err == nil {
				t.Error("Start accepted the configuration")
			}
		})
	}
}

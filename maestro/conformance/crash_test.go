package conformance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
)

// interceptPublishes makes each message that a client publishes a write of the process.
func (r *region) interceptPublishes(p *crashsweep.Process, client string) {
	r.Broker.InjectFault(func(m broker.Message) (before, after error) {
		if m.Client != client {
			return nil, nil
		}
		name := "publish of " + strings.TrimPrefix(m.Properties["ce-type"], eventPrefix)
		if err := p.Point("before the " + name); err != nil {
			return err, nil
		}
		return nil, p.Point("after the " + name)
	})
}

// crashingServer is a server whose writes are commits, MQTT messages and what it sends to a source. The source keeps its state over
// crashes and connects to the current server.
type crashingServer struct {
	*region
	crashsweep.Process
	observer *source
	current  atomic.Pointer[source] // publishes to the newest server

	mu      sync.Mutex
	created map[string]bool // resources whose creation was acknowledged
}

func (r *region) newCrashingServer() *crashingServer {
	r.t.Helper()
	m := &crashingServer{region: r, observer: &source{t: r.t, name: "cluster-service", statuses: map[string]statusEvent{}, seen: map[string][]statusEvent{}, changed: make(chan struct{}, 1)},
		created: map[string]bool{}}
	database := crashsweep.PostgresProxy(r.t, r.Database, &m.Process)
	r.Tune = func(c *app.Config) {
		c.DatabaseURL = database
		c.Resend, c.SafetyPoll = 300*time.Millisecond, 300*time.Millisecond
	}
	r.interceptPublishes(&m.Process, "maestro-server")
	m.Start(m.startInstance)
	r.t.Cleanup(m.Stop)
	return m
}

// startInstance starts a server and lets the source subscribe to it.
func (m *crashingServer) startInstance() (stop func()) {
	s := m.StartServerUnready()
	cs := m.source(s, m.observer.name)
	m.current.Store(cs)
	following := m.Run("the source", func(ctx context.Context) error { m.follow(ctx, cs); return nil })
	return func() {
		following.Stop()
		s.Stop()
		_ = cs.conn.Close()
	}
}

// follow subscribes, resyncs, and stores the received statuses. Each of them is a write of the server.
func (m *crashingServer) follow(ctx context.Context, cs *source) {
	for ctx.Err() == nil {
		stream, err := cs.client.Subscribe(ctx, &pbv1.SubscriptionRequest{Source: cs.name})
		if err == nil {
			_, err = stream.Header()
		}
		if err == nil {
			err = cs.requestStatuses(m.hashes())
		}
		for err == nil {
			var in *pbv1.CloudEvent
			if in, err = stream.Recv(); err != nil || in.Type == "io.open-cluster-management.cloudevents.heartbeat" {
				continue
			}
			if err = m.Point("before sending a status"); err == nil {
				m.observer.take(ctx, in)
				err = m.Point("after sending a status")
			}
		}
		_ = backoff.Sleep(ctx, 20*time.Millisecond)
	}
}

// hashes returns the hash of the last received status of each existing resource.
func (m *crashingServer) hashes() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	hashes := map[string]string{}
	for id := range m.created {
		hashes[id] = "unknown"
		if st := m.observer.status(id); st.Hash != "" {
			hashes[id] = st.Hash
		}
	}
	return hashes
}

// publish sends a request to the current server. The response is a write of the server.
func (m *crashingServer) publish(action string, b bundle) error {
	if _, err := m.current.Load().publish(action, b); err != nil {
		return err
	}
	if err := m.Point("before the response to the " + action); err != nil {
		return err
	}
	m.mu.Lock()
	m.created[b.ID] = true
	m.mu.Unlock()
	_ = m.Point("after the response to the " + action)
	return nil
}

func (m *crashingServer) lastStatus(id string) statusEvent { return m.observer.status(id) }

// crashingAgent is an agent whose writes are changes on the management cluster and reports.
type crashingAgent struct {
	*region
	crashsweep.Process
	cs *source
}

func (r *region) newCrashingAgent(consumer string, cs *source) *crashingAgent {
	r.t.Helper()
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	m := &crashingAgent{region: r, cs: cs}
	config := rest.CopyConfig(cluster(r.t))
	config.Wrap(m.KubernetesTransport)
	r.interceptPublishes(&m.Process, consumer)
	m.Start(func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		a, err := agent.New(agent.Options{Consumer: consumer, MQTTAddress: r.BrokerAddress, MQTTTLS: r.MQTT(consumer), Cluster: config, Log: r.Log.With("process", consumer)})
		if err != nil {
			r.t.Errorf("starting the agent: %v", err)
			return cancel
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			// An instance that crashes while it starts may return that error.
			if err := a.Run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, crashsweep.ErrCrashed) {
				r.t.Errorf("agent stopped: %v", err)
			}
		}()
		return func() { cancel(); <-done }
	})
	r.t.Cleanup(m.Stop)
	return m
}

func (m *crashingAgent) publish(action string, b bundle) error {
	_, err := m.cs.publish(action, b)
	return err
}

func (m *crashingAgent) lastStatus(id string) statusEvent { return m.cs.status(id) }

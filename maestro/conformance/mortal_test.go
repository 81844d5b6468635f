package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/crashsweep"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/broker"
)

// publishesAreWrites makes what a client publishes the process's writes.
func (r *region) publishesAreWrites(p *crashsweep.Process, client string) {
	r.Broker.Fault(func(m broker.Message) (before, after error) {
		if m.Client != client {
			return nil, nil
		}
		what := "publish of " + strings.TrimPrefix(m.Properties["ce-type"], eventPrefix)
		if err := p.Point("before the " + what); err != nil {
			return err, nil
		}
		return nil, p.Point("after the " + what)
	})
}

// mortalServer is a server that dies at what it commits, publishes and tells a source. The source holds on to what it was told,
// and turns to whichever server lives.
type mortalServer struct {
	*region
	crashsweep.Process
	told    *source
	current atomic.Pointer[source] // publishes to the newest server

	mu       sync.Mutex
	answered map[string]bool // of these resources the creation was answered
}

func (r *region) mortalServer() *mortalServer {
	r.t.Helper()
	m := &mortalServer{region: r, told: &source{t: r.t, name: "cluster-service", statuses: map[string]statusEvent{}, seen: map[string][]statusEvent{}, changed: make(chan struct{}, 1)},
		answered: map[string]bool{}}
	database := startDatabaseProxy(r.t, r.Database, &m.Process)
	r.Tune = func(c *app.Config) {
		c.DatabaseURL = database
		c.Resend, c.SafetyPoll = 300*time.Millisecond, 300*time.Millisecond
	}
	r.publishesAreWrites(&m.Process, "maestro-server")
	m.Start(m.begin)
	r.t.Cleanup(m.Stop)
	return m
}

// begin starts a server, and has the source follow it.
func (m *mortalServer) begin() (end func()) {
	s := m.StartServerUnready()
	cs := m.source(s, m.told.name)
	m.current.Store(cs)
	following := m.Run("the source", func(ctx context.Context) error { m.follow(ctx, cs); return nil })
	return func() {
		following.Stop()
		s.Stop()
		_ = cs.conn.Close()
	}
}

// follow subscribes, says what the source holds, and takes in what it is told, which is a write of the server's.
func (m *mortalServer) follow(ctx context.Context, cs *source) {
	for ctx.Err() == nil {
		stream, err := cs.client.Subscribe(ctx, &pbv1.SubscriptionRequest{Source: cs.name})
		if err == nil {
			_, err = stream.Header()
		}
		if err == nil {
			err = cs.askAgain(m.holds())
		}
		for err == nil {
			var in *pbv1.CloudEvent
			if in, err = stream.Recv(); err != nil || in.Type == "io.open-cluster-management.cloudevents.heartbeat" {
				continue
			}
			if err = m.Point("before telling the source"); err == nil {
				m.told.take(ctx, in)
				err = m.Point("after telling the source")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// holds are the resources that the source knows to exist, with what it was last told of each.
func (m *mortalServer) holds() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	hashes := map[string]string{}
	for id := range m.answered {
		hashes[id] = "unknown"
		if st := m.told.status(id); st.Hash != "" {
			hashes[id] = st.Hash
		}
	}
	return hashes
}

// publish asks whoever lives. The answer is a write of the server's.
func (m *mortalServer) publish(action string, b bundle) error {
	if _, err := m.current.Load().publish(action, b); err != nil {
		return err
	}
	if err := m.Point("before answering the " + action); err != nil {
		return err
	}
	m.mu.Lock()
	m.answered[b.ID] = true
	m.mu.Unlock()
	_ = m.Point("after answering the " + action)
	return nil
}

func (m *mortalServer) holdsAs(id string) statusEvent { return m.told.status(id) }

// mortalAgent is an agent that dies at what it writes to the management cluster and reports.
type mortalAgent struct {
	*region
	crashsweep.Process
	cs *source
}

func (r *region) mortalAgent(consumer string, cs *source) *mortalAgent {
	r.t.Helper()
	r.Issue(consumer, mesh.MaestroAgent, consumer)
	m := &mortalAgent{region: r, cs: cs}
	config := rest.CopyConfig(cluster(r.t))
	config.Wrap(m.KubernetesTransport)
	r.publishesAreWrites(&m.Process, consumer)
	m.Start(func() func() {
		ctx, cancel := context.WithCancel(context.Background())
		a, err := agent.New(agent.Options{Consumer: consumer, MQTTAddress: r.BrokerAddress, MQTTTLS: r.MQTT(consumer), Cluster: config, Log: r.Log.With("process", consumer)})
		if err != nil {
			r.t.Errorf("the agent does not start: %v", err)
			return cancel
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			// One that dies as it starts may well say so.
			if err := a.Run(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, crashsweep.ErrCrashed) {
				r.t.Errorf("the agent ended with: %v", err)
			}
		}()
		return func() { cancel(); <-done }
	})
	r.t.Cleanup(m.Stop)
	return m
}

func (m *mortalAgent) publish(action string, b bundle) error {
	_, err := m.cs.publish(action, b)
	return err
}

func (m *mortalAgent) holdsAs(id string) statusEvent { return m.cs.status(id) }

// databaseProxy stands between a process and PostgreSQL. What the process commits passes points: the proxy holds the statement
// back before, and the answer after.
type databaseProxy struct {
	target  string
	process *crashsweep.Process
}

// startDatabaseProxy returns the URL by which the process reaches its database.
func startDatabaseProxy(t testing.TB, database string, process *crashsweep.Process) string {
	t.Helper()
	at, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &databaseProxy{target: at.Host, process: process}
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); sessions.Wait() })
	at.Host = listener.Addr().String()
	return at.String()
}

func (p *databaseProxy) serve(client net.Conn) {
	defer client.Close()
	database, err := net.Dial("tcp", p.target)
	if err != nil || p.process.Crashed() {
		return
	}
	defer database.Close()
	s := &databaseSession{process: p.process, client: client, database: database, statements: map[string]string{}}
	var answering sync.WaitGroup
	answering.Go(func() {
		s.answer()
		_ = client.Close()
		_ = database.Close()
	})
	s.ask()
	_ = client.Close()
	_ = database.Close()
	answering.Wait()
}

// databaseSession is one connection, of which it knows as much of the protocol (PostgreSQL, chapter Message Formats) as it takes
// to find what is committed.
type databaseSession struct {
	process          *crashsweep.Process
	client, database net.Conn
	statements       map[string]string // prepared, by name

	mu        sync.Mutex
	inBlock   bool     // of statements that are committed together
	changes   []string // what the block has changed
	committed string   // what is being committed now
}

var (
	// changing finds what a statement changes that others can see.
	changing = regexp.MustCompile(`(?i)\b(insert into [a-z_]+|delete from [a-z_]+|update [a-z_]+|create table|pg_notify)`)
	// locking only sounds like it.
	locking = regexp.MustCompile(`(?i)\b(for (no key )?update|do update set)\b`)
)

// ask passes on what the client sends, in portions that the database answers as one.
func (s *databaseSession) ask() {
	first, err := message(s.client, false)
	if err != nil {
		return
	}
	portion := first
	var executed []string
	for flush := true; ; flush = false {
		if flush {
			if _, err := s.database.Write(portion); err != nil {
				return
			}
			portion = nil
		}
		m, err := message(s.client, true)
		if err != nil {
			return
		}
		portion = append(portion, m...)
		text := func(field int) string {
			return string(bytes.SplitN(m[5:], []byte{0}, field+2)[field])
		}
		switch m[0] {
		case 'P': // Parse: name, statement
			s.statements[text(0)] = text(1)
			continue
		case 'B': // Bind: portal, name
			executed = append(executed, s.statements[text(1)])
			continue
		case 'Q': // Query
			executed = append(executed, text(0))
		case 'S', 'H', 'p', 'X': // Sync, Flush, a password, Terminate
		default:
			continue
		}
		if m[0] == 'Q' || m[0] == 'S' {
			if s.begin(executed) != nil {
				return
			}
			executed = nil
		}
		if _, err := s.database.Write(portion); err != nil {
			return
		}
		portion = nil
	}
}

// begin is a point if the statements commit something.
func (s *databaseSession) begin(statements []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process.Crashed() {
		return crashsweep.ErrCrashed
	}
	var changes []string
	commit := false
	for _, statement := range statements {
		commit = commit || strings.EqualFold(strings.TrimSpace(statement), "commit")
		changes = append(changes, changing.FindAllString(locking.ReplaceAllString(statement, ""), -1)...)
	}
	s.changes = append(s.changes, changes...)
	if s.inBlock && !commit || len(s.changes) == 0 {
		return nil
	}
	s.committed, s.changes = strings.Join(slices.Compact(s.changes), ", "), nil
	return s.process.Point("before the commit of " + s.committed)
}

// answer passes on what the database answers.
func (s *databaseSession) answer() {
	var held []byte
	for {
		m, err := message(s.database, true)
		if err != nil {
			return
		}
		s.mu.Lock()
		held = append(held, m...)
		if m[0] == 'Z' { // ReadyForQuery: with what state of a block
			s.inBlock = m[5] != 'I'
			if !s.inBlock {
				s.changes = nil
			}
			if s.committed != "" {
				what := s.committed
				s.committed = ""
				err = s.process.Point("after the commit of " + what)
			}
		}
		pass := m[0] == 'Z' || s.committed == ""
		s.mu.Unlock()
		if err == nil && pass {
			_, err = s.client.Write(held)
			held = nil
		}
		if err != nil {
			return
		}
	}
}

// message reads one message; the first of a connection has no type.
func message(from io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	if length < 0 || length > 64<<20 {
		return nil, errors.New("this is not PostgreSQL's protocol")
	}
	whole := append(head, make([]byte, length)...)
	_, err := io.ReadFull(from, whole[len(head):])
	return whole, err
}

// Package server puts the Maestro server together: the store, the MQTT link, deliveries, the status hub and the two
// APIs. It starts whether or not its database and broker are there, says on /readyz which it waits for, and serves as
// soon as it can. Any number of replicas may run on one database; they share the consumers out among themselves.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/delivery"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/fanout"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/restapi"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/sourceapi"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// maxMessage bounds a gRPC message in either direction. Nothing larger than an MQTT message can be delivered.
const maxMessage = 4 << 20

// restGrace is how long requests under way may take when the server ends.
const restGrace = 5 * time.Second

// Config of a server.
type Config struct {
	// DatabaseURL is the PostgreSQL connection string. It holds a password: never log it.
	DatabaseURL string
	// MQTTAddress is the broker's host:port, MQTTTLS the client's side of the connection.
	MQTTAddress string
	MQTTTLS     *tls.Config
	// GRPC and REST listen for sources and people; TLS is the server's side for both.
	GRPC, REST net.Listener
	TLS        *tls.Config
	// SourceID is the server's name in topics and events; empty means maestro.
	SourceID string
	// MaxConnections bounds the connections to PostgreSQL; 0 means 20.
	MaxConnections int32
	// Heartbeat, Resend, MaxResend, SafetyPoll, Sweep, ResyncWindow and TombstoneLife are documented with the flags;
	// 0 takes the default.
	Heartbeat, Resend, MaxResend, SafetyPoll, Sweep, TombstoneLife time.Duration
	ResyncWindow                                                   int

	Registry prometheus.Registerer
	Log      *slog.Logger
}

// Server is one replica.
type Server struct {
	c          Config
	id         string
	store      *store.Store
	link       *mqttlink.Link
	dispatcher *delivery.Dispatcher
	hub        *fanout.Hub
	migrated   atomic.Bool
}

// New puts a server together without connecting to anything.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.SourceID == "" {
		c.SourceID = "maestro"
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = 20
	}
	if c.TombstoneLife <= 0 {
		c.TombstoneLife = 30 * 24 * time.Hour
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	s := &Server{c: c, id: uuid.NewString()}
	var err error
	if s.store, err = store.Open(ctx, c.DatabaseURL, c.MaxConnections, c.Log); err != nil {
		return nil, err
	}
	s.hub = fanout.New(s.store, s.id, c.Sweep, c.Registry, c.Log)
	s.link = mqttlink.New(mqttlink.Options{
		Address: c.MQTTAddress, TLS: c.MQTTTLS,
		// Replicas hold a session each, under the one name of the certificate.
		ClientID:  "maestro-server-" + s.id,
		Subscribe: []string{maestroapi.AgentEventsTopic(c.SourceID, "+")},
		Receive: func(ctx context.Context, topic string, evt *cloudevents.Event) {
			s.dispatcher.Receive(ctx, topic, evt)
		},
		Invalid: func(topic string, err error) { s.dispatcher.Invalid(topic, err) },
		Up:      func(ctx context.Context) { s.dispatcher.LinkUp(ctx) },
		Log:     c.Log,
	})
	s.dispatcher = delivery.New(delivery.Options{
		Store: s.store, Link: s.link, Announce: s.hub.Announce, SourceID: c.SourceID,
		Resend: c.Resend, MaxResend: c.MaxResend, SafetyPoll: c.SafetyPoll, ResyncWindow: c.ResyncWindow,
		Registry: c.Registry, Log: c.Log,
	})
	c.Registry.MustRegister(&backlog{store: s.store})
	return s, nil
}

// Store gives the store to tests and measurements.
func (s *Server) Store() *store.Store { return s.store }

// Dispatcher gives the dispatcher to tests.
func (s *Server) Dispatcher() *delivery.Dispatcher { return s.dispatcher }

// Checks are what the replica needs to be ready, by name.
func (s *Server) Checks() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"database": func(ctx context.Context) error {
			if err := s.store.Ping(ctx); err != nil {
				return errors.New("PostgreSQL cannot be reached")
			}
			if !s.migrated.Load() {
				return errors.New("the schema is being brought up to date")
			}
			return nil
		},
		"mqtt":     s.link.Ready,
		"delivery": s.dispatcher.Ready,
	}
}

// Run serves until the context ends, and returns once everything it started has.
func (s *Server) Run(parent context.Context) error {
	defer s.store.Close()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	failed := make(chan error, 8)
	var running sync.WaitGroup
	start := func(name string, run func(context.Context) error) {
		running.Add(1)
		go func() {
			defer running.Done()
			if err := run(ctx); err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		}()
	}

	start("grpc", s.serveGRPC)
	start("rest", s.serveREST)
	start("database", func(ctx context.Context) error {
		if err := s.migrate(ctx); err != nil {
			return err
		}
		start("mqtt", s.link.Run)
		start("delivery", s.dispatcher.Run)
		start("hub", s.hub.Run)
		start("news", s.listen)
		start("tombstones", s.prune)
		return nil
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	running.Wait()
	return err
}

// migrate waits for the database and brings its schema up to date.
func (s *Server) migrate(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		err := s.store.Migrate(ctx)
		if err == nil {
			s.migrated.Store(true)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if !store.IsUnavailable(err) {
			return fmt.Errorf("bring the schema up to date: %w", err)
		}
		s.c.Log.Warn("waiting for the database", "error", err, "retryIn", pause.String())
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(pause*2, 5*time.Second)
	}
}

func (s *Server) serveGRPC(ctx context.Context) error {
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(s.c.TLS)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(1000), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
	sourceapi.New(sourceapi.Options{
		Store: s.store, Hub: s.hub, Wake: s.dispatcher.Wake, SourceID: s.c.SourceID, Heartbeat: s.c.Heartbeat, Log: s.c.Log,
	}).Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.c.GRPC) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving %s: %w", s.c.GRPC.Addr(), err)
	case <-ctx.Done():
	}
	// Subscriptions last for ever, so there is nothing to be gained by waiting for them.
	server.Stop()
	<-served
	return nil
}

func (s *Server) serveREST(ctx context.Context) error {
	server := &http.Server{
		Handler: restapi.Handler(restapi.Options{
			Store: s.store, Registered: s.dispatcher.Rebalance, Log: s.c.Log,
			Deleted: func(consumer string) {
				s.dispatcher.Wake(consumer)
				s.hub.Tell(store.News{Consumers: []string{consumer}})
			},
		}),
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(s.c.Log.Handler(), slog.LevelDebug),
	}
	return process.ServeHTTP(ctx, server, tls.NewListener(s.c.REST, s.c.TLS), restGrace)
}

// listen hears the other replicas' news. After a break it does not know what it missed, so it looks.
func (s *Server) listen(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.store.Listen(ctx, s.id, func() {
			s.dispatcher.Rebalance()
			for _, consumer := range s.dispatcher.Serving() {
				s.dispatcher.Wake(consumer)
			}
		}, func(news store.News) {
			for _, consumer := range news.Consumers {
				s.dispatcher.Wake(consumer)
			}
			s.hub.Hear(ctx, news)
		})
		if ctx.Err() == nil {
			s.c.Log.Warn("not listening to the other replicas; listening again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

// prune forgets old tombstones, a few at a time.
func (s *Server) prune(ctx context.Context) error {
	for {
		n, err := s.store.PruneTombstones(ctx, s.c.TombstoneLife, 1000)
		pause := 10 * time.Minute
		if err != nil && ctx.Err() == nil {
			s.c.Log.Warn("tombstones not pruned", "error", err)
		}
		if n == 1000 {
			pause = time.Second
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

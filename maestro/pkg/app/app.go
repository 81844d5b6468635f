// Package app is the wiring of the Maestro server: the store, the MQTT link, the deliveries, the status hub and the two APIs.
// A server starts while its database or broker is unreachable, reports that on /readyz, and serves as soon as it can. Any
// number of replicas use one database and distribute the consumers among themselves.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/delivery"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/restapi"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/sourceapi"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// maxMessage bounds a gRPC message in either direction. Nothing larger than an MQTT message can be delivered.
const maxMessage = 4 << 20

// restShutdownTimeout bounds the remaining REST requests when the server stops, and grpcShutdownTimeout the remaining calls.
const restShutdownTimeout, grpcShutdownTimeout = 5 * time.Second, 5 * time.Second

// Config configures a Server.
type Config struct {
	// DatabaseURL is the PostgreSQL connection string. It contains a password: do not log it.
	DatabaseURL            string
	DatabaseAuthentication postgres.Authentication
	// AwaitMigration makes the server wait until the command migrate has migrated the database, instead of migrating it.
	AwaitMigration bool
	// MQTTAddress is the host:port of the broker. MQTTTLS is the TLS configuration of the client.
	MQTTAddress string
	MQTTTLS     *tls.Config
	// GRPC and REST are the listeners of the two APIs. Both servers use the transport, and refuse calls that no rule allows.
	GRPC, REST net.Listener
	Transport  mesh.Transport
	Rules      []mesh.Rule
	// SourceID is the name of the server in topics and events; empty means maestro.
	SourceID string
	// Consumers are the names of consumers that the server registers at its start. It never deletes a consumer, so a name that is missing by
	// mistake loses nothing. store.CheckConsumerName must accept the names.
	Consumers []string
	// MaxConnections bounds the connections to PostgreSQL; 0 means 20.
	MaxConnections int32
	// Heartbeat, Resend, MaxResend, SafetyPoll, Sweep, ResyncWindow and TombstoneAge are described by the flags; 0 means
	// the default.
	Heartbeat, Resend, MaxResend, SafetyPoll, Sweep, TombstoneAge time.Duration
	ResyncWindow                                                  int

	// Refused records the calls that no rule allows; nil means that they are only logged.
	Refused func(context.Context, mesh.Refusal)

	// Traces creates the spans of publishes with a trace context; nil creates none.
	Traces   *tracing.Tracing
	Registry prometheus.Registerer
	Log      *slog.Logger
}

// listenInterval is the mean pause before a broken connection for notifications is replaced.
const listenInterval = time.Second

// Old tombstones are deleted in batches, with a pause of pruneBatchPause between full batches and of pruneInterval otherwise.
const (
	pruneBatch      = 1000
	pruneBatchPause = time.Second
	pruneInterval   = 10 * time.Minute
)

// Server is one replica of the server.
type Server struct {
	c          Config
	id         string
	store      *store.Store
	link       *mqttlink.Link
	dispatcher *delivery.Dispatcher
	hub        *sourceapi.Hub
	authorizer *mesh.Authorizer
	prepared   atomic.Bool
}

// New returns a server. It does not connect to the database or the broker.
func New(ctx context.Context, c Config) (*Server, error) {
	if c.SourceID == "" {
		c.SourceID = "maestro"
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = 20
	}
	if c.TombstoneAge <= 0 {
		c.TombstoneAge = 30 * 24 * time.Hour
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	s := &Server{c: c, id: uuid.NewString(), authorizer: mesh.NewAuthorizer(mesh.MaestroServer, c.Rules, c.Log).WithRefusals(c.Refused)}
	var err error
	if s.store, err = store.Open(ctx, c.DatabaseURL, c.DatabaseAuthentication, c.MaxConnections, c.Log); err != nil {
		return nil, err
	}
	s.hub = sourceapi.NewHub(s.store, s.id, c.Sweep, c.Registry, c.Log)
	s.link = mqttlink.New(mqttlink.Options{
		Address: c.MQTTAddress, TLS: c.MQTTTLS,
		// All replicas have the same certificate; each has a session of its own.
		ClientID:  maestroapi.ServerName + "-" + s.id,
		Subscribe: []string{maestroapi.AgentEventsTopic(c.SourceID, "+")},
		Receive: func(ctx context.Context, topic string, evt *cloudevents.Event) {
			s.dispatcher.Receive(ctx, topic, evt)
		},
		Invalid: func(topic string, err error) { s.dispatcher.HandleInvalid(topic, err) },
		Up:      func(ctx context.Context) { s.dispatcher.LinkUp(ctx) },
		Log:     c.Log,
	})
	s.dispatcher = delivery.New(delivery.Options{
		Store: s.store, Link: s.link, Announce: s.hub.Announce, SourceID: c.SourceID,
		Resend: c.Resend, MaxResend: c.MaxResend, SafetyPoll: c.SafetyPoll, ResyncWindow: c.ResyncWindow,
		Traces: c.Traces, Registry: c.Registry, Log: c.Log,
	})
	c.Registry.MustRegister(&backlog{store: s.store})
	return s, nil
}

// Store returns the store, for tests and benchmarks.
func (s *Server) Store() *store.Store { return s.store }

// Dispatcher returns the dispatcher, for tests.
func (s *Server) Dispatcher() *delivery.Dispatcher { return s.dispatcher }

// Checks returns the readiness checks by name of the dependency.
func (s *Server) Checks() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"database": func(ctx context.Context) error {
			switch err := s.store.Ping(ctx); {
			case errors.Is(err, disk.ErrFull):
				return err
			case err != nil:
				return errors.New("PostgreSQL is unreachable")
			}
			if !s.prepared.Load() {
				return errors.New("the database is not migrated yet, or the consumers are not registered yet")
			}
			return nil
		},
		"mqtt":     s.link.Ready,
		"delivery": s.dispatcher.Ready,
	}
}

// Run serves until parent ends and returns when everything that it started has stopped.
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
		if err := s.prepare(ctx); err != nil {
			return err
		}
		start("mqtt", s.link.Run)
		start("delivery", s.dispatcher.Run)
		start("hub", s.hub.Run)
		start("notifications", s.followNotifications)
		start("tombstones", s.pruneTombstones)
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

// prepare migrates the database, or waits until it is migrated, and registers the consumers. It retries while the database is unavailable.
func (s *Server) prepare(ctx context.Context) error {
	retries := backoff.New(100*time.Millisecond, 5*time.Second)
	for {
		err := s.prepareOnce(ctx)
		if err == nil {
			s.prepared.Store(true)
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if !store.IsUnavailable(err) && !postgres.IsOutdated(err) {
			return err
		}
		pause := retries.Next()
		s.c.Log.WarnContext(ctx, "waiting for the database", logkey.Error, err, logkey.RetryIn, pause.String())
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

func (s *Server) prepareOnce(ctx context.Context) error {
	schema := s.store.Migrate
	if s.c.AwaitMigration {
		schema = s.store.CheckMigrated
	}
	if err := schema(ctx); err != nil {
		return err
	}
	created, err := s.store.EnsureConsumers(ctx, s.c.Consumers)
	for _, name := range created {
		s.c.Log.InfoContext(ctx, "registered consumer", logkey.Consumer, name)
	}
	return err
}

func (s *Server) serveGRPC(ctx context.Context) error {
	calls := grpcserver.NewMetrics(s.c.Registry)
	server := grpcserver.New(append(slices.Concat(calls.ServerOptions(), s.authorizer.ServerOptions(s.c.Transport)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpcserver.EndStreams(ctx),
	)...)
	sourceapi.New(sourceapi.Options{
		Store: s.store, Hub: s.hub, Wake: s.dispatcher.Wake, SourceID: s.c.SourceID, Heartbeat: s.c.Heartbeat, Traces: s.c.Traces, Log: s.c.Log,
	}).Register(server)
	grpcserver.RegisterHealth(server)
	calls.Initialize(server)
	return grpcserver.Serve(ctx, server, s.c.GRPC, grpcShutdownTimeout)
}

func (s *Server) serveREST(ctx context.Context) error {
	server := process.NewHTTPServer(process.Calls, s.authorizer.Handler(s.c.Transport, restapi.Handler(restapi.Options{
		Store: s.store, Registered: s.dispatcher.Rebalance, Log: s.c.Log,
		Deleted: func(consumer string) {
			s.dispatcher.Wake(consumer)
			s.hub.Notify(store.Notification{Consumers: []string{consumer}})
		},
	})), s.c.Log)
	return process.ServeHTTP(ctx, server, s.authorizer.Listener(s.c.Transport, s.c.REST), restShutdownTimeout)
}

// followNotifications wakes the deliveries and the hub on notifications of other replicas. After each connect it wakes all
// deliveries, because notifications may have been lost.
func (s *Server) followNotifications(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.store.Listen(ctx, s.id, func() {
			s.dispatcher.Rebalance()
			for _, consumer := range s.dispatcher.Serving() {
				s.dispatcher.Wake(consumer)
			}
		}, func(notification store.Notification) {
			for _, consumer := range notification.Consumers {
				s.dispatcher.Wake(consumer)
			}
			s.hub.HandleNotification(ctx, notification)
		})
		if ctx.Err() == nil && !errors.Is(err, postgres.ErrCertificateEnds) {
			s.c.Log.WarnContext(ctx, "connection for notifications lost", logkey.Error, err)
			_ = backoff.Sleep(ctx, backoff.Jitter(listenInterval))
		}
	}
	return nil
}

// pruneTombstones deletes old tombstones until ctx ends.
func (s *Server) pruneTombstones(ctx context.Context) error {
	for {
		n, err := s.store.PruneTombstones(ctx, s.c.TombstoneAge, pruneBatch)
		if err != nil && ctx.Err() == nil {
			s.c.Log.WarnContext(ctx, "deleting old tombstones failed", logkey.Error, err)
		}
		pause := pruneInterval
		if n == pruneBatch {
			pause = pruneBatchPause
		}
		if backoff.Sleep(ctx, pause) != nil {
			return nil
		}
	}
}

package app

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/store"
)

// Options are the flags of maestro-server.
type Options struct {
	Audit   writer.Options
	Tracing tracing.Options

	grpc, rest                      string
	mesh                            mesh.Options
	database                        postgres.Settings
	migrate                         bool
	mqttAddress, mqttIdentity       string
	sourceID, consumers             string
	maxConnections, window          int
	heartbeat, resend, maxResend    time.Duration
	safetyPoll, sweep, tombstoneAge time.Duration
}

// AddFlags registers the options with flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Audit.AddFlags(flags)
	o.Tracing.AddFlags(flags)
	flags.StringVar(&o.grpc, "listen-grpc", "127.0.0.1:8090", "`address` of the CloudEvents gRPC service")
	flags.StringVar(&o.rest, "listen-rest", "127.0.0.1:8000", "`address` of the REST API")
	o.mesh.AddFlags(flags)
	o.database.AddFlags(flags)
	flags.BoolVar(&o.migrate, "migrate", true, "migrate the database at start, which its role must own; false waits until the command `migrate` has done so")
	flags.StringVar(&o.mqttAddress, "mqtt-address", "", "`host:port` of the MQTT broker")
	flags.StringVar(&o.mqttIdentity, "mqtt-identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt for the MQTT broker; without ca.crt, the authorities of the system are trusted")
	flags.StringVar(&o.sourceID, "source-id", "maestro", "`name` of the server in MQTT topics and events")
	flags.StringVar(&o.consumers, "consumers", "", "`names` of management clusters, separated by commas, that are registered as consumers at start; consumers that are not in the list remain")
	flags.IntVar(&o.maxConnections, "database-connections", 20, "maximum number of connections to PostgreSQL")
	flags.IntVar(&o.window, "resync-window", 32, "maximum number of unconfirmed deliveries of a resync per consumer")
	flags.DurationVar(&o.heartbeat, "heartbeat", 10*time.Second, "interval of the heartbeats to status subscribers")
	flags.DurationVar(&o.resend, "resend-after", 15*time.Second, "longest time before an unconfirmed delivery is first sent again; doubles with each attempt")
	flags.DurationVar(&o.maxResend, "resend-at-most", 5*time.Minute, "bound of the time before an unconfirmed delivery is sent again")
	flags.DurationVar(&o.safetyPoll, "safety-poll", 5*time.Second, "interval at which the outbox is read without a notification")
	flags.DurationVar(&o.sweep, "status-sweep", 2*time.Second, "interval at which statuses are read from the database without a notification")
	flags.DurationVar(&o.tombstoneAge, "tombstone-age", 30*24*time.Hour, "time for which confirmed deletions are stored")
}

// Validate returns an error that names the first required flag without a value, or a flag with an unsupported value.
func (o *Options) Validate() error {
	err := cmp.Or(process.Required("mqtt-address", o.mqttAddress), process.Required("mqtt-identity-dir", o.mqttIdentity),
		o.mesh.Validate(), o.Audit.Validate(), o.Tracing.Validate(), o.database.Validate())
	for _, name := range o.consumerNames() {
		err = cmp.Or(err, process.Named("consumers", store.CheckConsumerName(name)))
	}
	return err
}

// Main is the program maestro-server. It reads the arguments of the process.
func Main() {
	postgrescommand.Main("maestro-server", store.Migrations(), os.Args[1:])
	var options Options
	process.Main("maestro-server", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, &options) })
}

// consumerNames returns the names in --consumers.
func (o *Options) consumerNames() []string {
	if o.consumers == "" {
		return nil
	}
	return strings.Split(o.consumers, ",")
}

// Run runs a replica of the server until ctx ends.
func Run(ctx context.Context, p *process.Process, o *Options) error {
	transport, err := o.mesh.Load(mesh.MaestroServer)
	if err != nil {
		return err
	}
	// Without a certificate, identity is nil.
	identity, _ := transport.(*mesh.Identity)
	url, authentication, err := o.database.Read(identity)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	mqttIdentity, err := mqttlink.LoadIdentity(o.mqttIdentity)
	if err != nil {
		return fmt.Errorf("--mqtt-identity-dir: %w", err)
	}
	mqtt, err := mqttIdentity.ClientTLS(o.mqttAddress)
	if err != nil {
		return fmt.Errorf("--mqtt-address: %w", err)
	}
	grpcListener, err := net.Listen("tcp", o.grpc)
	if err != nil {
		return fmt.Errorf("--listen-grpc: %w", err)
	}
	defer grpcListener.Close()
	restListener, err := net.Listen("tcp", o.rest)
	if err != nil {
		return fmt.Errorf("--listen-rest: %w", err)
	}
	defer restListener.Close()

	refused, stopAudit, err := refusals.Start(ctx, &o.Audit, string(mesh.MaestroServer), p.Log, p.Metrics)
	if err != nil {
		return err
	}
	// The audit ends after the last call.
	defer stopAudit()

	traces, err := tracing.New(ctx, p.Name, o.Tracing, p.Metrics)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer traces.Flush(ctx)
	s, err := New(ctx, Config{
		DatabaseURL: url, DatabaseAuthentication: authentication, AwaitMigration: !o.migrate, MaxConnections: int32(o.maxConnections),
		MQTTAddress: o.mqttAddress, MQTTTLS: mqtt, SourceID: o.sourceID, Consumers: o.consumerNames(),
		GRPC: grpcListener, REST: restListener, Transport: transport, Rules: mesh.Rules(),
		Heartbeat: o.heartbeat, Resend: o.resend, MaxResend: o.maxResend, SafetyPoll: o.safetyPoll, Sweep: o.sweep,
		ResyncWindow: o.window, TombstoneAge: o.tombstoneAge,
		Refused: refused.Call, Traces: traces, Registry: p.Metrics, Log: p.Log,
	})
	if err != nil {
		return err
	}
	for name, check := range s.Checks() {
		p.Ready(name, check)
	}
	p.Log.Info("serving gRPC", logkey.Address, grpcListener.Addr().String())
	p.Log.Info("serving REST", logkey.Address, restListener.Addr().String())
	if err := s.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

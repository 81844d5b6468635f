// Command maestro-server is the Maestro server: it takes resources from sources over gRPC, keeps them in PostgreSQL and
// brings them to the agents of the management clusters over MQTT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/server"
)

type options struct {
	process                         process.Options
	grpc, rest, identity            string
	databaseURLFile                 string
	mqttAddress, mqttIdentity       string
	sourceID                        string
	maxConnections, window          int
	heartbeat, resend, maxResend    time.Duration
	safetyPoll, sweep, tombstoneAge time.Duration
}

func main() {
	var o options
	flags := flag.NewFlagSet("maestro-server", flag.ExitOnError)
	o.process.AddFlags(flags)
	flags.StringVar(&o.grpc, "listen-grpc", "127.0.0.1:8090", "`address` of the CloudEvents gRPC service")
	flags.StringVar(&o.rest, "listen-rest", "127.0.0.1:8000", "`address` of the REST API")
	flags.StringVar(&o.identity, "identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt: the server's SPIFFE identity")
	flags.StringVar(&o.databaseURLFile, "database-url-file", "", "`file` that holds the PostgreSQL URL")
	flags.StringVar(&o.mqttAddress, "mqtt-address", "", "`host:port` of the MQTT broker")
	flags.StringVar(&o.mqttIdentity, "mqtt-identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt for the MQTT broker")
	flags.StringVar(&o.sourceID, "source-id", "maestro", "the server's `name` in MQTT topics and events")
	flags.IntVar(&o.maxConnections, "database-connections", 20, "at most so many connections to PostgreSQL")
	flags.IntVar(&o.window, "resync-window", 32, "at most so many deliveries of a resync may be unconfirmed at a time, per consumer")
	flags.DurationVar(&o.heartbeat, "heartbeat", 10*time.Second, "how often status subscribers get a sign of life")
	flags.DurationVar(&o.resend, "resend-after", 15*time.Second, "when an unconfirmed delivery is sent again the first time; the pause doubles")
	flags.DurationVar(&o.maxResend, "resend-at-most", 5*time.Minute, "the longest pause before an unconfirmed delivery is sent again")
	flags.DurationVar(&o.safetyPoll, "safety-poll", 5*time.Second, "how often the outbox is looked at when nothing says that there is something")
	flags.DurationVar(&o.sweep, "status-sweep", 2*time.Second, "how often the database is looked at for statuses that nobody told of")
	flags.DurationVar(&o.tombstoneAge, "tombstone-age", 30*24*time.Hour, "how long confirmed deletions are remembered")
	process.Parse(flags, os.Args[1:], func() error {
		return process.Required(flags, "identity-dir", "database-url-file", "mqtt-address", "mqtt-identity-dir")
	})
	process.Run("maestro-server", o.process, o.run)
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	url, err := os.ReadFile(o.databaseURLFile)
	if err != nil {
		return fmt.Errorf("--database-url-file: %w", err)
	}
	identity, err := mesh.LoadIdentity(o.identity)
	if err != nil {
		return fmt.Errorf("--identity-dir: %w", err)
	}
	mqtt, err := mqttlink.ClientTLS(o.mqttIdentity, o.mqttAddress)
	if err != nil {
		return fmt.Errorf("--mqtt-identity-dir: %w", err)
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

	s, err := server.New(ctx, server.Config{
		DatabaseURL: strings.TrimSpace(string(url)), MaxConnections: int32(o.maxConnections),
		MQTTAddress: o.mqttAddress, MQTTTLS: mqtt, SourceID: o.sourceID,
		GRPC: grpcListener, REST: restListener, TLS: identity.ServerTLS(mesh.AllowedClients(mesh.MaestroServer)...),
		Heartbeat: o.heartbeat, Resend: o.resend, MaxResend: o.maxResend, SafetyPoll: o.safetyPoll, Sweep: o.sweep,
		ResyncWindow: o.window, TombstoneLife: o.tombstoneAge,
		Registry: p.Metrics, Log: p.Log,
	})
	if err != nil {
		return err
	}
	for name, check := range s.Checks() {
		p.Ready(name, check)
	}
	p.Log.Info("serving", "grpc", grpcListener.Addr().String(), "rest", restListener.Addr().String())
	if err := s.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

package agent

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// Flags are the flags of the program maestro-agent.
type Flags struct {
	tracing                   tracing.Options
	kubeconfig, consumer      string
	mqttAddress, mqttIdentity string
	sourceID, crds            string
	secretsKey                string
	workers, maxFeedback      int
	statusPoll, heartbeat     time.Duration
}

// Main is the program maestro-agent. It reads the arguments of the process.
func Main() {
	var o Flags
	process.Main("maestro-agent", &o, o.run)
}

// AddFlags registers the flags.
func (o *Flags) AddFlags(flags *flag.FlagSet) {
	o.tracing.AddFlags(flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the kubeconfig of the management cluster; empty uses the service account of the pod")
	flags.StringVar(&o.consumer, "consumer-name", "", "`name` of the management cluster at the server")
	flags.StringVar(&o.mqttAddress, "mqtt-address", "", "`host:port` of the MQTT broker")
	flags.StringVar(&o.mqttIdentity, "mqtt-identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt for the MQTT broker; without ca.crt, the authorities of the system are trusted")
	flags.StringVar(&o.secretsKey, "secrets-key-file", "", "`file` with the private Tink keyset that opens Secrets; Secrets that are not sealed are refused")
	flags.StringVar(&o.sourceID, "source-id", "maestro", "`name` of the server in MQTT topics")
	flags.StringVar(&o.crds, "install-crds", "", "`folder` of CRDs to install at start; empty installs none")
	flags.IntVar(&o.workers, "workers", 16, "number of workers per controller")
	flags.IntVar(&o.maxFeedback, "max-feedback-bytes", DefaultMaxFeedbackBytes, "largest feedback value that is raw JSON, in bytes")
	flags.DurationVar(&o.statusPoll, "status-poll", 10*time.Minute, "interval at which objects without feedback rules are read; others are watched")
	flags.DurationVar(&o.heartbeat, "heartbeat", 10*time.Second, "interval of the heartbeats to the server")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Flags) Validate() error {
	return cmp.Or(
		process.Required("consumer-name", o.consumer),
		process.Required("mqtt-address", o.mqttAddress),
		process.Required("mqtt-identity-dir", o.mqttIdentity),
		process.Required("secrets-key-file", o.secretsKey),
		o.tracing.Validate(),
	)
}

func (o *Flags) run(ctx context.Context, p *process.Process) error {
	// The library of the work agent uses klog and logs each apply at level info.
	klog.SetSlogLogger(slog.New(demoted{p.Log.Handler()}))
	cluster, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	identity, err := mqttlink.LoadIdentity(o.mqttIdentity)
	if err != nil {
		return fmt.Errorf("--mqtt-identity-dir: %w", err)
	}
	p.Metrics.MustRegister(identity.Collector())
	mqtt, err := identity.ClientTLS(o.mqttAddress)
	if err != nil {
		return fmt.Errorf("--mqtt-address: %w", err)
	}
	keys, err := seal.LoadPrivate(o.secretsKey)
	if err != nil {
		return fmt.Errorf("--secrets-key-file: %w", err)
	}
	p.Metrics.MustRegister(keyfile.Collector("secrets-key-file", keys.Ring))
	traces, err := tracing.New(ctx, p.Name, o.tracing, p.Metrics)
	if err != nil {
		return fmt.Errorf("--otlp-endpoint: %w", err)
	}
	defer traces.Flush(ctx)
	a, err := New(Options{
		Consumer: o.consumer, SourceID: o.sourceID, MQTTAddress: o.mqttAddress, MQTTTLS: mqtt, Cluster: cluster,
		SecretKeys: keys, CRDDir: o.crds, Workers: o.workers, MaxFeedbackBytes: int32(o.maxFeedback), StatusPoll: o.statusPoll, Heartbeat: o.heartbeat,
		Traces: traces, Registry: p.Metrics, Log: p.Log,
	})
	if err != nil {
		return err
	}
	p.Ready("mqtt", a.Ready)
	p.Ready("cluster", a.ClusterReady)
	return a.Run(ctx)
}

// demoted logs records below the level warning at level debug.
type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, level slog.Level) bool {
	return d.Handler.Enabled(ctx, demote(level))
}

func (d demoted) Handle(ctx context.Context, record slog.Record) error {
	record.Level = demote(record.Level)
	return d.Handler.Handle(ctx, record)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}

func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }

func demote(level slog.Level) slog.Level {
	if level < slog.LevelWarn {
		return min(level, slog.LevelDebug)
	}
	return level
}

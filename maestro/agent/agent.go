// Package agent applies resources to a management cluster and reports their status. It runs the unchanged controllers of the Open
// Cluster Management work agent, which apply manifests, maintain AppliedManifestWorks, read feedback and delete objects. It
// replaces what surrounds them: the store of works, the watches for feedback and the connection to the broker. So the agent
// implements the published protocol and applies like the published agent, but without its polling and rate limits.
//
// In Maestro, only this package uses a client of a management cluster. Main is the program maestro-agent.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/features"
	"open-cluster-management.io/ocm/pkg/work/spoke/controllers/manifestcontroller"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// DefaultMaxFeedbackBytes is the default of Options.MaxFeedbackBytes.
const DefaultMaxFeedbackBytes = 400 << 10

// Options configure an Agent.
type Options struct {
	// Consumer is the name of the management cluster at the server and in the client certificate.
	Consumer string
	// SourceID is the name of the server in topics; empty means maestro.
	SourceID string
	// MQTTAddress is the host:port of the broker. MQTTTLS is the TLS configuration of the client.
	MQTTAddress string
	MQTTTLS     *tls.Config
	// Cluster is the configuration of the client of the management cluster.
	Cluster *rest.Config
	// SecretKeys opens the values of Secrets. With it, the agent refuses Secrets that are not sealed for the consumer; nil refuses
	// sealed Secrets.
	SecretKeys *seal.PrivateKeys
	// CRDDir contains the CRDs to install at start, AppliedManifestWork at least. Empty installs none.
	CRDDir string
	// Workers is the number of workers per controller; 0 means 16.
	Workers int
	// MaxFeedbackBytes bounds one feedback value that is raw JSON; 0 means 400 KiB, which fits into a message.
	MaxFeedbackBytes int32
	// StatusPoll is the interval at which objects without a watch are read; 0 means 10 minutes.
	StatusPoll time.Duration
	// Heartbeat is the interval of the heartbeats to the server; 0 means 10 seconds.
	Heartbeat time.Duration
	// OrphanInterval is the interval at which the agent checks for applied objects of works that it does not have; 0 means
	// 10 minutes.
	OrphanInterval time.Duration
	// Traces creates a span for each attempt to apply a work with a trace context; nil creates none.
	Traces   *tracing.Tracing
	Registry prometheus.Registerer
	Log      *slog.Logger
}

func (o *Options) complete() error {
	switch {
	case o.Consumer == "":
		return errors.New("the name of the consumer is missing")
	case o.MQTTAddress == "" || o.MQTTTLS == nil:
		return errors.New("the address of the broker or the client certificate is missing")
	case o.Cluster == nil:
		return errors.New("the configuration of the management cluster is missing")
	}
	if o.SourceID == "" {
		o.SourceID = "maestro"
	}
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.MaxFeedbackBytes <= 0 {
		o.MaxFeedbackBytes = DefaultMaxFeedbackBytes
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.StatusPoll <= 0 {
		o.StatusPoll = statusPoll
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = heartbeatInterval
	}
	if o.OrphanInterval <= 0 {
		o.OrphanInterval = orphanInterval
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// resyncInterval is the interval at which an unchanged work is applied again. The library adds up to half of it at random.
const resyncInterval = 10 * time.Minute

// configureLibrary sets the global variables of the work agent's library. It enables feedback as raw JSON, for rules whose path
// selects an object or a list.
var configureLibrary = sync.OnceValue(func() error {
	manifestcontroller.ResyncInterval = resyncInterval
	if err := features.SpokeMutableFeatureGate.Add(ocmfeature.DefaultSpokeWorkFeatureGates); err != nil {
		return err
	}
	return features.SpokeMutableFeatureGate.Set(string(ocmfeature.RawFeedbackJsonString) + "=true")
})

// Agent is the agent of one management cluster.
type Agent struct {
	o            Options
	uplink       *uplink
	clusterReady atomic.Bool
	// health sends requests to the management cluster at server for readiness checks.
	health *http.Client
	server string
	rights *rights
	// applied watches the kinds that works apply; nil before the controllers start.
	applied atomic.Pointer[applied]
}

// New returns an agent. Call Run to start it.
func New(o Options) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := configureLibrary(); err != nil {
		return nil, fmt.Errorf("configuring the library of the work agent: %w", err)
	}
	u := newUplink(o.Consumer, o.SourceID, o.Consumer+"-agent", o.Log)
	if o.Traces != nil {
		u.traces.tracing = o.Traces
	}
	u.link = mqttlink.New(mqttlink.Options{
		Address: o.MQTTAddress, TLS: o.MQTTTLS, ClientID: o.Consumer + "-agent-client",
		Subscribe: []string{maestroapi.SourceEventsTopic(o.SourceID, o.Consumer)},
		Receive:   u.receive,
		Invalid:   func(_ string, err error) { o.Log.Error("invalid message dropped", logkey.Error, err) },
		Up:        u.up,
		Log:       o.Log,
	})
	gauge := func(options prometheus.GaugeOpts, value func() float64) {
		o.Registry.MustRegister(prometheus.NewGaugeFunc(options, value))
	}
	gauge(prometheus.GaugeOpts{Name: "maestro_agent_works", Help: "Works of the agent."}, func() float64 { return float64(len(u.works.list())) })
	gauge(prometheus.GaugeOpts{Name: "maestro_agent_reports_waiting", Help: "Reports that wait to be sent."}, func() float64 { return float64(u.reports.Len()) })
	gauge(prometheus.GaugeOpts{Name: "maestro_agent_connects", Help: "Connections to the broker since the start."}, func() float64 { return float64(u.link.Connects()) })
	o.Registry.MustRegister(&sealingKeys{u.works})
	health, err := rest.HTTPClientFor(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the management cluster: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(o.Cluster)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the management cluster: %w", err)
	}
	unlimited := rest.CopyConfig(o.Cluster)
	unlimited.QPS, unlimited.Burst = -1, 0 // see Run
	reviews, err := authorizationclient.NewForConfigAndClient(unlimited, health)
	if err != nil {
		return nil, fmt.Errorf("preparing the connection to the management cluster: %w", err)
	}
	a := &Agent{o: o, uplink: u, health: health, server: server.String()}
	a.rights = &rights{reviews: reviews, kinds: a.appliedKinds, now: time.Now}
	return a, nil
}

// appliedKinds returns the kinds that works apply.
func (a *Agent) appliedKinds() []schema.GroupResource {
	watched := a.applied.Load()
	if watched == nil {
		return nil
	}
	return watched.resources()
}

// Ready returns why the link to the broker is down, or nil if it is up.
func (a *Agent) Ready(ctx context.Context) error { return a.uplink.link.Ready(ctx) }

// ClusterReady returns nil if the controllers run, the management cluster's API server is ready and the agent has its rights, or why not.
func (a *Agent) ClusterReady(ctx context.Context) error {
	if err := kubeapi.CheckReady(ctx, a.health, a.server); err != nil {
		return fmt.Errorf("management cluster: %w", err)
	}
	if !a.clusterReady.Load() {
		return errors.New("the AppliedManifestWorks of the management cluster have not been listed yet")
	}
	if err := a.rights.check(ctx); err != nil {
		return fmt.Errorf("management cluster: %w", err)
	}
	return nil
}

// Run applies works and reports their status until ctx ends. It returns when everything that it started has stopped. It
// connects to the broker when the controllers are ready, so that they process the works of the first resync.
func (a *Agent) Run(ctx context.Context) error {
	config := rest.CopyConfig(a.o.Cluster)
	config.UserAgent = "maestro-agent"
	// API priority and fairness of the API server limits the agent; a limit of the client would only add delays.
	config.QPS, config.Burst = -1, 0
	if a.o.CRDDir != "" {
		if err := installCRDs(ctx, config, a.o.CRDDir, a.o.Log); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	start := func(run func(context.Context)) {
		running.Go(func() { run(ctx) })
	}
	defer running.Wait()
	defer cancel()

	if err := a.startControllers(ctx, config, start); err != nil {
		return err
	}
	a.clusterReady.Store(true)
	start(a.uplink.run)
	start(func(ctx context.Context) { a.uplink.sendHeartbeats(ctx, a.o.Heartbeat) })
	return a.uplink.link.Run(ctx)
}

// Package agent applies resources to a management cluster and reports what becomes of them. Inside are the controllers
// of the Open Cluster Management work agent, unchanged: they apply manifests, keep AppliedManifestWorks, read feedback
// and delete what is no longer wanted. Around them is our own: the works they see, the watches they read feedback from
// and the MQTT link. So the agent speaks the published protocol and applies as the published agent does, without what
// that one does by polling, by rate limit or after a restart.
//
// This is the only package that holds a management cluster's client.
package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	ocmfeature "open-cluster-management.io/api/feature"
	"open-cluster-management.io/ocm/pkg/features"
	"open-cluster-management.io/ocm/pkg/work/spoke/controllers/manifestcontroller"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

// Options of an agent.
type Options struct {
	// Consumer is the name of the management cluster, at the server and in the client certificate.
	Consumer string
	// SourceID is the server's name in topics; empty means maestro.
	SourceID string
	// MQTTAddress is the broker's host:port, MQTTTLS the client's side of the connection.
	MQTTAddress string
	MQTTTLS     *tls.Config
	// Cluster is how to reach the management cluster.
	Cluster *rest.Config
	// CRDDir holds the AppliedManifestWork CRD to install at start; empty when somebody else does.
	CRDDir string
	// Workers per controller; 0 means 16.
	Workers int
	// MaxFeedbackBytes bounds one feedback value; 0 means 400 KiB, which fits a message.
	MaxFeedbackBytes int32
	// StatusPoll is how often objects that are not watched are looked at; 0 means 10 minutes.
	StatusPoll time.Duration
	// StrayPause is how often it is looked for what is applied of works that the server has not sent; 0 means 10 minutes.
	StrayPause time.Duration
	Registry   prometheus.Registerer
	Log        *slog.Logger
}

func (o *Options) complete() error {
	switch {
	case o.Consumer == "":
		return errors.New("the agent needs its consumer's name")
	case o.MQTTAddress == "" || o.MQTTTLS == nil:
		return errors.New("the agent needs the broker's address and a client certificate")
	case o.Cluster == nil:
		return errors.New("the agent needs a management cluster")
	}
	if o.SourceID == "" {
		o.SourceID = "maestro"
	}
	if o.Workers <= 0 {
		o.Workers = 16
	}
	if o.MaxFeedbackBytes <= 0 {
		o.MaxFeedbackBytes = 400 << 10
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.StatusPoll <= 0 {
		o.StatusPoll = statusPoll
	}
	if o.StrayPause <= 0 {
		o.StrayPause = strayPause
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return nil
}

// resyncInterval is how often a work is applied again although nothing has changed, plus up to half as much.
const resyncInterval = 10 * time.Minute

// globals sets what the work agent's library keeps globally: it turns on the feedback of whole objects (`@`).
var globals = sync.OnceValue(func() error {
	manifestcontroller.ResyncInterval = resyncInterval
	if err := features.SpokeMutableFeatureGate.Add(ocmfeature.DefaultSpokeWorkFeatureGates); err != nil {
		return err
	}
	return features.SpokeMutableFeatureGate.Set(string(ocmfeature.RawFeedbackJsonString) + "=true")
})

// Agent is one management cluster's agent.
type Agent struct {
	o       Options
	uplink  *uplink
	working atomic.Bool
}

// New prepares an agent. Run makes it work.
func New(o Options) (*Agent, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if err := globals(); err != nil {
		return nil, fmt.Errorf("prepare the work agent's library: %w", err)
	}
	u := newUplink(o.Consumer, o.SourceID, o.Consumer+"-agent", o.Log)
	u.link = mqttlink.New(mqttlink.Options{
		Address: o.MQTTAddress, TLS: o.MQTTTLS, ClientID: o.Consumer + "-agent-client",
		Subscribe: []string{maestroapi.SourceEventsTopic(o.SourceID, o.Consumer)},
		Receive:   u.receive,
		Invalid:   func(_ string, err error) { o.Log.Error("message dropped", "error", err) },
		Up:        u.up,
		Log:       o.Log,
	})
	gauge := func(name, help string, value func() float64) {
		o.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "maestro_agent", Name: name, Help: help}, value))
	}
	gauge("works", "Works the agent has.", func() float64 { return float64(len(u.works.held())) })
	gauge("reports_waiting", "Reports not sent yet.", func() float64 { return float64(u.reports.Len()) })
	gauge("connects", "Connections to the broker since the start.", func() float64 { return float64(u.link.Connects()) })
	return &Agent{o: o, uplink: u}, nil
}

// Ready says why the agent cannot be reached, nil when it can.
func (a *Agent) Ready(ctx context.Context) error { return a.uplink.link.Ready(ctx) }

// Working says that the controllers are not running yet, nil when they are.
func (a *Agent) Working(context.Context) error {
	if !a.working.Load() {
		return errors.New("the management cluster cannot be reached, or its AppliedManifestWorks cannot be listed")
	}
	return nil
}

// Run applies and reports until the context ends, and returns once everything it started has. The MQTT link comes up
// only when the controllers are ready, so the first resync already finds them at work.
func (a *Agent) Run(ctx context.Context) error {
	config := rest.CopyConfig(a.o.Cluster)
	config.UserAgent = "maestro-agent"
	// The API server's own fairness limits the agent; a limit here would only add waiting.
	config.QPS, config.Burst = -1, 0
	if a.o.CRDDir != "" {
		if err := installCRDs(ctx, config, a.o.CRDDir, a.o.Log); err != nil {
			return err
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	start := func(run func(context.Context)) {
		running.Add(1)
		go func() { defer running.Done(); run(ctx) }()
	}
	defer running.Wait()
	defer cancel()

	if err := a.startControllers(ctx, config, start); err != nil {
		return err
	}
	a.working.Store(true)
	start(a.uplink.run)
	return a.uplink.link.Run(ctx)
}

// Command maestro-agent is the agent of one management cluster: it applies there what the Maestro server sends and
// reports what becomes of it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/mqttlink"
)

type options struct {
	process                   process.Options
	kubeconfig, consumer      string
	mqttAddress, mqttIdentity string
	sourceID, crds            string
	workers, maxFeedback      int
	statusPoll                time.Duration
}

func main() {
	var o options
	flags := flag.NewFlagSet("maestro-agent", flag.ExitOnError)
	o.process.AddFlags(flags)
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the management cluster's kubeconfig; empty uses the pod's service account")
	flags.StringVar(&o.consumer, "consumer-name", "", "the management cluster's `name` at the server")
	flags.StringVar(&o.mqttAddress, "mqtt-address", "", "`host:port` of the MQTT broker")
	flags.StringVar(&o.mqttIdentity, "mqtt-identity-dir", "", "`folder` with tls.crt, tls.key and ca.crt for the MQTT broker")
	flags.StringVar(&o.sourceID, "source-id", "maestro", "the server's `name` in MQTT topics")
	flags.StringVar(&o.crds, "install-crds", "", "`folder` of CRDs to install at start; empty installs none")
	flags.IntVar(&o.workers, "workers", 16, "workers per controller")
	flags.IntVar(&o.maxFeedback, "max-feedback-bytes", 400<<10, "the largest feedback value, in bytes")
	flags.DurationVar(&o.statusPoll, "status-poll", 5*time.Minute, "how often objects without feedback rules, which are not watched, are looked at")
	process.Parse(flags, os.Args[1:], func() error {
		return process.Required(flags, "consumer-name", "mqtt-address", "mqtt-identity-dir")
	})
	process.Run("maestro-agent", o.process, o.run)
}

func (o *options) run(ctx context.Context, p *process.Process) error {
	// The work agent's library logs through klog.
	klog.SetSlogLogger(p.Log)
	cluster, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	mqtt, err := mqttlink.ClientTLS(o.mqttIdentity, o.mqttAddress)
	if err != nil {
		return fmt.Errorf("--mqtt-identity-dir: %w", err)
	}
	a, err := agent.New(agent.Options{
		Consumer: o.consumer, SourceID: o.sourceID, MQTTAddress: o.mqttAddress, MQTTTLS: mqtt, Cluster: cluster,
		CRDDir: o.crds, Workers: o.workers, MaxFeedbackBytes: int32(o.maxFeedback), StatusPoll: o.statusPoll, Log: p.Log,
	})
	if err != nil {
		return err
	}
	p.Ready("mqtt", a.Ready)
	p.Ready("cluster", a.Working)
	return a.Run(ctx)
}

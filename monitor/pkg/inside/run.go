package inside

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// Flags are the flags of the program monitor-inside.
type Flags struct {
	// Kubeconfig is the kubeconfig file of the management cluster; empty means the service account of the pod.
	Kubeconfig string
	// Connections is the maximum number of kept connections.
	Connections int
}

// AddFlags registers the flags.
func (o *Flags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the kubeconfig of the management cluster; empty uses the service account of the pod")
	flags.IntVar(&o.Connections, "max-connections", 1_000, "maximum `number` of connections that monitor-inside keeps open, 1 to 100000")
}

// Validate returns an error that names the first invalid flag.
func (o *Flags) Validate() error {
	return process.Between("max-connections", o.Connections, 1, 100_000)
}

// Main is the program monitor-inside. It reads the arguments of the process.
func Main() {
	var options Flags
	process.Main("monitor-inside", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

// Run probes until ctx ends.
func Run(ctx context.Context, p *process.Process, options Flags) error {
	// client-go logs with klog, which has one logger per process.
	klog.SetSlogLogger(slog.New(p.Log.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = "hcpmesh-monitor-inside"
	management, err := NewManagement(config, p.Log)
	if err != nil {
		return err
	}
	checker := probe.New(probe.Options{Vantage: probe.Inside, Connections: options.Connections})
	defer checker.Close()
	prober := New(checker, management, Options{Metrics: NewMetrics(p.Metrics), Log: p.Log})
	p.Metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "monitor_inside_clusters", Help: "HostedClusters of the management cluster."},
		func() float64 { return float64(prober.Len()) }))
	p.Ready("management-cluster", func(context.Context) error {
		if !management.Synced() {
			return errors.New("the HostedClusters have not been read from the management cluster yet")
		}
		return nil
	})
	p.Ready("reports", func(context.Context) error {
		if silent := prober.Silent(); silent > 0 {
			return fmt.Errorf("no report has been written to the management cluster for %s", silent.Round(time.Second))
		}
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var work sync.WaitGroup
	work.Go(func() { prober.Run(ctx) })
	err = management.Follow(ctx, prober)
	cancel()
	work.Wait()
	return errors.Join(err, ctx.Err())
}

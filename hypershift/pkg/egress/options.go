package egress

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// grace is the time that requests in progress have when the proxy ends.
const grace = 2 * time.Second

// Flags are the flags of the program egress-proxy.
type Flags struct {
	// Listen is the address for clients with certificates, and Cleartext the one for HyperShift's control planes, which have none.
	Listen, Cleartext string
	// Certificate and Key are the proxy's own, and ClientCA verifies clients.
	Certificate, Key, ClientCA string
	// Kubeconfig is the kubeconfig file of the management cluster, on which connections that were not made are reported; empty reports none.
	Kubeconfig string
	Exceptions []string
	Limits     Limits
}

// AddFlags registers the flags.
func (f *Flags) AddFlags(flags *flag.FlagSet) {
	f.Limits = DefaultLimits
	flags.StringVar(&f.Listen, "listen", "", "`address` for control planes with client certificates")
	flags.StringVar(&f.Cleartext, "listen-cleartext", "", "`address` for control planes without client certificates; only they may reach it in the network, because it accepts every client")
	flags.StringVar(&f.Certificate, "tls-cert", "", "`file` with the certificate of --listen")
	flags.StringVar(&f.Key, "tls-key", "", "`file` with the key of --tls-cert")
	flags.StringVar(&f.ClientCA, "client-ca-file", "", "`file` with the authorities of client certificates; their common names are namespaces of control planes")
	flags.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster, whose HostedClusters get reports of failed connections; empty writes no reports")
	flags.Func("allow", "`host:port` that may be connected to although it is not public; repeatable; for the issuer of a local region", func(text string) error {
		if err := ParseException(text); err != nil {
			return err
		}
		f.Exceptions = append(f.Exceptions, strings.ToLower(text))
		return nil
	})
	flags.IntVar(&f.Limits.TunnelsPerClient, "tunnels-per-control-plane", f.Limits.TunnelsPerClient, "`number` of tunnels that one control plane may have")
	flags.IntVar(&f.Limits.Tunnels, "tunnels", f.Limits.Tunnels, "`number` of tunnels of all control planes")
	flags.DurationVar(&f.Limits.Lifetime, "tunnel-lifetime", f.Limits.Lifetime, "`time` after which a tunnel is closed")
	flags.DurationVar(&f.Limits.Idle, "tunnel-idle", f.Limits.Idle, "`time` without a byte after which a tunnel is closed")
	flags.Int64Var(&f.Limits.Bytes, "tunnel-bytes", f.Limits.Bytes, "`number` of bytes after which a tunnel is closed")
}

// Validate checks the flags. An error names the invalid one.
func (f *Flags) Validate() error {
	certificates := f.Certificate != "" && f.Key != "" && f.ClientCA != ""
	none := f.Certificate == "" && f.Key == "" && f.ClientCA == ""
	return cmp.Or(
		process.ErrorIf(f.Listen == "" && f.Cleartext == "", "--listen or --listen-cleartext is required"),
		process.ErrorIf(f.Listen != "" && !certificates || f.Listen == "" && !none, "--tls-cert, --tls-key and --client-ca-file are required with --listen, and only with it"),
		process.AtLeast("tunnels-per-control-plane", f.Limits.TunnelsPerClient, 1),
		process.AtLeast("tunnels", f.Limits.Tunnels, 1),
		process.AtLeast("tunnel-lifetime", f.Limits.Lifetime, 1),
		process.AtLeast("tunnel-idle", f.Limits.Idle, 1),
		process.AtLeast("tunnel-bytes", f.Limits.Bytes, 1),
	)
}

// Main is the program egress-proxy. It reads the arguments of the process.
func Main() {
	var options Flags
	process.Main("egress-proxy", &options, func(ctx context.Context, p *process.Process) error {
		var serving atomic.Bool
		p.Ready("listeners", func(context.Context) error {
			if !serving.Load() {
				return errors.New("the proxy does not listen yet")
			}
			return nil
		})
		return options.Run(ctx, p.Metrics, p.Log, func([]net.Addr) { serving.Store(true) })
	})
}

// Run serves until ctx ends. It calls ready with the addresses on which it listens, in the order of the fields of Flags.
func (f *Flags) Run(ctx context.Context, metrics prometheus.Registerer, log *slog.Logger, ready func(addresses []net.Addr)) error {
	options := Options{Policy: Policy{Exceptions: f.Exceptions}, Limits: f.Limits, Metrics: metrics, Log: log}
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if f.Kubeconfig != "" {
		reporter, err := f.reporter(log)
		if err != nil {
			return fmt.Errorf("--kubeconfig: %w", err)
		}
		options.OnAttempt = reporter.Record
		group.Go(func() { reporter.Run(ctx) })
	}
	server := NewServer(options)
	defer server.Close()
	failures := make(chan error, 2)
	var addresses []net.Addr
	serve := func(flag, address string, run func(net.Listener) error) error {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		log.Info("serving", logkey.Address, listener.Addr().String())
		addresses = append(addresses, listener.Addr())
		group.Go(func() { failures <- run(listener) })
		return nil
	}
	if f.Listen != "" {
		config, err := kubeapi.EgressServerTLS(f.Certificate, f.Key, f.ClientCA)
		if err != nil {
			return fmt.Errorf("--tls-cert, --tls-key, --client-ca-file: %w", err)
		}
		if err := serve("listen", f.Listen, func(l net.Listener) error { return process.ServeHTTP(ctx, server.HTTPServer(config), l, grace) }); err != nil {
			return err
		}
	}
	if f.Cleartext != "" {
		if err := serve("listen-cleartext", f.Cleartext, func(l net.Listener) error { return process.ServeHTTP(ctx, server.HTTPServer(nil), l, grace) }); err != nil {
			return err
		}
	}
	ready(addresses)
	var failed error
	for range addresses {
		if err := <-failures; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	return failed
}

func (f *Flags) reporter(log *slog.Logger) (*Reporter, error) {
	config, err := clientcmd.BuildConfigFromFlags("", f.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = string(manager)
	scheme, err := contract.NewScheme()
	if err != nil {
		return nil, err
	}
	management, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return NewReporter(management, log), nil
}

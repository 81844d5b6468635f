package grant

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// shutdownTimeout limits the time for requests in progress after the process was asked to stop.
const shutdownTimeout = 10 * time.Second

// Options are the options of gateway-grants.
type Options struct {
	Mesh mesh.Options
	// Listen is host:port of the server. Only the session gateway may call it.
	Listen string
	// Kubeconfig is the kubeconfig file of the service cluster; empty means the service account of the pod.
	Kubeconfig string
	// IntentKeysURL is the URL of the public keys with which admin signs what engineers ask for.
	IntentKeysURL string
}

// AddFlags registers the flags of the options.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	o.Mesh.AddFlags(flags)
	flags.StringVar(&o.Listen, "listen", "127.0.0.1:8448", "`address` of the server, which only the session gateway may call")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "", "`file` with the kubeconfig of the service cluster; empty uses the service account of the pod")
	flags.StringVar(&o.IntentKeysURL, "intent-keys-url", "", "`URL` of the public keys with which admin signs what engineers ask for")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	return cmp.Or(process.Required("listen", o.Listen), process.Required("intent-keys-url", o.IntentKeysURL),
		o.Mesh.Validate(), process.Named("intent-keys-url", o.Mesh.CheckURL(o.IntentKeysURL)))
}

// Main is the program gateway-grants. It reads the arguments of the process.
func Main() {
	var options Options
	process.Main("gateway-grants", &options, func(ctx context.Context, p *process.Process) error { return Run(ctx, p, options) })
}

// Run serves until ctx ends.
func Run(ctx context.Context, p *process.Process, options Options) error {
	// client-go logs with klog, which has one logger per process.
	klog.SetSlogLogger(slog.New(p.Log.Handler()))
	listener, err := net.Listen("tcp", options.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer func() { _ = listener.Close() }()
	transport, err := options.Mesh.Load(mesh.GatewayGrants)
	if err != nil {
		return err
	}
	p.Metrics.MustRegister(transport.Collectors()...)
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	config.UserAgent = "hcpmesh-gateway-grants"
	intents := intent.NewRegionVerifier(transport, options.IntentKeysURL)
	fetching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var fetched sync.WaitGroup
	fetched.Go(func() { intents.Run(fetching) })
	defer fetched.Wait()
	defer stop()
	return Serve(ctx, p, Parts{Config: config, Intents: intents, Transport: transport, Listener: listener})
}

// Parts are the connections of gateway-grants.
type Parts struct {
	// Config is that of the API server of the service cluster.
	Config    *rest.Config
	Intents   IntentVerifier
	Transport mesh.Transport
	Listener  net.Listener
}

// Serve is Run with existing connections. Tests call it directly.
func Serve(ctx context.Context, p *process.Process, parts Parts) error {
	cluster := ServiceCluster()
	granter, err := NewGranter(parts.Config, cluster, parts.Intents)
	if err != nil {
		return err
	}
	grants := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gateway_grants_total",
		Help: "Tokens for the API server of the service cluster that the session gateway asked for, by outcome: issued, refused or failed."}, []string{"outcome"})
	p.Metrics.MustRegister(grants)
	authorizer := mesh.NewAuthorizer(mesh.GatewayGrants, mesh.Rules(), p.Log)
	routes := http.NewServeMux()
	routes.Handle("POST "+mesh.GrantsPath, NewHandler(granter, cluster, p.Log, grants))
	server := process.NewHTTPServer(process.Calls, authorizer.Handler(parts.Transport, routes), p.Log)
	p.Log.InfoContext(ctx, "issuing tokens of access sessions with the service cluster", logkey.Address, parts.Listener.Addr().String())
	return process.ServeHTTP(ctx, server, authorizer.Listener(parts.Transport, parts.Listener), shutdownTimeout)
}

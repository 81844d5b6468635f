package install

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/kube"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The rate of requests to a cluster, unless the configuration has one. A chart has about 40 objects.
const (
	requestsPerSecond = 50
	requestBurst      = 100
)

// connect returns Helm's configuration for a namespace. All requests end when ctx ends, also those for which Helm has no context.
func connect(ctx context.Context, namespace string, o Options) (*action.Configuration, *client, error) {
	cluster := rest.CopyConfig(o.Cluster)
	cluster.Wrap(func(next http.RoundTripper) http.RoundTripper { return bound{ctx, next} })
	if cluster.QPS == 0 && cluster.RateLimiter == nil {
		cluster.QPS, cluster.Burst = requestsPerSecond, requestBurst
	}
	plain, err := discovery.NewDiscoveryClientForConfig(cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	g := &getter{cluster: cluster, namespace: namespace, discovery: memory.NewMemCacheClient(plain)}
	config := &action.Configuration{}
	if err := config.Init(g, namespace, "secret", func(string, ...any) {}); err != nil {
		return nil, nil, fmt.Errorf("connecting to the cluster: %w", err)
	}
	config.Releases.MaxHistory = maxHistory
	helm := config.KubeClient.(*kube.Client)
	helm.Namespace = namespace
	c := &client{Client: helm, ctx: ctx, log: o.Log}
	config.KubeClient = c
	return config, c, nil
}

// getter gives Helm its clients.
type getter struct {
	cluster   *rest.Config
	namespace string
	discovery discovery.CachedDiscoveryInterface
}

// ToRESTConfig returns the configuration of the cluster.
func (g *getter) ToRESTConfig() (*rest.Config, error) { return g.cluster, nil }

// ToDiscoveryClient returns the client for the kinds of the cluster.
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// ToRESTMapper returns the mapper of kinds to resources.
func (g *getter) ToRESTMapper() (meta.RESTMapper, error) {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(g.discovery)
	return restmapper.NewShortcutExpander(mapper, g.discovery, nil), nil
}

// ToRawKubeConfigLoader returns a loader that knows the namespace alone.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{Context: clientcmdapi.Context{Namespace: g.namespace}}
	return clientcmd.NewDefaultClientConfig(*clientcmdapi.NewConfig(), overrides)
}

// bound ends requests and their responses when ctx ends.
type bound struct {
	ctx  context.Context
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. It sends no request after the end of ctx: AfterFunc runs in a goroutine of its own, which the
// cluster could outrun.
func (b bound) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.ctx.Err() != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, context.Cause(b.ctx)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(b.ctx, func() { cancel(context.Cause(b.ctx)) })
	end := sync.OnceFunc(func() { stop(); cancel(nil) })
	response, err := b.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	response.Body = &boundBody{response.Body, end}
	return response, nil
}

// boundBody releases the context of its request when it is closed.
type boundBody struct {
	io.ReadCloser
	end func()
}

// Close implements io.Closer.
func (b *boundBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

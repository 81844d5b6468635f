// Command management-controllers runs the two controllers of kube-controller-manager that a management cluster of the local region
// needs: the namespace controller, which empties deleted namespaces, and the garbage collector, which deletes the dependents of deleted
// owners. Both are the unmodified packages of k8s.io/kubernetes at the version in go.mod, started with the clients, limits and informers
// that cmd/kube-controller-manager/app of that version gives them. The other thirty controllers take three minutes to compile, and a
// management cluster without nodes does not use them.
//
// The flags are those of kube-controller-manager with the same names. The program serves /healthz and /metrics with the authentication
// and authorization of kube-controller-manager. It terminates with an error if it cannot reach the API server at the start.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/config"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
)

// Settings that kube-controller-manager has by default.
const (
	resync               = 12 * time.Hour
	namespaceSync        = 5 * time.Minute
	collectorWorkers     = 20
	discoveryPeriod      = 30 * time.Second
	awaitAPIServer       = 10 * time.Second
	namespaceQPSFactor   = 20
	namespaceBurstFactor = 100
	collectorQPSFactor   = 2
)

func main() {
	var c controllers
	flags := pflag.NewFlagSet("management-controllers", pflag.ContinueOnError)
	c.addFlags(flags)
	logging := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.AddGoFlagSet(logging)
	err := flags.Parse(os.Args[1:])
	if errors.Is(err, pflag.ErrHelp) {
		return
	}
	if err = cmp.Or(err, c.validate()); err == nil {
		err = c.run(server.SetupSignalContext())
	}
	klog.Flush()
	if err != nil {
		fmt.Fprintf(os.Stderr, "management-controllers: %v\n", err)
		os.Exit(1)
	}
}

// controllers holds the flags of the program.
type controllers struct {
	kubeconfig       string
	qps              float32
	burst            int
	namespaceWorkers int
	serving          *options.SecureServingOptions
	authentication   *options.DelegatingAuthenticationOptions
	authorization    *options.DelegatingAuthorizationOptions
}

func (c *controllers) addFlags(flags *pflag.FlagSet) {
	c.serving = options.NewSecureServingOptions()
	c.authentication = options.NewDelegatingAuthenticationOptions()
	c.authentication.RemoteKubeConfigFileOptional = true
	c.authorization = options.NewDelegatingAuthorizationOptions().WithAlwaysAllowPaths("/healthz")
	c.authorization.RemoteKubeConfigFileOptional = true
	c.serving.AddFlags(flags)
	c.authentication.AddFlags(flags)
	c.authorization.AddFlags(flags)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the cluster")
	flags.Float32Var(&c.qps, "kube-api-qps", 20, "requests per second to the API server")
	flags.IntVar(&c.burst, "kube-api-burst", 30, "requests to the API server that may exceed the rate for a moment")
	flags.IntVar(&c.namespaceWorkers, "concurrent-namespace-syncs", 10, "number of namespaces that are emptied at the same time")
}

func (c *controllers) validate() error {
	problems := append(c.serving.Validate(), append(c.authentication.Validate(), c.authorization.Validate()...)...)
	if c.kubeconfig == "" {
		problems = append(problems, errors.New("--kubeconfig is required"))
	}
	if c.namespaceWorkers < 1 {
		problems = append(problems, errors.New("--concurrent-namespace-syncs must be at least 1"))
	}
	return utilerrors.NewAggregate(problems)
}

// run serves health and metrics and runs both controllers until ctx ends.
func (c *controllers) run(ctx context.Context) error {
	base, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	base.QPS, base.Burst, base.DisableCompression, base.ContentType = c.qps, c.burst, true, runtime.ContentTypeProtobuf
	clients := clientbuilder.SimpleControllerClientBuilder{ClientConfig: rest.AddUserAgent(base, "management-controllers")}
	client, err := clients.Client("shared-informers")
	if err != nil {
		return err
	}
	if err := controllermanager.WaitForAPIServer(client, awaitAPIServer); err != nil {
		return fmt.Errorf("waiting for the API server: %w", err)
	}
	objects := informers.NewSharedInformerFactoryWithOptions(client, resync, informers.WithTransform(stripManagedFields))
	all, runCollector, err := garbageCollector(ctx, clients, objects)
	if err != nil {
		return fmt.Errorf("creating the garbage collector: %w", err)
	}
	runNamespaces, err := c.namespaceController(ctx, clients, objects)
	if err != nil {
		return fmt.Errorf("creating the namespace controller: %w", err)
	}
	stopped, err := c.serve(ctx)
	if err != nil {
		return err
	}
	all.Start(ctx.Done())
	var running sync.WaitGroup
	running.Go(func() { runNamespaces(ctx) })
	running.Go(func() { runCollector(ctx) })
	running.Wait()
	<-stopped
	return nil
}

// stripManagedFields removes what no controller reads and what is most of an object's metadata.
func stripManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// serve serves /healthz and /metrics until ctx ends, and closes the channel after the last request.
func (c *controllers) serve(ctx context.Context) (<-chan struct{}, error) {
	var serving *server.SecureServingInfo
	var authentication server.AuthenticationInfo
	var authorization server.AuthorizationInfo
	if err := c.serving.ApplyTo(&serving); err != nil {
		return nil, err
	}
	if err := c.authentication.ApplyTo(&authentication, serving, nil); err != nil {
		return nil, err
	}
	if err := c.authorization.ApplyTo(&authorization); err != nil {
		return nil, err
	}
	health := healthz.NewMutableHealthzHandler(healthz.NamedPingChecker("namespace-controller"), healthz.NamedPingChecker("garbage-collector-controller"))
	handler := controllermanager.NewBaseHandler(&config.DebuggingConfiguration{}, health)
	stopped, _, err := serving.Serve(controllermanager.BuildHandlerChain(handler, &authorization, &authentication), 0, ctx.Done())
	return stopped, err
}

// namespaceController returns the function that runs the namespace controller. Emptying a namespace takes many requests, so its limits are
// multiples of the program's.
func (c *controllers) namespaceController(ctx context.Context, clients clientbuilder.ControllerClientBuilder, objects informers.SharedInformerFactory) (func(context.Context), error) {
	limits, err := clients.Config("namespace-controller")
	if err != nil {
		return nil, err
	}
	limits.QPS *= namespaceQPSFactor
	limits.Burst *= namespaceBurstFactor
	client, err := kubernetes.NewForConfig(limits)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(limits)
	if err != nil {
		return nil, err
	}
	controller := namespace.NewNamespaceController(ctx, client, metadataClient, client.Discovery().ServerPreferredNamespacedResources,
		objects.Core().V1().Namespaces(), namespaceSync, corev1.FinalizerKubernetes)
	return func(ctx context.Context) { controller.Run(ctx, c.namespaceWorkers) }, nil
}

// garbageCollector returns all informers of the program, which have to be started, and the function that runs the garbage collector then.
func garbageCollector(ctx context.Context, clients clientbuilder.ControllerClientBuilder, objects informers.SharedInformerFactory) (informerfactory.InformerFactory, func(context.Context), error) {
	const name = "generic-garbage-collector"
	limits, err := clients.Config(name)
	if err != nil {
		return nil, nil, err
	}
	client, err := clients.Client(name)
	if err != nil {
		return nil, nil, err
	}
	discovery, err := clients.DiscoveryClient(name)
	if err != nil {
		return nil, nil, err
	}
	watching, err := metadata.NewForConfig(limits)
	if err != nil {
		return nil, nil, err
	}
	limits.QPS *= collectorQPSFactor
	deleting, err := metadata.NewForConfig(limits)
	if err != nil {
		return nil, nil, err
	}
	started := make(chan struct{})
	factory := informerfactory.NewInformerFactory(objects,
		metadatainformer.NewSharedInformerFactoryWithOptions(watching, resync, metadatainformer.WithTransform(stripManagedFields)))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery))
	graph := garbagecollector.NewDependencyGraphBuilder(ctx, watching, mapper, garbagecollector.DefaultIgnoredResources(), factory, started)
	collector, err := garbagecollector.NewComposedGarbageCollector(ctx, client, deleting, mapper, graph)
	if err != nil {
		return nil, nil, err
	}
	return factory, func(ctx context.Context) {
		close(started)
		var running sync.WaitGroup
		running.Go(func() { wait.UntilWithContext(ctx, func(context.Context) { mapper.Reset() }, discoveryPeriod) })
		running.Go(func() { collector.Run(ctx, collectorWorkers, discoveryPeriod) })
		running.Go(func() { collector.Sync(ctx, discovery, discoveryPeriod) })
		running.Wait()
	}, nil
}

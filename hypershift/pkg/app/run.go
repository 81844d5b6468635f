package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/breakglass"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedcluster"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedpods"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/nodepool"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/stubkubelet"
	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Runtime is a local HyperShift runtime.
type Runtime struct {
	options Options
	log     *slog.Logger
	waiting atomic.Pointer[string] // what it waits for before it reconciles; nil if nothing
	health  atomic.Pointer[health] // nil before Run was called

	servers atomic.Pointer[hostedServers] // nil before they are run

	// newCache and newQueue construct the cache and the queues of the controllers; nil are those of controller-runtime. A test can observe
	// what the controllers have read and handled.
	newCache cache.NewCacheFunc
	newQueue readyourwrites.NewQueue
}

// hostedServers counts hosted API servers.
type hostedServers interface {
	Running() (ready, all int)
}

// New returns a runtime, which does nothing until Run is called. The options must be valid.
func New(options Options, log *slog.Logger) *Runtime {
	r := &Runtime{options: options, log: log}
	r.waitFor("the management cluster")
	return r
}

// Register registers the runtime's metrics: two time series, independent of the number of clusters.
func (r *Runtime) Register(registry prometheus.Registerer) {
	for state, value := range map[string]func(ready, all int) int{
		"ready":     func(ready, _ int) int { return ready },
		"not_ready": func(ready, all int) int { return all - ready },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hypershift_hosted_api_servers", Help: "Number of hosted API servers of this runtime, by state.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 {
			servers := r.servers.Load()
			if servers == nil {
				return 0
			}
			return float64(value((*servers).Running()))
		}))
	}
}

func (r *Runtime) waitFor(what string) { r.waiting.Store(&what) }

// health sends readiness checks to the management cluster's API server.
type health struct {
	client *http.Client
	server string
}

func newHealth(restConfig *rest.Config) (*health, error) {
	client, err := rest.HTTPClientFor(restConfig)
	if err != nil {
		return nil, err
	}
	server, _, err := rest.DefaultServerUrlFor(restConfig)
	if err != nil {
		return nil, err
	}
	return &health{client: client, server: server.String()}, nil
}

// Ready returns nil if the runtime reconciles and the management cluster's API server is ready, or why not.
func (r *Runtime) Ready(ctx context.Context) error {
	if h := r.health.Load(); h != nil {
		if err := kubeapi.CheckReady(ctx, h.client, h.server); err != nil {
			return err
		}
	}
	if what := r.waiting.Load(); what != nil {
		return errors.New("waiting for " + *what)
	}
	return nil
}

// changeBuffer is the number of state changes of hosted API servers that may wait for the controllers. A full buffer
// blocks the supervisor.
const changeBuffer = 1024

// Run runs the controllers until ctx ends or a fatal error occurs.
func (r *Runtime) Run(ctx context.Context) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", r.options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	return r.RunWith(ctx, restConfig)
}

// loadCatalog reads a catalogue of releases. Nodes report the kubelet of their release, so that each release must have one.
func loadCatalog(file string) (*release.Catalog, error) {
	catalog, err := release.Load(file)
	if err != nil {
		return nil, err
	}
	for _, r := range catalog.Releases() {
		if r.Kubelet == "" {
			return nil, fmt.Errorf("release catalogue %s: release %s has no kubelet, which its nodes report", file, r.Version)
		}
	}
	return catalog, nil
}

// RunWith is like Run with a client configuration of the management cluster.
func (r *Runtime) RunWith(ctx context.Context, restConfig *rest.Config) error {
	catalog, err := loadCatalog(r.options.ReleaseCatalog)
	if err != nil {
		return err
	}
	scheme, err := contract.NewScheme()
	if err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS, restConfig.Burst = -1, 0 // the server has fair limits; a second limit here would only delay
	restConfig.UserAgent = contract.OperatorManager
	ctrllog.SetLogger(logr.FromSlogHandler(r.log.Handler()))
	h, err := newHealth(restConfig)
	if err != nil {
		return fmt.Errorf("preparing the connection to the management cluster: %w", err)
	}
	r.health.Store(h)

	if r.options.CRDDir != "" {
		r.waitFor("the CustomResourceDefinitions")
		installer, err := client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("connecting to the management cluster: %w", err)
		}
		if err := installCRDs(ctx, installer, r.options.CRDDir); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:   scheme,
		NewCache: r.newCache,
		Logger:   logr.FromSlogHandler(r.log.Handler()),
		Metrics:  metricsserver.Options{BindAddress: "0"}, // package process serves the metrics
		Controller: config.Controller{
			SkipNameValidation: new(true), RecoverPanic: new(true),
			// The priority queue of this version of controller-runtime deadlocks if it hands out an item during
			// shutdown, and the manager does not stop.
			UsePriorityQueue: new(false),
		},
	})
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return r.runControllers(ctx, manager, catalog)
}

func (r *Runtime) runControllers(ctx context.Context, manager ctrl.Manager, catalog *release.Catalog) error {
	// Canceled as soon as the controllers have stopped, because nothing receives changes then.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clusterChanges, poolChanges := make(chan event.GenericEvent, changeBuffer), make(chan event.GenericEvent, changeBuffer)
	connect := hostedclient.FromSecrets(manager.GetClient())
	var kubelets nodepool.Kubelets
	var kubeletAuthority []byte
	closeKubelets := func() {}
	if r.options.canRunProcesses() {
		server, authority, err := listenKubelets(r.log)
		if err != nil {
			return err
		}
		kubelets, kubeletAuthority, closeKubelets = server, authority, server.Close
	}
	defer closeKubelets()
	nodes := nodepool.NewNodeManager(connect, kubelets, r.log)
	defer nodes.Close()
	changed := func(name string) event.GenericEvent {
		return event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	secrets := hostedclient.NewSecretWatcher(connect, func(controlPlane string) {
		select {
		case clusterChanges <- changed(controlPlane):
		case <-ctx.Done():
		}
	}, r.log)
	defer secrets.Close()

	pods := nodepool.NewPodWatcher(connect, func(controlPlane string) {
		select {
		case poolChanges <- changed(controlPlane):
		case <-ctx.Done():
		}
	}, r.log)
	defer pods.Close()

	// Each controller waits only for its own writes. Writes of another controller start a pass through events.
	management := func() *readyourwrites.Client { return readyourwrites.New(manager.GetClient(), manager.GetAPIReader()) }
	uses := hostedapi.NewUseReporter(ctx, manager.GetClient(), r.log)
	clusters := &hostedcluster.Reconciler{
		Management: management(), Live: manager.GetAPIReader(), Releases: catalog, Scale: schedule.Scale(r.options.TimeScale),
		Fidelity: contract.Fidelity(r.options.Fidelity), HostedSecrets: secrets, EgressProxy: r.options.EgressProxy != "", KubeletAuthority: kubeletAuthority, NewQueue: r.newQueue, Log: r.log,
		OnRemove: func(controlPlane string) {
			nodes.Forget(controlPlane)
			secrets.Forget(controlPlane)
			pods.Forget(controlPlane)
			uses.Forget(controlPlane)
		},
	}
	onChange := func(name string) {
		for _, changes := range []chan<- event.GenericEvent{clusterChanges, poolChanges} {
			select {
			case changes <- changed(name):
			case <-ctx.Done():
			}
		}
	}
	switch {
	case r.options.canRunProcesses():
		dir, err := filepath.Abs(r.options.StateDir)
		if err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
		supervisor, err := hostedapi.NewSupervisor(hostedapi.Options{
			APIServer: r.options.APIServer, EtcdServers: r.options.EtcdServers, EtcdAuthority: r.options.EtcdAuthority, Dir: dir,
			Egress: r.options.egress(), Ports: r.options.Ports, Probes: r.options.Probes, ConcurrentStarts: r.options.ConcurrentStarts, OnUse: uses.RecordUse, Log: r.log,
			OnChange: onChange,
		})
		if err != nil {
			return err
		}
		r.servers.Store(new(hostedServers(supervisor)))
		defer supervisor.Close()
		defer closeKubelets() // before the API servers: clients get the ends of their streams
		clusters.ControlPlanes = supervisor
	case r.options.runsPods():
		pods := hostedpods.New(hostedpods.Options{Management: manager.GetClient(), Live: manager.GetAPIReader(),
			APIServerImage: r.options.APIServerImage, EtcdImage: r.options.EtcdImage, OnChange: onChange, Log: r.log})
		r.servers.Store(new(hostedServers(pods)))
		defer pods.Close()
		clusters.ControlPlanes = pods
		if err := watchPods(ctx, manager.GetCache(), onChange); err != nil {
			return err
		}
	}
	pools := &nodepool.Reconciler{
		Management: management(), Live: manager.GetAPIReader(), Releases: catalog, Scale: schedule.Scale(r.options.TimeScale),
		Nodes: nodes, Pods: pods, NewQueue: r.newQueue, Log: r.log,
	}
	if err := clusters.SetupWithManager(manager, clusterChanges); err != nil {
		return fmt.Errorf("setting up the hosted cluster controller: %w", err)
	}
	if err := pools.SetupWithManager(manager, poolChanges); err != nil {
		return fmt.Errorf("setting up the node pool controller: %w", err)
	}
	signers := &breakglass.Operator{Management: management(), Probe: breakglass.APIProber{Management: manager.GetClient()}, NewQueue: r.newQueue, Log: r.log}
	if err := signers.SetupWithManager(manager); err != nil {
		return err
	}
	if err := uses.SetupWithManager(manager, r.newQueue); err != nil {
		return err
	}
	r.waitFor("the caches")
	var processKinds []client.Object
	if r.options.canRunProcesses() {
		processKinds = []client.Object{&corev1.Service{}} // those of API servers that are pods are applied and not read
	}
	if err := registerInformers(ctx, manager.GetCache(), processKinds...); err != nil {
		return err
	}
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		if manager.GetCache().WaitForCacheSync(ctx) {
			r.waiting.Store(nil)
			r.log.Info("reconciling hosted clusters", logkey.Type, r.options.Fidelity)
		}
	}()
	err := manager.Start(ctx)
	cancel()
	<-synced
	if err != nil {
		return fmt.Errorf("running the controllers: %w", err)
	}
	return nil
}

// listenKubelets starts the kubelets of simulated nodes, and returns them with the authority of their serving certificate. The authority exists only
// in memory: hosted API servers get it when they start, and they end with this process.
func listenKubelets(log *slog.Logger) (*stubkubelet.Server, []byte, error) {
	now := time.Now()
	authority, err := pki.NewAuthority("kubelet-serving", now)
	if err != nil {
		return nil, nil, err
	}
	serving, err := authority.Server("kubelet", []string{stubkubelet.Address}, now)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(serving.Cert, serving.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the serving certificate of kubelets: %w", err)
	}
	server, err := stubkubelet.Listen(stubkubelet.Options{Certificate: certificate, Log: log})
	return server, authority.Cert, err
}

// registerInformers creates the informers of all kinds that the controllers read before the cache starts. The
// controllers would create them later, but then WaitForCacheSync would not wait for them and the runtime would report
// ready too early.
func registerInformers(ctx context.Context, informers cache.Informers, more ...client.Object) error {
	for _, object := range append(more,
		&hyperv1.HostedCluster{}, &hyperv1.HostedControlPlane{}, &hyperv1.ControlPlaneComponent{}, &hyperv1.NodePool{},
		&corev1.Namespace{}, &corev1.Secret{}, &corev1.ConfigMap{},
		&certificatesv1.CertificateSigningRequest{}, &certificatesv1alpha1.CertificateSigningRequestApproval{}, &certificatesv1alpha1.CertificateRevocationRequest{},
	) {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	return nil
}

// watchPods calls onChange with the namespace of each Deployment and StatefulSet of a control plane that changes.
func watchPods(ctx context.Context, informers cache.Informers, onChange func(name string)) error {
	notify := func(object any) {
		if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if found, ok := object.(client.Object); ok && found.GetLabels()[hostedpods.ComponentLabel] != "" {
			onChange(found.GetNamespace())
		}
	}
	for _, object := range []client.Object{&appsv1.Deployment{}, &appsv1.StatefulSet{}} {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		handler := toolscache.ResourceEventHandlerFuncs{AddFunc: notify, UpdateFunc: func(_, object any) { notify(object) }, DeleteFunc: notify}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	return nil
}

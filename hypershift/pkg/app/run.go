package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/auditlog"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/breakglass"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/crd"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/demand"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/follow"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/guest"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedcluster"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/node"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/nodepool"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/release"
	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/prometheus/client_golang/prometheus"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Runtime is a local HyperShift runtime that is being run.
type Runtime struct {
	options Options
	log     *slog.Logger
	ready   atomic.Pointer[string] // what is awaited; nil when nothing is

	supervisor atomic.Pointer[hostedapi.Supervisor] // nil while there is none
}

// New returns a runtime that does nothing until Run. The options must be valid.
func New(options Options, log *slog.Logger) *Runtime {
	r := &Runtime{options: options, log: log}
	r.await("the management cluster")
	return r
}

// Register adds the runtime's metrics to a registry: two series, whatever the number of clusters.
func (r *Runtime) Register(registry prometheus.Registerer) {
	for state, value := range map[string]func(ready, all int) int{
		"ready":     func(ready, _ int) int { return ready },
		"not_ready": func(ready, all int) int { return all - ready },
	} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "hypershift_hosted_api_servers", Help: "Hosted API servers that this runtime runs, by state.", ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 {
			supervisor := r.supervisor.Load()
			if supervisor == nil {
				return 0
			}
			return float64(value(supervisor.Running()))
		}))
	}
}

func (r *Runtime) await(what string) { r.ready.Store(&what) }

// Ready says what the runtime waits for before it reconciles; nil when it does.
func (r *Runtime) Ready(context.Context) error {
	if what := r.ready.Load(); what != nil {
		return errors.New("waiting for " + *what)
	}
	return nil
}

// changeBuffer is how many changes of hosted API servers may wait to be looked at. A server that changes has its
// reconciler woken once more, so the buffer only smooths; a full one makes the supervisor wait.
const changeBuffer = 1024

// Run runs the controllers until ctx ends or something fails that they cannot do without.
func (r *Runtime) Run(ctx context.Context) error {
	restConfig, err := clientcmd.BuildConfigFromFlags("", r.options.Kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	return r.RunWith(ctx, restConfig)
}

// RunWith is Run with a management cluster that the caller has connected to.
func (r *Runtime) RunWith(ctx context.Context, restConfig *rest.Config) error {
	catalog, err := release.Load(r.options.ReleaseCatalog)
	if err != nil {
		return err
	}
	scheme, err := contract.NewScheme()
	if err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS, restConfig.Burst = -1, 0 // the server limits us fairly; a second limit here would only delay
	restConfig.UserAgent = contract.OperatorManager
	ctrllog.SetLogger(logr.FromSlogHandler(r.log.Handler()))

	if r.options.CRDDir != "" {
		r.await("the CustomResourceDefinitions")
		installer, err := client.NewWithWatch(restConfig, client.Options{Scheme: scheme})
		if err != nil {
			return fmt.Errorf("connecting to the management cluster: %w", err)
		}
		if err := crd.Install(ctx, installer, r.options.CRDDir); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(restConfig, ctrl.Options{
		Scheme:  scheme,
		Logger:  logr.FromSlogHandler(r.log.Handler()),
		Metrics: metricsserver.Options{BindAddress: "0"}, // the process serves them itself
		Controller: config.Controller{
			SkipNameValidation: new(true), RecoverPanic: new(true),
			// The priority queue of this version blocks for ever, with its lock held, when it hands out an item while it
			// is shut down; the manager then does not end.
			UsePriorityQueue: new(false),
		},
	})
	if err != nil {
		return fmt.Errorf("connecting to the management cluster: %w", err)
	}
	return r.runControllers(ctx, manager, catalog)
}

func (r *Runtime) runControllers(ctx context.Context, manager ctrl.Manager, catalog *release.Catalog) error {
	// Ended as soon as the controllers are, for nobody takes changes any more then.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clusterChanges, poolChanges := make(chan event.GenericEvent, changeBuffer), make(chan event.GenericEvent, changeBuffer)
	connect := connector(manager.GetClient())
	keeper := node.NewKeeper(connect, r.log)
	defer keeper.Close()
	changed := func(name string) event.GenericEvent {
		return event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	guests := guest.NewFollower(follow.Connect(connect), func(controlPlane string) {
		select {
		case clusterChanges <- changed(controlPlane):
		case <-ctx.Done():
		}
	}, r.log)
	defer guests.Close()

	pods := demand.NewFollower(follow.Connect(connect), func(controlPlane string) {
		select {
		case poolChanges <- changed(controlPlane):
		case <-ctx.Done():
		}
	}, r.log)
	defer pods.Close()

	// Each controller waits for its own writes only: those of another wake it where they matter to it.
	management := func() *ownwrites.Client { return ownwrites.New(manager.GetClient(), manager.GetAPIReader()) }
	uses := auditlog.NewReporter(ctx, manager.GetClient(), r.log)
	clusters := &hostedcluster.Reconciler{
		Management: management(), Live: manager.GetAPIReader(), Releases: catalog, Scale: schedule.Scale(r.options.TimeScale),
		Fidelity: hostedcluster.Fidelity(r.options.Fidelity), Guests: guests, Log: r.log,
		Removed: func(controlPlane string) {
			keeper.Forget(controlPlane)
			guests.Forget(controlPlane)
			pods.Forget(controlPlane)
			uses.Forget(controlPlane)
		},
	}
	if r.options.canRunProcesses() {
		dir, err := filepath.Abs(r.options.StateDir)
		if err != nil {
			return fmt.Errorf("--state-dir: %w", err)
		}
		supervisor, err := hostedapi.NewSupervisor(hostedapi.Options{
			APIServer: r.options.APIServer, EtcdServers: r.options.EtcdServers, Dir: dir,
			Ports: r.options.Ports, ConcurrentStarts: r.options.ConcurrentStarts, Used: uses.Used, Log: r.log,
			Changed: func(name string) {
				for _, changes := range []chan<- event.GenericEvent{clusterChanges, poolChanges} {
					select {
					case changes <- changed(name):
					case <-ctx.Done():
					}
				}
			},
		})
		if err != nil {
			return err
		}
		r.supervisor.Store(supervisor)
		defer supervisor.Close()
		clusters.ControlPlanes = supervisor
	}
	pools := &nodepool.Reconciler{
		Management: management(), Live: manager.GetAPIReader(), Releases: catalog, Scale: schedule.Scale(r.options.TimeScale),
		Nodes: keeper, Pods: pods, Log: r.log,
	}
	if err := clusters.SetupWithManager(manager, clusterChanges); err != nil {
		return fmt.Errorf("setting up the hosted cluster controller: %w", err)
	}
	if err := pools.SetupWithManager(manager, poolChanges); err != nil {
		return fmt.Errorf("setting up the node pool controller: %w", err)
	}
	signers := &breakglass.Operator{Management: management(), Probe: breakglass.APIProber{Management: manager.GetClient()}, Log: r.log}
	if err := signers.SetupWithManager(manager); err != nil {
		return err
	}
	if err := uses.SetupWithManager(manager); err != nil {
		return err
	}
	r.await("the caches")
	if err := registerInformers(ctx, manager.GetCache()); err != nil {
		return err
	}
	synced := make(chan struct{})
	go func() {
		defer close(synced)
		if manager.GetCache().WaitForCacheSync(ctx) {
			r.ready.Store(nil)
			r.log.Info("reconciling hosted clusters", "fidelity", r.options.Fidelity, "timeScale", r.options.TimeScale)
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

// registerInformers names everything that the controllers read before the cache starts. They would do so themselves as they
// start, but then WaitForCacheSync knows of nothing to wait for and the runtime calls itself ready too early.
func registerInformers(ctx context.Context, informers cache.Informers) error {
	for _, object := range []client.Object{
		&hyperv1.HostedCluster{}, &hyperv1.HostedControlPlane{}, &hyperv1.ControlPlaneComponent{}, &hyperv1.NodePool{},
		&corev1.Namespace{}, &corev1.Secret{}, &corev1.ConfigMap{},
		&certificatesv1.CertificateSigningRequest{}, &certificatesv1alpha1.CertificateSigningRequestApproval{}, &certificatesv1alpha1.CertificateRevocationRequest{},
	} {
		if _, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	return nil
}

// connector reaches hosted clusters with the administrator's kubeconfig in their control-plane namespaces.
func connector(management client.Reader) node.Connect {
	return func(ctx context.Context, controlPlane string) (*rest.Config, error) {
		var secret corev1.Secret
		if err := management.Get(ctx, client.ObjectKey{Namespace: controlPlane, Name: contract.AdminKubeconfigSecret}, &secret); err != nil {
			return nil, fmt.Errorf("getting the kubeconfig of %s: %w", controlPlane, err)
		}
		restConfig, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
		if err != nil {
			return nil, fmt.Errorf("reading the kubeconfig of %s: %w", controlPlane, err)
		}
		return restConfig, nil
	}
}

// Package hostedpods runs hosted control planes as pods of the management cluster: an etcd with a volume of its own and a real
// kube-apiserver for each, in the namespace of the control plane. Package hostedapi has their specification, and runs them as processes
// where no nodes exist.
//
// The objects live as long as the namespace, and so does the data. The kubelet copies changed files to a pod when the pod changes, so an annotation
// of the pods has the digest of the files; without it, the kubelet would copy them within about a minute. Other changes replace the pod of the API
// server, the old one after the new one is ready.
package hostedpods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// Options configure ControlPlanes.
type Options struct {
	// Management reads Deployments and StatefulSets from a cache, and writes. Live reads past the cache.
	Management client.Client
	Live       client.Reader
	// APIServerImage and EtcdImage are the images of kube-apiserver and etcd, by digest.
	APIServerImage, EtcdImage string
	// OnChange is called with a control plane's name when its State changed without a change of its objects. It must not block for long.
	OnChange func(name string)
	Log      *slog.Logger
}

// ControlPlanes runs the control planes of one management cluster. It is safe for concurrent use. The owner calls Ensure and State again
// when the Deployment or the StatefulSet of a control plane changes.
type ControlPlanes struct {
	options Options
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	planes map[string]*plane
}

// plane is what this process knows about a control plane.
type plane struct {
	// applied identifies the objects that were applied last; empty for none.
	applied string
	// readers is the API server to which this process has given, or gives, the rights of readers, and settled is true when it has.
	readers string
	settled bool
	stop    context.CancelFunc
}

const (
	// requestTimeout bounds the requests of one call.
	requestTimeout = 30 * time.Second
	// firstPause and lastPause bound the pause before the rights of readers are applied again.
	firstPause, lastPause = 200 * time.Millisecond, 10 * time.Second
	// fieldManager owns the fields of the objects.
	fieldManager = client.FieldOwner(contract.ControlPlaneManager)
)

// New returns ControlPlanes. The caller must call Close.
func New(options Options) *ControlPlanes {
	ctx, stop := context.WithCancel(context.Background())
	return &ControlPlanes{options: options, ctx: ctx, stop: stop, planes: map[string]*plane{}}
}

// Close ends what this process does for control planes. Their pods continue.
func (c *ControlPlanes) Close() {
	c.stop()
	c.running.Wait()
}

// plane returns the record of a control plane. The caller holds the lock.
func (c *ControlPlanes) plane(name string) *plane {
	p := c.planes[name]
	if p == nil {
		p = &plane{stop: func() {}}
		c.planes[name] = p
	}
	return p
}

// Ensure creates or updates the objects of a control plane according to spec, and returns its state without waiting for the pods.
func (c *ControlPlanes) Ensure(spec hostedapi.Spec) (hostedapi.State, error) {
	if err := spec.Validate(); err != nil {
		return hostedapi.State{}, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	etcd, err := c.etcdCertificates(ctx, spec.Name)
	if err != nil {
		return hostedapi.State{}, err
	}
	objects, content, files, err := render(&spec, etcd, c.options.APIServerImage, c.options.EtcdImage)
	if err != nil {
		return hostedapi.State{}, fmt.Errorf("hosted control plane %s: %w", spec.Name, err)
	}
	server, complete, err := c.read(ctx, spec.Name)
	if err != nil {
		return hostedapi.State{}, err
	}
	c.mu.Lock()
	current := complete && c.plane(spec.Name).applied == content
	c.mu.Unlock()
	if !current {
		if err := c.apply(ctx, objects); err != nil {
			return hostedapi.State{}, fmt.Errorf("hosted control plane %s: %w", spec.Name, err)
		}
		if err := c.announceFiles(ctx, spec.Name, files); err != nil {
			return hostedapi.State{}, fmt.Errorf("hosted control plane %s: %w", spec.Name, err)
		}
		c.mu.Lock()
		c.plane(spec.Name).applied = content
		c.mu.Unlock()
	}
	if available(server) {
		c.giveReaders(&spec, string(server.UID))
	}
	return c.state(spec.Name, server), nil
}

// apply applies objects in their order.
func (c *ControlPlanes) apply(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		configuration, err := applyConfiguration(object)
		if err != nil {
			return err
		}
		if err := c.options.Management.Apply(ctx, configuration, fieldManager, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %T %s: %w", object, object.GetName(), err)
		}
	}
	return nil
}

// announceFiles annotates the pods of an API server with the digest of its files, so that their kubelets copy the files at once.
func (c *ControlPlanes) announceFiles(ctx context.Context, name, files string) error {
	var pods corev1.PodList
	if err := c.options.Live.List(ctx, &pods, client.InNamespace(name), client.MatchingLabels(labels(apiServerName))); err != nil {
		return fmt.Errorf("listing the pods of the API server: %w", err)
	}
	for _, pod := range pods.Items {
		if !pod.DeletionTimestamp.IsZero() || pod.Annotations[filesAnnotation] == files {
			continue
		}
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, filesAnnotation, files))
		if err := c.options.Management.Patch(ctx, &pod, patch, fieldManager); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotating pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// read returns the Deployment of the API server, or nil. complete is true if etcd's StatefulSet exists, too.
func (c *ControlPlanes) read(ctx context.Context, name string) (server *appsv1.Deployment, complete bool, err error) {
	deployment, set := &appsv1.Deployment{}, &appsv1.StatefulSet{}
	err = c.options.Management.Get(ctx, client.ObjectKey{Namespace: name, Name: apiServerName}, deployment)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("getting Deployment %s/%s: %w", name, apiServerName, err)
	}
	err = c.options.Management.Get(ctx, client.ObjectKey{Namespace: name, Name: etcdName}, set)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("getting StatefulSet %s/%s: %w", name, etcdName, err)
	}
	return deployment, err == nil, nil
}

// available reports whether the API server has a ready pod.
func available(server *appsv1.Deployment) bool {
	return server != nil && server.DeletionTimestamp.IsZero() && server.Status.AvailableReplicas > 0
}

// State returns the state of a control plane; ok is false if its API server does not exist.
func (c *ControlPlanes) State(name string) (state hostedapi.State, ok bool) {
	ctx, cancel := context.WithTimeout(c.ctx, requestTimeout)
	defer cancel()
	server, _, err := c.read(ctx, name)
	if err != nil || server == nil {
		return hostedapi.State{}, false
	}
	return c.state(name, server), true
}

// state returns the state of a control plane with an API server, which may be nil.
func (c *ControlPlanes) state(name string, server *appsv1.Deployment) hostedapi.State {
	state := hostedapi.State{Host: serviceHost(apiServerName, name), Port: apiServerPort, Settled: true}
	c.mu.Lock()
	var p plane
	if known := c.planes[name]; known != nil {
		p = *known
	}
	c.mu.Unlock()
	switch {
	case server == nil:
		state.Message = "The API server has not been created yet"
	case !available(server):
		state.Message = notAvailable(server)
	case p.readers != string(server.UID) || !p.settled:
		// It runs, and was ready before this process began to watch it.
		state.Settled, state.Message = false, "The API server is ready, and its readers get their rights"
	default:
		state.Ready = true
	}
	return state
}

// notAvailable returns why the API server has no ready pod.
func notAvailable(server *appsv1.Deployment) string {
	for _, condition := range server.Status.Conditions {
		if condition.Type == appsv1.DeploymentAvailable && condition.Status != corev1.ConditionTrue {
			return "The API server has no ready pod: " + condition.Message
		}
	}
	return "The API server has no ready pod yet"
}

// giveReaders starts to give the group of readers its rights in a control plane, once for each API server.
func (c *ControlPlanes) giveReaders(spec *hostedapi.Spec, server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.plane(spec.Name)
	if p.readers == server || c.ctx.Err() != nil {
		return
	}
	p.stop()
	ctx, stop := context.WithCancel(c.ctx)
	p.readers, p.settled, p.stop = server, false, stop
	name, config := spec.Name, &rest.Config{
		Host: "https://" + serviceHost(apiServerName, spec.Name) + ":" + strconv.Itoa(apiServerPort), Timeout: requestTimeout,
		TLSClientConfig: rest.TLSClientConfig{CAData: spec.ServingCA, CertData: spec.Admin.Cert, KeyData: spec.Admin.Key},
	}
	c.running.Go(func() {
		defer stop()
		if err := ensureReaders(ctx, config); err != nil {
			if ctx.Err() == nil {
				c.options.Log.Error("giving readers of a hosted cluster their rights failed", logkey.ControlPlane, name, logkey.Error, err)
			}
			return
		}
		c.mu.Lock()
		settled := c.planes[name] == p && p.readers == server
		p.settled = p.settled || settled
		c.mu.Unlock()
		if settled {
			c.options.OnChange(name)
		}
	})
}

// ensureReaders retries until ctx ends.
func ensureReaders(ctx context.Context, config *rest.Config) error {
	hosted, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	for pauses := backoff.New(firstPause, lastPause); ; {
		err := hostedclient.EnsureReaders(ctx, hosted)
		if err == nil {
			return nil
		}
		if waited := pauses.Wait(ctx); waited != nil {
			return errors.Join(waited, err)
		}
	}
}

// Remove deletes the objects of a control plane with its data. Pods and volumes disappear afterwards; the namespace cannot disappear before
// them. It is idempotent.
func (c *ControlPlanes) Remove(ctx context.Context, name string) error {
	c.mu.Lock()
	if p := c.planes[name]; p != nil {
		p.stop()
		delete(c.planes, name)
	}
	c.mu.Unlock()
	for _, object := range identities(name) {
		if err := c.options.Management.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s/%s: %w", object, name, object.GetName(), err)
		}
	}
	return nil
}

// Running returns the number of ready API servers and of all that this process ensures.
func (c *ControlPlanes) Running() (ready, all int) {
	c.mu.Lock()
	names := make([]string, 0, len(c.planes))
	for name := range c.planes {
		names = append(names, name)
	}
	c.mu.Unlock()
	for _, name := range names {
		state, ok := c.State(name)
		if ok && state.Ready {
			ready++
		}
	}
	return ready, len(names)
}

// Package guest follows, inside hosted clusters, the secrets that their owners provide for the platform: those in the
// namespace openshift-config. It makes that namespace, and remembers of each secret only which keys are set, never a value.
// A Follower owns one watch per hosted cluster for as long as somebody there is waited for.
package guest

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// ConfigNamespace is where the owner of a cluster puts what the platform refers to.
const ConfigNamespace = "openshift-config"

// retry is how long a hosted cluster that could not be reached is left alone.
const retry = time.Second

// Connect returns how to reach a hosted cluster as its administrator.
type Connect func(ctx context.Context, controlPlane string) (*rest.Config, error)

// Follower follows the secrets of many hosted clusters, named by their control-plane namespaces.
type Follower struct {
	connect Connect
	// changed is called with a control plane of whose secrets something else is known now.
	changed func(controlPlane string)
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
}

// cluster is what is known of one hosted cluster.
type cluster struct {
	host  string
	stop  context.CancelFunc
	known bool
	// keys are those that are set, by secret.
	keys map[string]map[string]bool
}

// NewFollower returns a follower of nothing. Close must be called.
func NewFollower(connect Connect, changed func(controlPlane string), log *slog.Logger) *Follower {
	ctx, cancel := context.WithCancel(context.Background())
	return &Follower{connect: connect, changed: changed, log: log, ctx: ctx, cancel: cancel, clusters: map[string]*cluster{}}
}

// Close ends all watches and waits for them.
func (f *Follower) Close() {
	f.cancel()
	f.wg.Wait()
}

// Has reports whether a secret has a key, and begins to follow the hosted cluster if it is not followed yet. Until its
// secrets have been listed nothing is known; changed is called when that is over.
func (f *Follower) Has(ctx context.Context, controlPlane, secret, key string) (has, known bool) {
	config, err := f.connect(ctx, controlPlane)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false, false
	}
	if err != nil {
		// Its kubeconfig was written a moment ago and is not seen yet, or is about to be written.
		f.log.Debug("a hosted cluster cannot be reached yet", "controlPlane", controlPlane, "error", err)
		f.wg.Go(func() { f.soon(controlPlane) })
		return false, false
	}
	c := f.clusters[controlPlane]
	if c != nil && c.host != config.Host {
		c.stop()
		c = nil
	}
	if c == nil {
		following, stop := context.WithCancel(f.ctx)
		c = &cluster{host: config.Host, stop: stop, keys: map[string]map[string]bool{}}
		f.clusters[controlPlane] = c
		f.wg.Go(func() { f.follow(following, controlPlane, c, rest.CopyConfig(config)) })
	}
	return c.keys[secret][key], c.known
}

// soon has a control plane looked at again.
func (f *Follower) soon(controlPlane string) {
	select {
	case <-f.ctx.Done():
	case <-time.After(retry / 10):
		f.changed(controlPlane)
	}
}

// Forget ends the watch of a hosted cluster, which is about to go away or has nobody to wait for.
func (f *Follower) Forget(controlPlane string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := f.clusters[controlPlane]; c != nil {
		c.stop()
		delete(f.clusters, controlPlane)
	}
}

func (f *Follower) follow(ctx context.Context, controlPlane string, c *cluster, config *rest.Config) {
	config.QPS, config.Burst = -1, 0
	config.UserAgent = "hosted-cluster-config-operator/hcpmesh"
	for ctx.Err() == nil {
		if err := f.watch(ctx, controlPlane, c, config); err != nil && ctx.Err() == nil {
			f.log.Warn("the secrets of a hosted cluster could not be followed", "controlPlane", controlPlane, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// watch follows until ctx is over; the informer lists and watches again by itself.
func (f *Follower) watch(ctx context.Context, controlPlane string, c *cluster, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ConfigNamespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making namespace %s: %w", ConfigNamespace, err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(ConfigNamespace), informers.WithTransform(onlyKeys))
	informer := factory.Core().V1().Secrets().Informer()
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { f.learn(controlPlane, c, object) },
		UpdateFunc: func(_, object any) { f.learn(controlPlane, c, object) },
		DeleteFunc: func(object any) { f.unlearn(controlPlane, c, object) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		f.mu.Lock()
		c.known = true
		f.mu.Unlock()
		f.changed(controlPlane)
	}
	<-ctx.Done()
	return nil
}

// onlyKeys drops every value before it is kept.
func onlyKeys(object any) (any, error) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return object, nil
	}
	bare := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: secret.Name, UID: secret.UID, ResourceVersion: secret.ResourceVersion},
		Data: map[string][]byte{}}
	for key, value := range secret.Data {
		if len(value) > 0 {
			bare.Data[key] = nil
		}
	}
	return bare, nil
}

func (f *Follower) learn(controlPlane string, c *cluster, object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	keys := map[string]bool{}
	for key := range secret.Data {
		keys[key] = true
	}
	f.mu.Lock()
	c.keys[secret.Name] = keys
	known := c.known
	f.mu.Unlock()
	if known {
		f.changed(controlPlane)
	}
}

func (f *Follower) unlearn(controlPlane string, c *cluster, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	f.mu.Lock()
	delete(c.keys, secret.Name)
	f.mu.Unlock()
	f.changed(controlPlane)
}

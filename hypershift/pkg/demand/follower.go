package demand

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// retry is how long a hosted cluster that could not be reached is left alone.
const retry = time.Second

// Connect returns how to reach a hosted cluster as its administrator.
type Connect func(ctx context.Context, controlPlane string) (*rest.Config, error)

// Follower follows the pods of hosted clusters, named by their control-plane namespaces. It owns one watch per hosted cluster
// that was asked for.
type Follower struct {
	connect Connect
	// changed is called with a control plane whose pods ask for something else now.
	changed func(controlPlane string)
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
}

type cluster struct {
	host  string
	stop  context.CancelFunc
	known bool
	pods  map[string]Pod
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

// Pods are those of a hosted cluster, which is followed from now on. Until they have been listed nothing is known; changed is
// called when that is over.
func (f *Follower) Pods(ctx context.Context, controlPlane string) (pods []Pod, known bool) {
	config, err := f.connect(ctx, controlPlane)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.ctx.Err() != nil {
		return nil, false
	}
	c := f.clusters[controlPlane]
	if c != nil && c.host != config.Host {
		c.stop()
		c = nil
	}
	if c == nil {
		following, stop := context.WithCancel(f.ctx)
		c = &cluster{host: config.Host, stop: stop, pods: map[string]Pod{}}
		f.clusters[controlPlane] = c
		f.wg.Go(func() { f.follow(following, controlPlane, c, rest.CopyConfig(config)) })
	}
	for _, pod := range c.pods {
		pods = append(pods, pod)
	}
	return pods, c.known
}

// Forget ends the watch of a hosted cluster, which is about to go away or has no pool left that autoscales.
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
	config.UserAgent = "cluster-autoscaler/hcpmesh"
	for ctx.Err() == nil {
		if err := f.watch(ctx, controlPlane, c, config); err != nil && ctx.Err() == nil {
			f.log.Warn("the pods of a hosted cluster could not be followed", "controlPlane", controlPlane, "error", err)
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
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(essence))
	informer := factory.Core().V1().Pods().Informer()
	learn := func(object any) {
		if pod, ok := object.(*corev1.Pod); ok {
			f.learn(controlPlane, c, pod)
		}
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: learn, UpdateFunc: func(_, object any) { learn(object) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				f.unlearn(controlPlane, c, pod.Namespace+"/"+pod.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
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

// essence drops what does not decide on a pod's place before it is kept.
func essence(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	bare := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		OwnerReferences: pod.OwnerReferences, DeletionTimestamp: pod.DeletionTimestamp}}
	bare.Spec.NodeName, bare.Spec.NodeSelector, bare.Spec.Tolerations, bare.Spec.Priority = pod.Spec.NodeName, pod.Spec.NodeSelector, pod.Spec.Tolerations, pod.Spec.Priority
	bare.Status.Phase = pod.Status.Phase
	for i := range pod.Spec.Containers {
		bare.Spec.Containers = append(bare.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{Requests: pod.Spec.Containers[i].Resources.Requests}})
	}
	return bare, nil
}

// read makes a pod of ours; ok is false for one that needs no place any more.
func read(pod *corev1.Pod) (p Pod, ok bool) {
	if !pod.DeletionTimestamp.IsZero() || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return Pod{}, false
	}
	p = Pod{Name: pod.Namespace + "/" + pod.Name, Node: pod.Spec.NodeName, Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	for i := range pod.Spec.Containers {
		requests := pod.Spec.Containers[i].Resources.Requests
		p.MilliCPU += requests.Cpu().MilliValue()
		p.Bytes += requests.Memory().Value()
	}
	if pod.Spec.Priority != nil {
		p.Priority = *pod.Spec.Priority
	}
	for _, owner := range pod.OwnerReferences {
		p.Daemon = p.Daemon || owner.Kind == "DaemonSet"
	}
	return p, true
}

func (f *Follower) learn(controlPlane string, c *cluster, pod *corev1.Pod) {
	p, wanted := read(pod)
	if !wanted {
		f.unlearn(controlPlane, c, pod.Namespace+"/"+pod.Name)
		return
	}
	f.mu.Lock()
	before, had := c.pods[p.Name]
	c.pods[p.Name] = p
	// Of a pod that exists only its place changes.
	tell := c.known && (!had || before.Node != p.Node)
	f.mu.Unlock()
	if tell {
		f.changed(controlPlane)
	}
}

func (f *Follower) unlearn(controlPlane string, c *cluster, name string) {
	f.mu.Lock()
	_, had := c.pods[name]
	delete(c.pods, name)
	tell := c.known && had
	f.mu.Unlock()
	if tell {
		f.changed(controlPlane)
	}
}

package stubkubelet

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// requestTimeout bounds a request to the API server of a cluster.
	requestTimeout = 10 * time.Second
	// firstPause and lastPause bound the pause before a write that failed is repeated.
	firstPause, lastPause = 50 * time.Millisecond, 10 * time.Second
)

// cluster is one cluster whose nodes are served.
type cluster struct {
	server    *Server
	name      string
	authority *x509.Certificate
	client    kubernetes.Interface
	ctx       context.Context
	stop      context.CancelFunc
	// queue holds the pods whose status may have to be written.
	queue workqueue.TypedRateLimitingInterface[types.NamespacedName]

	mu      sync.Mutex
	nodes   map[string]*corev1.Node
	pods    map[types.NamespacedName]*pod
	streams map[string]int // by node
	// changed is closed and replaced when a pod or a node changed.
	changed chan struct{}
}

// pod is a pod of a simulated node. Its streams end with the context, and its files are deleted then.
type pod struct {
	object *corev1.Pod
	ctx    context.Context
	end    context.CancelFunc
	files  map[string]*fileSystem // by container
}

func newCluster(server *Server, name string, authority *x509.Certificate, client kubernetes.Interface) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	return &cluster{
		server: server, name: name, authority: authority, client: client, ctx: ctx, stop: stop,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstPause, lastPause)),
		nodes: map[string]*corev1.Node{}, pods: map[types.NamespacedName]*pod{}, streams: map[string]int{}, changed: make(chan struct{}),
	}
}

// signs reports whether the cluster's authority has a key identifier.
func (c *cluster) signs(keyID []byte) bool {
	return len(keyID) > 0 && bytes.Equal(c.authority.SubjectKeyId, keyID)
}

// run watches nodes and pods until the cluster is stopped. The informers repeat failed lists and watches.
func (c *cluster) run() {
	defer c.endAll()
	bound := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	})
	pods := informers.NewSharedInformerFactoryWithOptions(c.client, 0, bound, informers.WithTransform(trimPod)).Core().V1().Pods().Informer()
	nodes := informers.NewSharedInformerFactoryWithOptions(c.client, 0, informers.WithTransform(trimNode)).Core().V1().Nodes().Informer()
	_, err := pods.AddEventHandler(handlers(c.setPod, c.removePod))
	_, nodesErr := nodes.AddEventHandler(handlers(c.setNode, c.removeNode))
	if err := errors.Join(err, nodesErr); err != nil {
		c.server.options.Log.Error("watching simulated nodes failed", logkey.ControlPlane, c.name, logkey.Error, err)
		return
	}
	var running sync.WaitGroup
	running.Go(func() { nodes.RunWithContext(c.ctx) })
	running.Go(func() { pods.RunWithContext(c.ctx) })
	running.Go(c.writeStatuses)
	<-c.ctx.Done()
	c.queue.ShutDown()
	running.Wait()
}

// trimPod removes the managed fields of a pod before the informer stores it. A write without them keeps them.
func trimPod(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		p.ManagedFields = nil
	}
	return object, nil
}

// trimNode removes the fields of a node that are not used before the informer stores it.
func trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	bare := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion}}
	bare.Status.DaemonEndpoints, bare.Status.Conditions, bare.Status.Addresses = n.Status.DaemonEndpoints, n.Status.Conditions, n.Status.Addresses
	return bare, nil
}

// handlers returns an event handler for objects of one type.
func handlers[T any](set, remove func(T)) cache.ResourceEventHandlerFuncs {
	with := func(function func(T)) func(any) {
		return func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if typed, ok := object.(T); ok {
				function(typed)
			}
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: with(set), UpdateFunc: func(_, object any) { with(set)(object) }, DeleteFunc: with(remove)}
}

func nameOf(object *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

func (c *cluster) setPod(object *corev1.Pod) {
	name := nameOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	existing := c.pods[name]
	if existing != nil && (existing.object.UID != object.UID || !object.DeletionTimestamp.IsZero() || finished(object)) {
		c.endPod(existing)
		existing = nil
	}
	if existing == nil {
		existing = c.newPod(object)
		c.pods[name] = existing
	}
	existing.object = object
	c.notify()
	c.queue.Add(name)
}

// newPod returns the state of a pod without streams.
func (c *cluster) newPod(object *corev1.Pod) *pod {
	p := &pod{object: object, files: map[string]*fileSystem{}}
	p.ctx, p.end = context.WithCancel(c.ctx)
	return p
}

// endPod ends the streams of a pod and deletes its files. The caller holds the lock.
func (c *cluster) endPod(p *pod) {
	p.end()
	for _, files := range p.files {
		files.close()
	}
	clear(p.files)
}

func (c *cluster) removePod(object *corev1.Pod) {
	name := nameOf(object)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pods[name]; p != nil {
		c.endPod(p)
		delete(c.pods, name)
	}
	c.notify()
}

func (c *cluster) setNode(object *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state(c.nodes[object.Name])
	c.nodes[object.Name] = object
	c.nodeChanged(object.Name, before)
}

func (c *cluster) removeNode(object *corev1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.state(c.nodes[object.Name])
	delete(c.nodes, object.Name)
	c.nodeChanged(object.Name, before)
}

// nodeState is what a node's kubelet does.
type nodeState int

const (
	// nodeForeign is the state of a node that does not exist or is not served here.
	nodeForeign nodeState = iota
	nodeUnreachable
	nodeStarting
	nodeReady
)

// state returns the state of a node, which may be nil.
func (c *cluster) state(n *corev1.Node) nodeState {
	if n == nil || n.Status.DaemonEndpoints.KubeletEndpoint.Port != c.server.port {
		return nodeForeign
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			switch condition.Status {
			case corev1.ConditionTrue:
				return nodeReady
			case corev1.ConditionUnknown:
				return nodeUnreachable
			}
		}
	}
	return nodeStarting
}

// nodeChanged ends the streams of a node's pods when its kubelet is gone, and considers the status of its pods. The caller holds the lock.
func (c *cluster) nodeChanged(name string, before nodeState) {
	now := c.state(c.nodes[name])
	if now == before {
		return
	}
	for key, p := range c.pods {
		if p.object.Spec.NodeName != name {
			continue
		}
		if now < nodeStarting {
			c.endPod(p)
			c.pods[key] = c.newPod(p.object)
		}
		c.queue.Add(key)
	}
	c.notify()
}

// notify wakes the requests that wait for a pod. The caller holds the lock.
func (c *cluster) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *cluster) endAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pods {
		c.endPod(p)
	}
	clear(c.pods)
	c.notify()
}

func finished(object *corev1.Pod) bool {
	return object.Status.Phase == corev1.PodSucceeded || object.Status.Phase == corev1.PodFailed
}

// await returns the running pod of a name. It reads the pod from the API server first, because the watch may be behind.
func (c *cluster) await(ctx context.Context, name types.NamespacedName) (*pod, *corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	object, err := c.client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, &refusal{http.StatusNotFound, fmt.Sprintf("pod %s does not exist", name)}
	case err != nil:
		return nil, nil, &refusal{http.StatusServiceUnavailable, fmt.Sprintf("the simulated kubelet cannot read pod %s: %v", name, err)}
	case !object.DeletionTimestamp.IsZero():
		return nil, nil, &refusal{http.StatusNotFound, fmt.Sprintf("pod %s is being deleted", name)}
	case finished(object):
		return nil, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("pod %s is %s", name, object.Status.Phase)}
	}
	for {
		c.mu.Lock()
		p, node, changed := c.pods[name], c.state(c.nodes[object.Spec.NodeName]), c.changed
		known := p != nil && p.ctx.Err() == nil && p.object.UID == object.UID
		if known && node == nodeReady && p.object.Status.Phase == corev1.PodRunning {
			running := p.object
			c.mu.Unlock()
			return p, running, nil
		}
		c.mu.Unlock()
		if known && node == nodeUnreachable {
			return nil, nil, &refusal{http.StatusServiceUnavailable, fmt.Sprintf("the kubelet of node %s does not respond (simulated)", object.Spec.NodeName)}
		}
		select {
		case <-changed:
		case <-c.ctx.Done():
			return nil, nil, &refusal{http.StatusServiceUnavailable, "the cluster is being deleted"}
		case <-ctx.Done():
			switch node {
			case nodeForeign:
				return nil, nil, &refusal{http.StatusNotFound, fmt.Sprintf("pod %s is on no simulated node of this cluster", name)}
			case nodeStarting:
				return nil, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("pod %s waits to start: node %s is not ready", name, object.Spec.NodeName)}
			}
			return nil, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("pod %s is not running", name)}
		}
	}
}

// acquire counts a stream of a node, or returns why there may be no more.
func (c *cluster) acquire(node string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for _, n := range c.streams {
		all += n
	}
	if all >= MaxStreamsOfCluster || c.streams[node] >= MaxStreamsOfNode {
		return &refusal{http.StatusTooManyRequests, fmt.Sprintf("a simulated node has at most %d streams, and a cluster %d", MaxStreamsOfNode, MaxStreamsOfCluster)}
	}
	c.streams[node]++
	return nil
}

func (c *cluster) release(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[node]--; c.streams[node] == 0 {
		delete(c.streams, node)
	}
}

// fileSystem returns the files of a container, which begin with those of an image.
func (c *cluster) fileSystem(p *pod, object *corev1.Pod, container string) *fileSystem {
	c.mu.Lock()
	defer c.mu.Unlock()
	files := p.files[container]
	if files == nil {
		files = newFileSystem(c.server.files, object)
		if p.ctx.Err() != nil { // nobody would delete them
			files.close()
			return files
		}
		p.files[container] = files
	}
	return files
}

package nodepool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedclient"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// leaseDuration and renewInterval are four times a kubelet's, with the same ratio. Nothing here reacts to leases
	// quickly, and an idle control plane should cause little load.
	leaseDuration = 160 * time.Second
	renewInterval = 40 * time.Second
	// writers bounds the number of concurrent writes to the nodes of one pool.
	writers = 8
)

// NodeManager manages the nodes of many hosted clusters, which are identified by their control-plane namespaces. No kubelet
// runs there: it registers Node objects in the real hosted API servers, reports them Ready, and renews their leases as
// kubelets do. Callers pass the desired nodes of a pool; between the calls it only renews leases. It must never change a
// node without the label of one of the pools. It is safe for concurrent use.
type NodeManager struct {
	connect  hostedclient.Connect
	kubelets Kubelets
	log      *slog.Logger
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
}

// Kubelets serves the kubelet API of nodes.
type Kubelets interface {
	// Serve serves the nodes of a hosted cluster. authority signs the certificate with which its API server connects.
	Serve(controlPlane string, config *rest.Config, authority []byte) error
	// Forget ends all streams of a hosted cluster.
	Forget(controlPlane string)
	// Announce adds the address of the kubelet to the status of a node.
	Announce(status *corev1.NodeStatus)
}

// NewNodeManager returns a NodeManager without nodes. kubelets is nil if the nodes have no kubelets. The caller must call Close.
func NewNodeManager(connect hostedclient.Connect, kubelets Kubelets, log *slog.Logger) *NodeManager {
	ctx, cancel := context.WithCancel(context.Background())
	return &NodeManager{connect: connect, kubelets: kubelets, log: log, ctx: ctx, cancel: cancel, clusters: map[string]*cluster{}}
}

// Close stops the renewal of leases and waits for it. The nodes remain registered.
func (m *NodeManager) Close() {
	// The lock prevents that a renewal starts during or after the wait.
	m.mu.Lock()
	m.cancel()
	m.mu.Unlock()
	m.wg.Wait()
}

// cluster is one hosted cluster with the goroutine that renews the leases of its nodes.
type cluster struct {
	name   string
	config *rest.Config
	client kubernetes.Interface
	stop   context.CancelFunc

	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease // by node
}

// Sync makes the nodes of a pool in the hosted cluster equal to desired, and returns which of them are Ready. It fails
// if the hosted API server cannot be reached; the caller then retries.
func (m *NodeManager) Sync(ctx context.Context, controlPlane, pool string, desired []Node) (map[string]bool, error) {
	c, err := m.cluster(ctx, controlPlane)
	if err != nil {
		return nil, err
	}
	existing, err := c.list(ctx, pool)
	if err != nil {
		return nil, err
	}
	now := metav1.Now()
	ready := map[string]bool{}
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, writers)
	run := func(function func() error) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := function(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	for i := range desired {
		n := &desired[i]
		if m.kubelets != nil {
			n.announce = m.kubelets.Announce
		}
		object := existing[n.Name]
		delete(existing, n.Name)
		run(func() error {
			if err := c.ensure(ctx, pool, n, object, now); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			ready[n.Name] = n.Ready
			return nil
		})
	}
	for name := range existing {
		run(func() error { return c.remove(ctx, name) })
	}
	wg.Wait()
	return ready, errors.Join(errs...)
}

// Forget stops all work for a hosted cluster that is about to be deleted.
func (m *NodeManager) Forget(controlPlane string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[controlPlane]; c != nil {
		c.stop()
		delete(m.clusters, controlPlane)
	}
	if m.kubelets != nil {
		m.kubelets.Forget(controlPlane)
	}
}

// cluster returns the connection to a hosted cluster. It reconnects if the address or the credentials changed.
func (m *NodeManager) cluster(ctx context.Context, name string) (*cluster, error) {
	config, err := m.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clusters[name]; c != nil {
		if hostedclient.Equal(c.config, config) {
			return c, nil
		}
		c.stop()
	}
	if m.ctx.Err() != nil {
		return nil, m.ctx.Err()
	}
	limited := rest.CopyConfig(config)
	limited.QPS, limited.Burst = -1, 0 // the server has fair limits; a second limit here would only delay
	limited.Timeout = 10 * time.Second
	limited.UserAgent = "kubelet/hcpmesh"
	limited.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return nil, fmt.Errorf("connecting to hosted cluster %s: %w", name, err)
	}
	if m.kubelets != nil {
		// The authority of the API server's serving certificate signs its client certificates, too.
		if err := m.kubelets.Serve(name, config, config.CAData); err != nil {
			return nil, err
		}
	}
	renewing, stop := context.WithCancel(m.ctx)
	c := &cluster{name: name, config: config, client: client, stop: stop, leases: map[string]*coordinationv1.Lease{}}
	m.clusters[name] = c
	m.wg.Go(func() { c.renew(renewing, m.log) })
	return c, nil
}

func (c *cluster) list(ctx context.Context, pool string) (map[string]*corev1.Node, error) {
	list, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.Set{hyperv1.NodePoolLabel: pool}.String()})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes of pool %s: %w", pool, err)
	}
	nodes := make(map[string]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[list.Items[i].Name] = &list.Items[i]
	}
	return nodes, nil
}

func (c *cluster) ensure(ctx context.Context, pool string, n *Node, object *corev1.Node, now metav1.Time) error {
	nodes := c.client.CoreV1().Nodes()
	if object == nil {
		object = &corev1.Node{}
		n.apply(pool, object, now)
		created, err := nodes.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			created, err = nodes.Get(ctx, n.Name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		object = created
	}
	specChanged, statusChanged := n.apply(pool, object, now)
	if specChanged {
		updated, err := nodes.Update(ctx, object, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
		// The response has the stored status, because an update of the node does not write the status.
		object = updated
		_, statusChanged = n.apply(pool, object, now)
	}
	if statusChanged {
		if _, err := nodes.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if n.Unreachable {
		c.mu.Lock()
		delete(c.leases, n.Name) // it is not renewed any more
		c.mu.Unlock()
		return nil
	}
	return c.ensureLease(ctx, n.Name)
}

func (c *cluster) ensureLease(ctx context.Context, name string) error {
	c.mu.Lock()
	known := c.leases[name] != nil
	c.mu.Unlock()
	if known {
		return nil
	}
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Create(ctx, newLease(name), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		lease, err = leases.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating its lease: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases[name] = lease
	return nil
}

func newLease(name string) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &name, LeaseDurationSeconds: new(int32(leaseDuration / time.Second)), RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
}

func (c *cluster) remove(ctx context.Context, name string) error {
	c.mu.Lock()
	delete(c.leases, name)
	c.mu.Unlock()
	if err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the lease of node %s: %w", name, err)
	}
	// Pods that are still bound to it terminate with it.
	pods, err := c.pods(ctx, name)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.deletePod(ctx, &pods[i]); err != nil {
			return err
		}
	}
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// renew renews all leases once per renewInterval. A lease that was changed by others is read again and renewed in the
// next round, for which its duration leaves enough time.
func (c *cluster) renew(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(renewInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		c.mu.Lock()
		due := make(map[string]*coordinationv1.Lease, len(c.leases))
		for name, lease := range c.leases {
			due[name] = lease
		}
		c.mu.Unlock()
		for name, lease := range due {
			renewed, err := c.renewOne(ctx, name, lease)
			if err != nil {
				if ctx.Err() == nil {
					log.Warn("renewing a node's lease failed", logkey.ControlPlane, c.name, logkey.Node, name, logkey.Error, err)
				}
				continue
			}
			c.mu.Lock()
			if c.leases[name] != nil { // not removed in the meantime
				c.leases[name] = renewed
			}
			c.mu.Unlock()
		}
	}
}

func (c *cluster) renewOne(ctx context.Context, name string, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	next := lease.DeepCopy()
	next.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	renewed, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err):
		return leases.Get(ctx, name, metav1.GetOptions{})
	case apierrors.IsNotFound(err):
		return leases.Create(ctx, newLease(name), metav1.CreateOptions{})
	}
	return renewed, err
}

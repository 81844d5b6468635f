package node

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
)

const (
	// leaseDuration and renewEvery are four times a kubelet's, whose ratio they keep: nothing here watches leases
	// closely, and an idle control plane shall be idle.
	leaseDuration = 160 * time.Second
	renewEvery    = 40 * time.Second
	// writers bounds how many nodes of one pool are written at once.
	writers = 8
)

// Connect returns how to reach a hosted cluster as its administrator.
type Connect func(ctx context.Context, controlPlane string) (*rest.Config, error)

// Keeper keeps the nodes of many hosted clusters, named by their control-plane namespaces.
type Keeper struct {
	connect Connect
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	clusters map[string]*cluster
}

// NewKeeper returns a keeper of no nodes. Close must be called.
func NewKeeper(connect Connect, log *slog.Logger) *Keeper {
	ctx, cancel := context.WithCancel(context.Background())
	return &Keeper{connect: connect, log: log, ctx: ctx, cancel: cancel, clusters: map[string]*cluster{}}
}

// Close ends all renewals and waits for them. The nodes stay registered.
func (k *Keeper) Close() {
	// Under the lock, so that nothing begins to be renewed once it is waited for.
	k.mu.Lock()
	k.cancel()
	k.mu.Unlock()
	k.wg.Wait()
}

// cluster is one hosted cluster and the goroutine that renews its nodes' leases.
type cluster struct {
	name   string
	host   string
	client kubernetes.Interface
	stop   context.CancelFunc

	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease // by node
}

// Sync makes the nodes of a pool exactly those that are wanted, and returns the names of those that are Ready in the
// hosted cluster. It fails when the hosted API server cannot be reached, and is then to be called again.
func (k *Keeper) Sync(ctx context.Context, controlPlane, pool string, wanted []Node) (map[string]bool, error) {
	c, err := k.cluster(ctx, controlPlane)
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
	for i := range wanted {
		n := &wanted[i]
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

// Forget stops all work for a hosted cluster, which is about to go away.
func (k *Keeper) Forget(controlPlane string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clusters[controlPlane]; c != nil {
		c.stop()
		delete(k.clusters, controlPlane)
	}
}

// cluster returns the connection to a hosted cluster, made anew when its address changed.
func (k *Keeper) cluster(ctx context.Context, name string) (*cluster, error) {
	config, err := k.connect(ctx, name)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.clusters[name]; c != nil {
		if c.host == config.Host {
			return c, nil
		}
		c.stop()
	}
	if k.ctx.Err() != nil {
		return nil, k.ctx.Err()
	}
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = -1, 0 // the server limits us fairly; a second limit here would only delay
	config.Timeout = 10 * time.Second
	config.UserAgent = "kubelet/hcpmesh"
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connecting to hosted cluster %s: %w", name, err)
	}
	renewing, stop := context.WithCancel(k.ctx)
	c := &cluster{name: name, host: config.Host, client: client, stop: stop, leases: map[string]*coordinationv1.Lease{}}
	k.clusters[name] = c
	k.wg.Go(func() { c.renew(renewing, k.log) })
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
		// The answer carries the stored status: an update of the node itself does not write it.
		object = updated
		_, statusChanged = n.apply(pool, object, now)
	}
	if statusChanged {
		if _, err := nodes.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if n.Lost {
		c.mu.Lock()
		delete(c.leases, n.Name) // nobody renews it any more
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
		return fmt.Errorf("making its lease: %w", err)
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
	// Whatever is left on it ends with it.
	pods, err := c.pods(ctx, name)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := c.end(ctx, &pods[i]); err != nil {
			return err
		}
	}
	if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// renew renews every lease once per renewEvery. One that was changed behind our back is read again and renewed next
// time, which the lease's duration leaves room for.
func (c *cluster) renew(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(renewEvery)
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
					log.Warn("a node's lease could not be renewed", "controlPlane", c.name, "node", name, "error", err)
				}
				continue
			}
			c.mu.Lock()
			if c.leases[name] != nil { // removed meanwhile
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

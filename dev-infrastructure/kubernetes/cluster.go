package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes/machine"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

// readyInterval is the interval of the probes of a starting API server.
const readyInterval = 50 * time.Millisecond

// Cluster is a running cluster. It is safe for concurrent use.
type Cluster struct {
	options    Options
	authority  *kubeapi.Authority
	lock       *os.File
	outer      *machine.Machine
	config     *rest.Config
	client     *clientset.Clientset
	kubeconfig string
	// writes accepts the connections that push images.
	writes *memoryListener

	mu sync.Mutex
	// runs holds the last run of each node.
	runs map[string]*nodeRun
	// forwarded are the ports of hosts that ForwardHost forwards.
	forwarded []forwardedPort

	// stop ends background and the goroutines in running.
	background context.Context
	stop       context.CancelFunc
	running    sync.WaitGroup
	close      func() error
}

// Start starts a cluster and returns when its nodes are Ready and its DNS responds. It returns an error of Options.Check on a machine on
// which no cluster can run. The cluster terminates with the calling process, also if that is killed.
func Start(ctx context.Context, options Options) (_ *Cluster, failed error) {
	if err := errors.Join(options.validate(), options.Check()); err != nil {
		return nil, err
	}
	c := &Cluster{options: options, runs: map[string]*nodeRun{}}
	c.close = sync.OnceValue(c.end)
	if err := c.createFolders(); err != nil {
		return nil, err
	}
	began := time.Now()
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.background, c.stop = background, stop
	defer func() {
		if failed != nil {
			failed = errors.Join(failed, c.Close())
		}
	}()
	var err error
	if c.lock, err = lockFolder(options.Dir); err != nil {
		return nil, err
	}
	if c.authority, err = kubeapi.Open(filepath.Join(options.Dir, "pki"), clusterName); err != nil {
		return nil, err
	}
	if err := c.issue(); err != nil {
		return nil, err
	}
	if c.outer, err = machine.Start(ctx, options.NodeProgram, c.controlPlane()); err != nil {
		return nil, err
	}
	if err := c.connect(ctx, background); err != nil {
		return nil, err
	}
	// The nodes start while the API server does: kubelet retries until it responds.
	group, starting := errgroup.WithContext(ctx)
	for _, n := range options.Nodes {
		group.Go(func() error { return c.StartNode(starting, n.Name) })
	}
	group.Go(func() error { return c.startControllers(starting) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, n := range options.Nodes {
		if err := c.AwaitReady(ctx, n.Name); err != nil {
			return nil, err
		}
	}
	return c, c.awaitDNS(ctx, began)
}

// connect opens the registry and the port of the API server on loopback, and writes the kubeconfig.
func (c *Cluster) connect(ctx, background context.Context) error {
	if err := c.startRegistry(ctx, background, filepath.Join(c.options.Dir, "registry")); err != nil {
		return err
	}
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.forward(background, local, func(ctx context.Context) (net.Conn, error) { return c.Dial(ctx, apiAddress()) })
	server := "https://" + local.Addr().String()
	if err := c.authority.Client(administrator, clusterName, server, "admin", "system:masters"); err != nil {
		return err
	}
	c.kubeconfig = c.authority.Path(administrator + ".kubeconfig")
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return err
	}
	c.config.QPS, c.config.Burst = 100, 200
	c.client, err = clientset.NewForConfig(c.config)
	return err
}

// startControllers waits for the API server, starts the rest of the control plane and installs the DNS.
func (c *Cluster) startControllers(ctx context.Context) error {
	for {
		_, err := c.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the API server: %w: %w", ctx.Err(), err)
		case <-c.outer.Exited():
			return fmt.Errorf("the control plane: %w", c.outer.Err())
		case <-time.After(readyInterval):
		}
	}
	for _, program := range c.controllers() {
		if err := c.outer.Run(ctx, program); err != nil {
			return err
		}
	}
	if err := c.startStorage(ctx); err != nil {
		return err
	}
	return c.installDNS(ctx)
}

// AwaitReady waits until the kubelet of a node has reported that it is Ready since StartNode. What it reported before is not considered.
// It returns an error when the node or the control plane terminates.
func (c *Cluster) AwaitReady(ctx context.Context, name string) error {
	run, err := c.run(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-run.exited:
			cancel(run.err)
		case <-c.outer.Exited():
			cancel(c.outer.Err())
		case <-ctx.Done():
		}
	}()
	started := run.started.Truncate(time.Second) // the precision of times in objects
	err = c.AwaitNode(ctx, name, "Ready", func(n *corev1.Node) bool {
		for _, condition := range n.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status == corev1.ConditionTrue && !condition.LastHeartbeatTime.Time.Before(started)
			}
		}
		return false
	})
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// AwaitNode waits until a Node fulfils a condition, which has a name for the error.
func (c *Cluster) AwaitNode(ctx context.Context, name, condition string, fulfilled func(*corev1.Node) bool) error {
	nodes := c.client.CoreV1().RESTClient()
	list := cache.NewListWatchFromClient(nodes, "nodes", "", fields.OneTermEqualSelector("metadata.name", name))
	err := await(ctx, list, &corev1.Node{}, func(object runtime.Object) bool {
		n, ok := object.(*corev1.Node)
		return ok && fulfilled(n)
	})
	if err != nil {
		return fmt.Errorf("waiting for node %s to be %s: %w", name, condition, err)
	}
	return nil
}

// await watches objects until one fulfils a condition.
func await(ctx context.Context, list cache.ListerWatcher, kind runtime.Object, fulfilled func(runtime.Object) bool) error {
	_, err := watchtools.UntilWithSync(ctx, list, kind, nil, func(event watch.Event) (bool, error) {
		return event.Type != watch.Deleted && fulfilled(event.Object), nil
	})
	return err
}

// Close kills the cluster. It returns when nothing of it is left but its folder. It may be called more than once.
func (c *Cluster) Close() error { return c.close() }

func (c *Cluster) end() error {
	c.stop()
	var failed error
	if c.outer != nil {
		failed = c.outer.Close()
	}
	c.running.Wait() // some goroutines wait for the end of a node
	if c.lock != nil {
		failed = errors.Join(failed, c.lock.Close())
	}
	return failed
}

// Exited returns a channel that is closed when nothing of the cluster is left, and Err the reason.
func (c *Cluster) Exited() <-chan struct{} { return c.outer.Exited() }

// Err waits for the end of the cluster. It returns why it terminated, for example the end of a program of the control plane.
func (c *Cluster) Err() error { return c.outer.Err() }

// Client returns a client with all rights.
func (c *Cluster) Client() *clientset.Clientset { return c.client }

// Config returns the configuration of Client.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of a kubeconfig with all rights. Its server is a port on loopback that exists until Close.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Dial connects to a TCP address in the cluster's network: that of a node, a pod or the control plane. Addresses of Services exist only
// on nodes.
func (c *Cluster) Dial(ctx context.Context, address string) (net.Conn, error) {
	connection, err := c.outer.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	if err := endIfLost(connection); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	return connection, nil
}

// Listen listens on a TCP port of the control plane, to which nodes and pods can connect. The returned listener has the address.
func (c *Cluster) Listen(ctx context.Context, port string) (net.Listener, error) {
	return c.outer.Listen(ctx, net.JoinHostPort(controlPlaneIP, port))
}

// ListenHost listens on a TCP port of a host of Options.Hosts.
func (c *Cluster) ListenHost(ctx context.Context, host, port string) (net.Listener, error) {
	index := slices.Index(c.options.Hosts, host)
	if index < 0 {
		return nil, fmt.Errorf("the cluster has no host %q", host)
	}
	return c.outer.Listen(ctx, net.JoinHostPort(hostIP(index), port))
}

// ForwardHost forwards the connections to a TCP port of a host of Options.Hosts to connections that dial opens, until Close. With it,
// pods use services of the machine, for example PostgreSQL on loopback.
func (c *Cluster) ForwardHost(ctx context.Context, host, port string, dial func(context.Context) (net.Conn, error)) error {
	listener, err := c.ListenHost(ctx, host, port)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.forwarded = append(c.forwarded, forwardedPort{host, port, dial})
	c.mu.Unlock()
	c.forward(c.background, listener, dial)
	return nil
}

// forwardedPort is a port of a host that ForwardHost forwards.
type forwardedPort struct {
	host, port string
	dial       func(context.Context) (net.Conn, error)
}

// ForwardHostsOf forwards the hosts that another cluster forwards or has forwarded, which may be closed. A cluster that replaces a lost one uses the
// same services.
func (c *Cluster) ForwardHostsOf(ctx context.Context, other *Cluster) error {
	other.mu.Lock()
	forwarded := slices.Clone(other.forwarded)
	other.mu.Unlock()
	for _, f := range forwarded {
		if err := c.ForwardHost(ctx, f.host, f.port, f.dial); err != nil {
			return err
		}
	}
	return nil
}

// serve serves HTTP until the context ends.
func (c *Cluster) serve(ctx context.Context, listener net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	c.running.Go(func() {
		defer stop()
		_ = server.Serve(listener)
	})
}

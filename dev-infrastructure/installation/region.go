package installation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/control"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// The targets of the configuration for regions on one machine: the region, and its stamp.
const (
	regionTarget = "public/local/westus3"
	stampTarget  = regionTarget + "/1"
)

// Options are the options of a region.
type Options struct {
	// StateDir is the folder of the region, and SourceDir the checkout with the built images and programs.
	StateDir, SourceDir string
}

func (o *Options) images() string { return filepath.Join(o.SourceDir, ".build", "images") }
func (o *Options) openTofu() string {
	return filepath.Join(o.SourceDir, ".build", "third-party", "opentofu")
}
func (o *Options) thirdParty() string {
	return filepath.Join(o.SourceDir, ".build", "third-party", "bin")
}

// programs is the folder of the programs that Start builds.
func (o *Options) programs() string { return filepath.Join(o.SourceDir, ".build", "nodes") }

// dir is the folder of the data, which each start removes.
func (o *Options) dir(parts ...string) string {
	return filepath.Join(append([]string{o.StateDir, "nodes"}, parts...)...)
}

// kubernetes returns the options of a cluster with a name.
func (o *Options) kubernetes(name string) kubernetes.Options {
	return kubernetes.Options{Dir: o.dir(name), ThirdParty: o.thirdParty(),
		NodeProgram: filepath.Join(o.programs(), "kubernetes-node"), PauseProgram: filepath.Join(o.programs(), "pause")}
}

// Check returns an error that names everything that this machine lacks, with the commands that build it.
func (o *Options) Check() error {
	var missing []error
	if err := o.kubernetes("check").Check(); err != nil {
		missing = append(missing, err)
	}
	if _, err := os.Stat(filepath.Join(o.images(), "images.json")); err != nil {
		missing = append(missing, errors.New("the images of the services are not built: run make images"))
	}
	if _, err := os.Stat(filepath.Join(o.openTofu(), "tofu")); err != nil {
		missing = append(missing, errors.New("OpenTofu is not built: run tooling/third-party/build.sh opentofu"))
	}
	if _, err := postgresserver.BinDir(); err != nil {
		missing = append(missing, err)
	}
	return errors.Join(missing...)
}

// cluster is one of the two clusters.
type cluster struct {
	*kubernetes.Cluster
	target  values.Target
	outside *Outside
	secrets *Secrets
}

// Region is a region that this process runs. It is safe for concurrent use.
type Region struct {
	options Options
	release func()
	control *control.Server
	log     *slog.Logger

	service, management *cluster
	authority           *mesh.Authority
	supplier            *Supplier
	entra               *Entra
	azure               *Azure
	proxy               *Proxy

	interrupt context.CancelFunc
	downOnce  sync.Once
	closeOnce sync.Once
	down      chan struct{}

	mu         sync.Mutex
	phase      local.Phase
	phaseSince time.Time
	endpoints  local.Endpoints
	// parts are the parts of the start, in their order.
	parts []local.ProcessStatus
}

// Start brings up a region and returns when its pipelines have succeeded. If it returns an error, nothing is left running. The caller must
// Close the region. ctx limits the start only.
func Start(ctx context.Context, options Options, log *slog.Logger) (*Region, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	release, err := local.Lock(options.StateDir)
	if err != nil {
		return nil, err
	}
	ctx, interrupt := context.WithCancel(ctx)
	r := &Region{options: options, release: release, log: log, interrupt: interrupt, down: make(chan struct{})}
	r.enter(local.PhaseBuilding)
	if err := r.start(ctx); err != nil {
		err = errors.Join(err, r.Close())
		if errors.Is(err, context.Canceled) {
			return nil, errors.New("stopped before the region was ready")
		}
		return nil, err
	}
	r.enter(local.PhaseReady)
	return r, nil
}

func (r *Region) start(ctx context.Context) error {
	if err := r.prepareFolders(); err != nil {
		return err
	}
	var err error
	if r.control, err = r.serveControl(); err != nil {
		return err
	}
	if err := r.part("programs", func() error { return r.build(ctx) }); err != nil {
		return err
	}
	r.enter(local.PhaseStarting)
	list, err := imagelist.Load(filepath.Join(r.options.images(), "images.json"))
	if err != nil {
		return err
	}
	region, err := Target(r.options.SourceDir, regionTarget, list)
	if err != nil {
		return err
	}
	stamp, err := Target(r.options.SourceDir, stampTarget, list)
	if err != nil {
		return err
	}
	if r.authority, err = mesh.OpenAuthority(r.options.dir("outside", "ca"), text(region, "trustDomain")); err != nil {
		return err
	}
	definitions, err := Definitions(ctx, r.options.SourceDir)
	if err != nil {
		return err
	}
	group, starting := errgroup.WithContext(ctx)
	group.Go(func() error {
		return r.part("service-cluster", func() (err error) {
			r.service, err = r.startCluster(starting, "service", region, definitions)
			return err
		})
	})
	group.Go(func() error {
		return r.part("management-cluster", func() (err error) {
			r.management, err = r.startCluster(starting, "management", stamp, definitions)
			return err
		})
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := r.part("outside", func() error { return r.startOutside(ctx) }); err != nil {
		return err
	}
	if err := r.part("pipelines", func() error { return r.runPipelines(ctx) }); err != nil {
		return err
	}
	return r.publish()
}

// prepareFolders removes the data of an earlier region, and creates the folders.
func (r *Region) prepareFolders() error {
	if err := errors.Join(local.RemoveEndpoints(r.options.StateDir), RemoveData(r.options.dir("outside")), os.RemoveAll(r.options.dir())); err != nil {
		return err
	}
	for _, dir := range []string{r.options.dir(), local.LogDir(r.options.StateDir), r.options.dir("kubeconfigs"), r.options.dir("cli")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.MkdirAll(r.options.dir("outside"), 0o700)
}

// text returns a key of a configuration, which its schema requires.
func text(target values.Target, path ...string) string {
	n := target.Configuration.Get(path...)
	if n == nil {
		return ""
	}
	return fmt.Sprint(n.Value)
}

// startCluster starts a cluster with the images and the definitions that its charts need.
func (r *Region) startCluster(ctx context.Context, name string, target values.Target, definitions []byte) (*cluster, error) {
	o, images := r.options.kubernetes(name), ServiceImages()
	var err error
	if name == "service" {
		o.StorageClass = text(target, "audit", "queueStorageClass")
		o.Hosts, err = Hosts(target)
		for i := range 2 {
			o.Nodes = append(o.Nodes, kubernetes.Node{Name: fmt.Sprintf("node-%d", i+1), Labels: map[string]string{"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i+1)}})
		}
	} else {
		images, o.Nodes, o.StorageClass = ManagementImages(), []kubernetes.Node{{Name: "node-1"}}, text(target, "clusterService", "config", "etcd", "storageClass")
		o.Hosts, err = StampHosts(target)
	}
	if err != nil {
		return nil, err
	}
	started, err := kubernetes.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &cluster{Cluster: started, target: target, outside: &Outside{Cluster: started, Target: target, Authority: r.authority, Dir: r.options.dir("outside"), Log: r.log}}
	if c.secrets, err = KeepSecrets(ctx, started.Client(), r.log); err != nil {
		return nil, errors.Join(err, started.Close())
	}
	_, pushed := PushImages(ctx, started, r.options.images(), images...)
	if err := errors.Join(pushed, started.Apply(ctx, bytes.NewReader(definitions))); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// close stops a cluster and what is outside of it.
func (c *cluster) close() error {
	if c == nil {
		return nil
	}
	return errors.Join(c.outside.Close(), c.secrets.Close(), c.Close())
}

// startOutside starts what the region uses outside of its clusters.
func (r *Region) startOutside(ctx context.Context) error {
	s := r.service.outside
	given, err := s.GivenSecrets()
	if err != nil {
		return err
	}
	r.supplier = &Supplier{Target: r.service.target, Authority: r.authority, Secrets: r.service.secrets, Dir: r.options.dir("outside"), Given: given}
	mqtt, err := s.StartBroker(ctx)
	if err != nil {
		return err
	}
	if err := r.management.outside.ForwardBroker(ctx, mqtt); err != nil {
		return err
	}
	if err := errors.Join(s.StartReleases(ctx), s.StartDatabases(ctx), s.StartTickets(ctx)); err != nil {
		return err
	}
	if r.entra, err = s.StartEntra(ctx); err != nil {
		return err
	}
	if r.azure, err = s.StartAzure(ctx, r.entra); err != nil {
		return err
	}
	if r.proxy, err = s.StartProxy(ctx); err != nil {
		return err
	}
	r.proxy.Clusters(r.azure, r.management.outside)
	return nil
}

// publish stores the endpoints of the ready region.
func (r *Region) publish() error {
	endpoints, err := r.entra.Endpoints(r.proxy)
	if err != nil {
		return err
	}
	endpoints.Kubectl = filepath.Join(r.options.thirdParty(), "kubectl")
	endpoints.ServiceCluster = r.service.Kubeconfig()
	endpoints.Kubeconfigs[text(r.management.target, "managementCluster", "name")] = r.management.Kubeconfig()
	r.mu.Lock()
	r.endpoints = endpoints
	r.mu.Unlock()
	return local.WriteEndpoints(r.options.StateDir, endpoints)
}

// Down returns a channel that is closed when a client of the control socket requests that the region stops.
func (r *Region) Down() <-chan struct{} { return r.down }

// Exited returns a channel that is closed when a cluster has ended, and Err why.
func (r *Region) Exited() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-r.service.Exited():
		case <-r.management.Exited():
		}
	}()
	return ended
}

func (r *Region) requestDown() {
	r.downOnce.Do(func() { close(r.down) })
	r.interrupt()
}

// Close stops the region and removes its data, but not its logs. It is idempotent.
func (r *Region) Close() (failed error) {
	r.closeOnce.Do(func() {
		r.enter(local.PhaseStopping)
		r.interrupt()
		failed = errors.Join(local.RemoveEndpoints(r.options.StateDir), r.service.close(), r.management.close())
		if r.control != nil {
			r.control.Close()
		}
		failed = errors.Join(failed, os.RemoveAll(r.options.dir()))
		r.release()
	})
	return failed
}

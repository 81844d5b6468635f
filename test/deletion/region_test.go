// Package deletion tests the known ways in which deletions get stuck, on real components: Cluster Service, the Maestro server
// and agent, an API server with the namespace controller, the HyperShift local runtime, admin, the Cosmos DB emulator and the
// backend's executor. Each scenario resolves by itself or with the one hcpctl command of its runbook in
// docs/operators/stuck-deletion.
package deletion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	csmaestro "github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	hypershift "github.com/hcpmesh/hcpmesh/hypershift/pkg/app"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/maestro/agent"
	"github.com/hcpmesh/hcpmesh/maestro/maestrotest"
	maestroapp "github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

var databases *postgrestest.Server

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard())
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if os.Getenv("DELETION_TEST_LOG") == "" {
		slog.SetDefault(slog.New(slog.DiscardHandler))
	}
	os.Exit(postgrestest.Main(m, &databases))
}

const (
	shard = "mgmt-1"
	// stuckAfter is the time after which a step of a deletion counts as stuck.
	stuckAfter = 500 * time.Millisecond
	// timeScale reduces the ten minutes that HyperShift waits for cloud resources to three seconds.
	timeScale = 0.005
)

// region runs everything below ARM, with one management cluster.
type region struct {
	*maestrotest.Region
	// t is the current subtest. The embedded region belongs to the outer test.
	t       *testing.T
	cluster *rest.Config
	// agentAccess is the access of the agent to the management cluster, which is limited as in a region.
	agentAccess *rest.Config
	objects     dynamic.Interface
	// maestro is the Maestro server. fleet is the address of Cluster Service's API, which changes with each restart.
	maestro *maestrotest.Server
	fleet   *atomic.Pointer[string]
	// ahead is how much the clock of Cluster Service is ahead: each stop lets the leases of the stopped process end.
	ahead       *atomic.Int64
	databaseURL string
	admin       adminclient.Options
	// intents signs the intents of admin.
	intents *intenttest.Admin
	// records are the audit records of all Cluster Services of the region, which outlive the scenario that restarts one.
	records *audittest.Trail
	// Cluster Service seals Secrets with shardKey, and the agent opens them with secretKeys.
	shardKey   *seal.PublicKeys
	secretKeys *seal.PrivateKeys
	agent      *maestrotest.Process
	service    *maestrotest.Process
	// ClusterServiceClient has the identity of the backend, reads that of admin.
	csv1.ClusterServiceClient
	reads csv1.ClusterServiceClient
}

// definitions returns the folder of the CustomResourceDefinitions.
func definitions(t *testing.T) string {
	t.Helper()
	return must.Get(filepath.Abs("../../.build/third-party/crds"))(t)
}

func newRegion(t *testing.T) *region {
	t.Helper()
	if _, err := kubeapitest.Programs(); errors.Is(err, kubeapitest.ErrNotBuilt) {
		kubeapitest.SkipUnlessCI(t, err.Error())
	}
	r := &region{Region: maestrotest.New(t, databases.Database(t), logger()), t: t, fleet: new(atomic.Pointer[string]), ahead: new(atomic.Int64)}
	var err error
	if r.shardKey, r.secretKeys, err = seal.NewPair(); err != nil {
		t.Fatal(err)
	}
	management := kubeapitest.Start(t)
	must.Do(t, management.RunControllers(t.Context()))
	r.cluster = must.Get(clientcmd.BuildConfigFromFlags("", management.Kubeconfig()))(t)
	r.cluster.QPS, r.cluster.Burst = -1, 0
	r.agentAccess = must.Get(clientcmd.BuildConfigFromFlags("", management.AgentKubeconfig(t)))(t)
	r.agentAccess.QPS, r.agentAccess.Burst = -1, 0
	r.objects = must.Get(dynamic.NewForConfig(r.cluster))(t)
	r.startRuntime(management)

	for _, peer := range []mesh.Peer{mesh.ClusterService, mesh.Admin, mesh.Backend} {
		r.Issue(string(peer), peer, string(peer), "127.0.0.1")
	}
	r.Tune = func(c *maestroapp.Config) { c.Resend = time.Second }
	r.maestro = r.StartServer()
	r.Serve(r.maestro, shard)
	r.startAgent()
	r.databaseURL = databases.Database(t)
	r.intents, r.records = intenttest.New(t), audittest.New(t, "cluster-service", 0)
	r.startService()
	r.ClusterServiceClient, r.reads = r.clusterService(mesh.Backend), r.clusterService(mesh.Admin)
	r.startAdmin()
	return r
}

func (r *region) startRuntime(management *kubeapitest.Cluster) {
	r.t.Helper()
	options := hypershift.Options{Kubeconfig: management.Kubeconfig(), CRDDir: filepath.Join(definitions(r.t), "hypershift"), Fidelity: "status", TimeScale: timeScale,
		APIServer: filepath.Join(management.Programs, "kube-apiserver"), EtcdServers: management.Etcd, EtcdAuthority: management.EtcdAuthority, StateDir: r.t.TempDir(), Ports: hostedapi.DefaultPortRange, ConcurrentStarts: 2}
	must.Do(r.t, options.Validate())
	runtime := hypershift.New(options, logger())
	r.Run("hypershift runtime", func(ctx context.Context) error { return runtime.RunWith(ctx, r.cluster) })
	r.eventually("the runtime reconciles", func() error { return runtime.Ready(r.t.Context()) })
}

func logger() *slog.Logger {
	if os.Getenv("DELETION_TEST_LOG") == "" {
		return slog.New(slog.DiscardHandler)
	}
	return slog.Default()
}

func (r *region) startAgent() {
	r.t.Helper()
	r.agent = r.StartAgent(shard, agent.Options{Cluster: r.agentAccess, CRDDir: filepath.Join(definitions(r.t), "work"), SecretKeys: r.secretKeys})
}

// startService starts Cluster Service on its database.
func (r *region) startService() {
	r.t.Helper()
	database := must.Get(store.Open(store.Options{URL: r.databaseURL, MaxConnections: postgrestest.FewConnections,
		Now: func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) }}))(r.t)
	must.Do(r.t, database.Migrate(r.t.Context()))
	must.Do(r.t, database.ConfigureShards(r.t.Context(), []config.Shard{{Name: shard, Capacity: 100}}))
	hub := store.NewWatchHub(database, 64, logger())
	identity := r.Identity(string(mesh.ClusterService))
	maestro := must.Get(csmaestro.NewClient("passthrough:///"+r.maestro.GRPC, fleet.Source, credentials.NewTLS(identity.ClientTLS(mesh.MaestroServer)), slog.New(slog.DiscardHandler)))(r.t)
	keeper := must.Get(seal.New())(r.t)
	place := fleet.Region{BaseDomain: "0ulz.westus3.aroapp-hcp.io", IssuerBase: "https://oidc.example.com", EndpointURLs: true}
	limits := map[string]time.Duration{}
	for _, kind := range deletiongraph.Kinds() {
		limits[kind] = stuckAfter
	}
	place.StepLimits = deletiongraph.NewLimits(limits)
	system := app.NewSystem(app.SystemOptions{Store: database, Hub: hub, Maestro: maestro, Keeper: keeper, SigningKeys: signingkey.NewPool(2, signingkey.Generate), Publishers: 4, Renewals: 2,
		Releases: updategraph.Fixed(must.Get(release.Load(""))(r.t)),
		Renderer: &render.Renderer{Region: place, Environment: "local", Developer: true, Config: config.Default(), PullSecret: []byte(`{"auths":{}}`), Open: keeper.Open, ShardKeys: map[string]*seal.PublicKeys{shard: r.shardKey}},
		Metrics:  prometheus.NewRegistry(), Sweep: time.Second, CheckDeletions: 200 * time.Millisecond})
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(r.t)
	address := listener.Addr().String()
	r.fleet.Store(&address)
	api := app.NewServer(identity, system.API, r.intents.Verifier, service.NewCallAuditor(r.records), logger(), grpcserver.NewMetrics(prometheus.NewRegistry()))
	r.service = r.Run("cluster service", func(ctx context.Context) error {
		var group sync.WaitGroup
		group.Go(func() { _ = system.Run(ctx) })
		stop := context.AfterFunc(ctx, api.Stop)
		defer stop()
		err := api.Serve(listener)
		group.Wait()
		_ = maestro.Close()
		database.Close()
		r.ahead.Add(int64(store.DefaultLease))
		return err
	})
}

func (r *region) eventually(what string, condition func() error) {
	r.t.Helper()
	eventually.Soon(r.t, what, condition)
}

// cluster is a cluster of a scenario.
type cluster struct {
	r   *region
	uid string
	// name is the ARM name. id, namespace, hosted and controlPlane name the objects on the management cluster.
	name, id, namespace, hosted, controlPlane string
}

const scope = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/demo/providers/"

// create creates a cluster with a node pool and waits until both are ready.
func (r *region) create(name string) *cluster {
	r.t.Helper()
	spec := &csv1.ClusterSpec{
		Name: name, Location: "westus3", TenantId: "64dc69e4-d083-49fc-9569-ebece1dd1408", Version: &csv1.Version{Id: "4.21", ChannelGroup: "stable"},
		Network: &csv1.Network{NetworkType: "OVNKubernetes", PodCidr: "10.128.0.0/14", ServiceCidr: "172.30.0.0/16", MachineCidr: "10.0.0.0/16", HostPrefix: 23},
		Api:     &csv1.Api{Visibility: csv1.Visibility_VISIBILITY_PUBLIC}, ImageRegistryEnabled: true,
		Platform: &csv1.Platform{SubscriptionId: "11111111-1111-1111-1111-111111111111", ResourceGroup: "demo", ManagedResourceGroup: "managed-" + name,
			SubnetId: scope + "Microsoft.Network/virtualNetworks/vnet/subnets/sub", NetworkSecurityGroupId: scope + "Microsoft.Network/networkSecurityGroups/nsg", OutboundType: "LoadBalancer"},
	}
	c := &cluster{r: r, uid: uuid.NewString(), name: name}
	id := scope + "Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
	must.Get(r.ApplyCluster(r.t.Context(), &csv1.ApplyClusterRequest{Uid: c.uid, ResourceId: id, Generation: 1, Spec: spec}))(r.t)
	pool := &csv1.ApplyNodePoolRequest{Uid: uuid.NewString(), ClusterUid: c.uid, Generation: 1, ResourceId: id + "/nodePools/np1",
		Spec: &csv1.NodePoolSpec{Name: "np1", Size: &csv1.NodePoolSpec_Replicas{Replicas: 1}, AutoRepair: true,
			Platform: &csv1.NodePoolPlatform{VmSize: "Standard_D8s_v3", OsDisk: &csv1.OsDisk{SizeGib: 64, StorageAccountType: "Premium_LRS"}}}}
	must.Get(r.ApplyNodePool(r.t.Context(), pool))(r.t)
	ready := c.until("ready", func(s *csv1.ClusterStatus) bool { return s.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_READY })
	r.eventually("the node pool is ready", func() error {
		p, err := r.GetNodePool(r.t.Context(), &csv1.GetNodePoolRequest{Uid: pool.Uid})
		if err == nil && p.GetStatus().GetPhase() != csv1.NodePoolPhase_NODE_POOL_PHASE_READY {
			err = fmt.Errorf("status is %v", p.GetStatus())
		}
		return err
	})
	c.id, c.hosted = ready.GetClusterId(), ready.GetBaseDomainPrefix()
	c.namespace = fleet.Namespace("local", c.id)
	c.controlPlane = c.namespace + "-" + c.hosted
	return c
}

// until waits until the status of the cluster satisfies condition.
func (c *cluster) until(what string, condition func(*csv1.ClusterStatus) bool) (status *csv1.ClusterStatus) {
	c.r.t.Helper()
	c.r.eventually("cluster "+c.name+" is "+what, func() error {
		found, err := c.r.GetCluster(c.r.t.Context(), &csv1.GetClusterRequest{Uid: c.uid})
		if err != nil {
			return err
		}
		if status = found.GetStatus(); condition(status) {
			return nil
		}
		return fmt.Errorf("phase is %v, deletion is %v", status.GetPhase(), status.GetDeletion())
	})
	return status
}

func (c *cluster) remove() {
	c.r.t.Helper()
	must.Get(c.r.DeleteCluster(c.r.t.Context(), &csv1.DeleteClusterRequest{Uid: c.uid}))(c.r.t)
}

func step(s *csv1.ClusterStatus, name string) *csv1.DeletionStep {
	for _, one := range s.GetDeletion().GetSteps() {
		if one.GetName() == name {
			return one
		}
	}
	return nil
}

// stuckIn waits until a step of the deletion is stuck and its description contains text.
func (c *cluster) stuckIn(name, text string) *csv1.DeletionStep {
	c.r.t.Helper()
	status := c.until("stuck in "+name, func(s *csv1.ClusterStatus) bool {
		one := step(s, name)
		return one.GetStuck() && strings.Contains(one.GetWaitsFor()+" "+one.GetLastError(), text)
	})
	return step(status, name)
}

func (c *cluster) deleted() *csv1.ClusterStatus {
	c.r.t.Helper()
	return c.until("deleted", func(s *csv1.ClusterStatus) bool { return s.GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_DELETED })
}

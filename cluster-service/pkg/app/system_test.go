package app_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/maestro/maestrotest"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/placement"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/grpcserver"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/internal/tracing"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

var databases *postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &databases)) }

// oneSigningKey is the signing key of all clusters of these tests, because generating keys would use most of the CPU
// time. The tests of package secret cover it.
var oneSigningKey = sync.OnceValues(signingkey.Generate)

// sealingKeys returns the same keyset for all systems of a test, as replicas share the file.
var sealingKeys = sync.OnceValues(seal.New)

type keyPair struct {
	public  *seal.PublicKeys
	private *seal.PrivateKeys
}

// shardKeys returns the keys that all shards have.
var shardKeys = sync.OnceValues(func() (keyPair, error) {
	public, private, err := seal.NewPair()
	return keyPair{public, private}, err
})

// clock is the clock of a region. It shows the time of the machine plus what the test has advanced it by, so that no result depends on the
// speed of the machine. It is safe for concurrent use.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) advance(by time.Duration) { c.ahead.Add(int64(by)) }

// region consists of an in-memory Maestro with its management clusters and a database. Tests start and stop Cluster
// Services on it.
type region struct {
	t   testing.TB
	url string
	// clock is that of the Cluster Services and of Azure.
	clock    clock
	maestro  *maestrotest.Server
	releases *release.Catalog
	shards   []config.Shard
	// rules is the placement policy.
	rules placement.Rules
	// hypershift simulates HyperShift on the management clusters after play was called.
	hypershift *maestrotest.HyperShift
	// sealingKeys is the file of the keyset that seals secrets; empty means keys that all tests share.
	sealingKeys string
	// pullSecret is the pull secret of new Cluster Services. If it is empty, they use one without registries.
	pullSecret string
	// componentsAfter is the duration of a control plane rollout after which components are read.
	componentsAfter time.Duration
	// placeInterval and upgradeInterval are the periods of the scans that find what no event announced; 0 means the defaults.
	placeInterval, upgradeInterval time.Duration
	// quiet makes scans so rare that a test sees none of them.
	quiet    bool
	registry *prometheus.Registry
	// traces creates the spans of the Cluster Services; nil creates none.
	traces *tracing.Tracing
	// log is the log of the Cluster Services.
	log *slog.Logger
	// audit records the changes of the access to clusters.
	audit auditLog
	// azure is the Azure emulator that clusters use through azureWire, or nil.
	azure     *emulatortest.Azure
	azureWire policy.Transporter
	// servingCertificates makes the API servers serve the certificates of the vault.
	servingCertificates bool
	// mesh, if not nil, makes Cluster Services authorize calls, and admin signs intents for them.
	mesh  *meshtest.Region
	admin *intenttest.Admin
	// records are the audit records of the calls, with mesh.
	records *audittest.Trail
	// watch, if not nil, measures the audit of the calls.
	watch *audittest.Stopwatch
	// auditor is that of the latest server with a mesh.
	auditor *service.CallAuditor
}

func newRegion(t testing.TB, shards ...config.Shard) *region {
	t.Helper()
	if len(shards) == 0 {
		shards = []config.Shard{{Name: "mgmt-1", Capacity: 100}, {Name: "mgmt-2", Capacity: 100}}
	}
	var consumers []string
	for _, s := range shards {
		consumers = append(consumers, s.Name)
	}
	server := must.Get(maestrotest.Start(consumers...))(t)
	releases := must.Get(release.Load(""))(t)
	r := &region{t: t, url: databases.Migrated(t, store.Migrations()), maestro: server, releases: releases, shards: shards, rules: placement.DefaultRules(), componentsAfter: time.Hour, log: slog.Default()}
	t.Cleanup(server.Stop)
	return r
}

// shardKeys returns keys for the shards of the region and for those that tests register. All Cluster Services of a test have the
// same, so that a restart does not change what they render.
func (r *region) shardKeys() map[string]*seal.PublicKeys {
	r.t.Helper()
	pair := must.Get(shardKeys())(r.t)
	keys := map[string]*seal.PublicKeys{}
	for _, s := range r.shards {
		keys[s.Name] = pair.public
	}
	for i := range 200 {
		keys[fmt.Sprintf("mgmt-%d", i+1)] = pair.public
	}
	return keys
}

// versions maps images to versions.
func (r *region) versions() map[string]string {
	versions := map[string]string{}
	for _, release := range r.releases.Releases() {
		versions[release.Image] = release.Version.String()
	}
	return versions
}

// play runs the management clusters for the rest of the test.
func (r *region) play() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	r.hypershift = maestrotest.NewHyperShift(r.versions())
	group.Go(func() { r.maestro.RunAgents(ctx, r.hypershift.Reconcile) })
	r.t.Cleanup(func() { cancel(); group.Wait() })
}

// continueUpgrades ends the hold of upgrades, and has HyperShift continue at once.
func (r *region) continueUpgrades() {
	r.hypershift.HoldUpgrades(false)
	r.maestro.Touch()
}

// continueSigning ends the hold of signers and keys, and has HyperShift continue at once.
func (r *region) continueSigning() {
	r.hypershift.Hold(false)
	r.maestro.Touch()
}

// instance is a running Cluster Service.
type instance struct {
	csv1.ClusterServiceClient
	// cancel begins the stop, and stop waits for its end.
	cancel, stop func()
	// change replaces the settings.
	change func(render.Settings)
	// reseal announces that the sealing keys have changed.
	reseal  func()
	metrics *prometheus.Registry
	address string
}

// leases is a time in which the leases of a process end.
const leases = store.DefaultLease + store.DefaultAzureLease

// start runs a Cluster Service until the test ends or calls stop, which also lets its leases end. fault, which may be nil, injects faults into its transactions.
func (r *region) start(fault func(point string) error) *instance {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	database := must.Get(store.Open(store.Options{URL: r.url, MaxConnections: postgrestest.FewConnections, Now: r.clock.now, Fault: fault}))(r.t)
	must.Do(r.t, database.CheckMigrated(ctx))
	must.Do(r.t, database.ConfigureShards(ctx, r.shards))
	hub := store.NewWatchHub(database, 64, r.log)
	client := must.Get(maestro.NewClient(r.maestro.Address, fleet.Source, nil, slog.New(slog.DiscardHandler)))(r.t)
	keeper, err := sealingKeys()
	if r.sealingKeys != "" {
		keeper, err = seal.LoadOrCreate(r.sealingKeys)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	settings := config.Default()
	settings.Placement = r.rules
	if r.servingCertificates {
		settings.ServingCertificates = &config.ServingCertificates{Vault: "kas", ClientID: "11111111-0000-4000-8000-000000000001", TenantID: settings.Azure.TenantID}
	}
	pullSecret := []byte(`{"auths":{}}`)
	if r.pullSecret != "" {
		pullSecret = []byte(r.pullSecret)
	}
	renderer := &render.Renderer{Region: fleet.Region{BaseDomain: "0ulz.westus3.aroapp-hcp.io", IssuerBase: "https://oidc.example.com", EndpointURLs: true,
		ComponentsAfter: r.componentsAfter},
		Environment: "local", Developer: true, Config: settings, PullSecret: pullSecret, Open: keeper.Open, ShardKeys: r.shardKeys()}
	renderer.Region.StepLimits = deletiongraph.NewLimits(nil)
	steps := r.azureSteps(renderer)
	r.registry = prometheus.NewRegistry()
	options := app.SystemOptions{Store: database, Hub: hub, Maestro: client, Renderer: renderer, Releases: updategraph.Fixed(r.releases), Keeper: keeper,
		SigningKeys: signingkey.NewPool(2, oneSigningKey), Publishers: 4, Traces: r.traces, Renewals: 2, ResealAgain: 100 * time.Millisecond, Metrics: r.registry, Log: r.log, Audit: r.audit.logger(), Sweep: time.Second, Agents: 50 * time.Millisecond, CheckDeletions: 100 * time.Millisecond, SearchAzure: 100 * time.Millisecond, Place: r.placeInterval, Upgrade: r.upgradeInterval, Azure: steps}
	if r.quiet {
		options.Sweep, options.Agents, options.CheckDeletions, options.SearchAzure, options.Place, options.Upgrade = time.Hour, time.Hour, time.Hour, time.Hour, time.Hour, time.Hour
	}
	if r.records != nil {
		options.Records = r.records
	}
	system := app.NewSystem(options)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(r.t)
	serverOptions := []grpc.ServerOption{grpc.ChainUnaryInterceptor(service.RejectInvalidValues, service.Calls)}
	if r.traces != nil {
		serverOptions = append(serverOptions, r.traces.ServerOption())
	}
	server, transport := grpc.NewServer(serverOptions...), insecure.NewCredentials()
	if r.mesh != nil {
		var recorder audit.Recorder = r.records
		if r.watch != nil {
			recorder = r.watch
		}
		r.auditor = service.NewCallAuditor(recorder)
		server = app.NewServer(r.mesh.Identity(mesh.ClusterService), system.API, r.admin.Verifier, r.auditor, r.audit.logger(), grpcserver.NewMetrics(prometheus.NewRegistry()))
		transport = credentials.NewTLS(r.mesh.Identity(mesh.Backend).ClientTLS(mesh.ClusterService))
	} else {
		csv1.RegisterClusterServiceServer(server, system.API)
	}
	conn := must.Get(grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(transport)))(r.t)
	var group sync.WaitGroup
	group.Go(func() { _ = system.Run(ctx) })
	group.Go(func() { _ = server.Serve(listener) })
	stop := sync.OnceFunc(func() {
		cancel()
		server.Stop()
		group.Wait()
		_ = conn.Close()
		_ = client.Close()
		database.Close()
		r.clock.advance(leases)
	})
	r.t.Cleanup(stop)
	change := func(s render.Settings) { app.Apply(renderer, s); system.SettingsChanged() }
	return &instance{ClusterServiceClient: csv1.NewClusterServiceClient(conn), cancel: cancel, stop: stop, change: change, reseal: system.SealingKeysChanged, metrics: r.registry, address: listener.Addr().String()}
}

// run runs the management clusters and a Cluster Service.
func (r *region) run() (*region, *instance) {
	r.t.Helper()
	r.play()
	return r, r.start(nil)
}

// metric returns the value of a gauge or counter. labels are the values of its labels in the order of their names.
func (i *instance) metric(name string, labels ...string) (float64, error) {
	families, err := i.metrics.Gather()
	if err != nil {
		return 0, err
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && slices.EqualFunc(m.GetLabel(), labels, func(l *dto.LabelPair, value string) bool { return l.GetValue() == value }) {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue(), nil
			}
		}
	}
	return 0, fmt.Errorf("there is no metric %s of %q", name, labels)
}

// measures returns an error unless a gauge or counter has the wanted value.
func (i *instance) measures(want float64, name string, labels ...string) error {
	got, err := i.metric(name, labels...)
	if err == nil && got != want {
		err = fmt.Errorf("%s of %q is %v, want %v", name, labels, got, want)
	}
	return err
}

func clusterSpec(name string) *csv1.ClusterSpec {
	const scope = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/cust-rg/providers/Microsoft.Network/"
	return &csv1.ClusterSpec{
		Name: name, Location: "westus3", TenantId: "64dc69e4-d083-49fc-9569-ebece1dd1408",
		Version: &csv1.Version{Id: "4.21", ChannelGroup: "stable"},
		Network: &csv1.Network{NetworkType: "OVNKubernetes", PodCidr: "10.128.0.0/14", ServiceCidr: "172.30.0.0/16", MachineCidr: "10.0.0.0/16", HostPrefix: 23},
		Api:     &csv1.Api{Visibility: csv1.Visibility_VISIBILITY_PUBLIC}, ImageRegistryEnabled: true,
		Platform: &csv1.Platform{SubscriptionId: "11111111-1111-1111-1111-111111111111", ResourceGroup: "cust-rg", ManagedResourceGroup: "managed-" + name,
			SubnetId: scope + "virtualNetworks/vnet/subnets/sub", NetworkSecurityGroupId: scope + "networkSecurityGroups/nsg", OutboundType: "LoadBalancer"},
	}
}

func resourceID(name string) string {
	return "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/cust-rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

func applyRequest(name string, generation int64) *csv1.ApplyClusterRequest {
	return &csv1.ApplyClusterRequest{Uid: uuid.NewSHA1(uuid.NameSpaceOID, []byte(name)).String(), ResourceId: resourceID(name), Generation: generation, Spec: clusterSpec(name)}
}

func poolRequest(cluster *csv1.ApplyClusterRequest, name string, replicas int32) *csv1.ApplyNodePoolRequest {
	return &csv1.ApplyNodePoolRequest{Uid: uuid.NewSHA1(uuid.NameSpaceOID, []byte(cluster.Uid+name)).String(), ClusterUid: cluster.Uid, Generation: 1,
		ResourceId: cluster.ResourceId + "/nodePools/" + name,
		Spec: &csv1.NodePoolSpec{Name: name, Size: &csv1.NodePoolSpec_Replicas{Replicas: replicas}, AutoRepair: true,
			Platform: &csv1.NodePoolPlatform{VmSize: "Standard_D8s_v3", OsDisk: &csv1.OsDisk{SizeGib: 64, StorageAccountType: "Premium_LRS"}}}}
}

// await watches until an object satisfies wanted. of returns the object of a response.
func await[T interface {
	GetUid() string
	fmt.Stringer
}](t *testing.T, i *instance, uid string, of func(*csv1.WatchResponse) T, wanted func(T) bool) (last T) {
	t.Helper()
	i.watchUntil(t, func(r *csv1.WatchResponse) bool {
		object := of(r)
		if object.GetUid() != uid {
			return false
		}
		last = object
		return wanted(last)
	}, func() string { return last.String() })
	return last
}

func (i *instance) awaitCluster(t *testing.T, uid string, wanted func(*csv1.Cluster) bool) *csv1.Cluster {
	t.Helper()
	return await(t, i, uid, (*csv1.WatchResponse).GetCluster, wanted)
}

// applyCluster applies a cluster and waits until it satisfies wanted.
func (i *instance) applyCluster(t *testing.T, request *csv1.ApplyClusterRequest, wanted func(*csv1.Cluster) bool) *csv1.Cluster {
	t.Helper()
	must.Get(i.ApplyCluster(t.Context(), request))(t)
	return i.awaitCluster(t, request.Uid, wanted)
}

// applyUntilReady applies a cluster and waits until its generation is ready.
func (i *instance) applyUntilReady(t *testing.T, request *csv1.ApplyClusterRequest) *csv1.Cluster {
	t.Helper()
	return i.applyCluster(t, request, clusterReady(request.Generation))
}

func (i *instance) createReady(t *testing.T, name string) (*csv1.ApplyClusterRequest, *csv1.Cluster) {
	t.Helper()
	request := applyRequest(name, 1)
	return request, i.applyUntilReady(t, request)
}

func (i *instance) awaitPool(t *testing.T, uid string, wanted func(*csv1.NodePool) bool) *csv1.NodePool {
	t.Helper()
	return await(t, i, uid, (*csv1.WatchResponse).GetNodePool, wanted)
}

// conditionOf returns a condition, or nil if there is none.
func conditionOf(conditions []*csv1.Condition, kind string) *csv1.Condition {
	for _, c := range conditions {
		if c.GetType() == kind {
			return c
		}
	}
	return nil
}

// poolReady reports whether a node pool is ready.
func poolReady(p *csv1.NodePool) bool {
	return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY
}

// applyPool applies a node pool and waits until it satisfies wanted.
func (i *instance) applyPool(t *testing.T, request *csv1.ApplyNodePoolRequest, wanted func(*csv1.NodePool) bool) *csv1.NodePool {
	t.Helper()
	must.Get(i.ApplyNodePool(t.Context(), request))(t)
	return i.awaitPool(t, request.Uid, wanted)
}

// deletePool deletes a node pool and waits until it satisfies wanted.
func (i *instance) deletePool(t *testing.T, request *csv1.ApplyNodePoolRequest, wanted func(*csv1.NodePool) bool) {
	t.Helper()
	must.Get(i.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: request.Uid}))(t)
	i.awaitPool(t, request.Uid, wanted)
}

// createReadyPool creates a node pool and waits until it is ready.
func (i *instance) createReadyPool(t *testing.T, cluster *csv1.ApplyClusterRequest, name string, replicas int32) *csv1.ApplyNodePoolRequest {
	t.Helper()
	request := poolRequest(cluster, name, replicas)
	i.applyPool(t, request, poolReady)
	return request
}

func (i *instance) watchUntil(t *testing.T, done func(*csv1.WatchResponse) bool, last func() string) {
	t.Helper()
	ctx, cancel := eventually.Context(t)
	defer cancel()
	stream := must.Get(i.Watch(ctx, &csv1.WatchRequest{}))(t)
	for {
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("watching: %v; last state: %s", err, last())
		}
		if done(response) {
			return
		}
	}
}

func clusterReady(generation int64) func(*csv1.Cluster) bool {
	return func(c *csv1.Cluster) bool {
		return c.GetStatus().GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_READY && c.GetStatus().GetObservedGeneration() == generation
	}
}

func clusterDeleted(c *csv1.Cluster) bool {
	return c.GetStatus().GetPhase() == csv1.ClusterPhase_CLUSTER_PHASE_DELETED
}

func TestClusterLifecycle(t *testing.T) {
	t.Parallel()
	r, service := newRegion(t).run()
	ctx := t.Context()

	request := applyRequest("my-cluster", 1)
	created := must.Get(service.ApplyCluster(ctx, request))(t)
	if created.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_INSTALLING || created.GetStatus().GetProvisionShard() == "" {
		t.Errorf("a new cluster is %v, want placed and installing", created.GetStatus())
	}
	pool := poolRequest(request, "np1", 3)
	must.Get(service.ApplyNodePool(ctx, pool))(t)
	ready := service.awaitCluster(t, request.Uid, clusterReady(1))
	if got, want := ready.GetStatus().GetApiUrl(), "https://127.0.0.1:16443"; got != want {
		t.Errorf("API URL %q, want %q", got, want)
	}
	if got := ready.GetStatus().GetActiveVersions(); !slices.Equal(got, []string{"4.21.4"}) {
		t.Errorf("active versions %v", got)
	}
	service.awaitPool(t, pool.Uid, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetPhase() == csv1.NodePoolPhase_NODE_POOL_PHASE_READY && p.GetStatus().GetReplicas() == 3 && p.GetStatus().GetVersion() == "4.21.4"
	})

	request.Generation, request.Spec.Api.AuthorizedCidrs = 2, []string{"192.0.2.0/24"}
	service.applyUntilReady(t, request)
	pool.Generation, pool.Spec.Size = 2, &csv1.NodePoolSpec_Replicas{Replicas: 5}
	service.applyPool(t, pool, func(p *csv1.NodePool) bool {
		return p.GetStatus().GetObservedGeneration() == 2 && p.GetStatus().GetReplicas() == 5
	})

	service.removed(t, request.Uid)
	if held := r.maestro.Resources(); len(held) > 0 {
		t.Errorf("Maestro still has %v", held)
	}
	shards := must.Get(service.ListProvisionShards(ctx, &csv1.ListProvisionShardsRequest{}))(t)
	for _, shard := range shards.GetProvisionShards() {
		if shard.GetClusters() != 0 {
			t.Errorf("shard %s has %d clusters", shard.GetName(), shard.GetClusters())
		}
	}
	history := r.maestro.History()
	at := func(what string) int {
		return slices.IndexFunc(history, func(h string) bool { return strings.HasPrefix(h, what) })
	}
	id := ready.GetStatus().GetClusterId()
	if at("create "+id+"-00-namespaces") > at("create "+id+"\x00") && at("delete "+id+"-np1") > at("delete "+id) || at("delete "+id+"-00-namespaces") < at("gone "+id+"-np1") {
		t.Errorf("order of actions: %v", history)
	}
}

var errCrash = errors.New("crash")

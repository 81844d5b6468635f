package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/admin/pkg/access"
	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts/alertmanagertest"
	"github.com/hcpmesh/hcpmesh/admin/pkg/audithistory"
	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/admin/pkg/layers"
	"github.com/hcpmesh/hcpmesh/admin/pkg/maestro"
	"github.com/hcpmesh/hcpmesh/admin/pkg/server"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

// harness is admin with the Cosmos DB emulator, a simulated Cluster Service and a simulated Maestro.
type harness struct {
	db     *database.DB
	config server.Config
	// cosmos holds the options to connect to the emulator.
	cosmos database.Options
	fleet  *fleet
	works  *works
	url    string
	client *http.Client
	log    *logtest.Log
	trail  *audittest.Trail
	// metrics has the metrics of the watcher of elevations.
	metrics *prometheus.Registry
	// keyset is the file with the key that seals elevations.
	keyset string
	// intents verifies the intents of the operations.
	intents *intent.Verifier
	// gateway opens the keys of access sessions.
	gateway *seal.PrivateKeys
	// recordings is the folder of recordings, sealing encrypts them, and signing is the audit key of the session gateway.
	recordings string
	sealing    *seal.PublicKeys
	signing    *audit.SigningKey
}

// engineers authenticates callers: the token is the name of the engineer, and after a + the authentication method of the sign-in.
type engineers struct{}

func (engineers) Authenticate(_ context.Context, r *http.Request) (authn.Caller, error) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return authn.Caller{}, &authn.ChallengeError{Response: apierror.New(apierror.Unauthenticated, "The request carries no token."), Challenge: "Bearer"}
	}
	name, method, signedIn := strings.Cut(name, "+")
	var methods []string
	if signedIn {
		methods = []string{method}
	}
	return authn.Caller{AuthenticationMethods: methods, TenantID: "tenant", ObjectID: "object-of-" + name, Name: name + "@example.com", Groups: []string{"group-of-" + name}}, nil
}

func (engineers) Ready(context.Context) error { return nil }

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

// The time limits of explanations are ten times those of a region, because a component that works may not respond sooner on a busy machine. They are
// shorter than the limit of all requests, so that a test notices which limit a call has.
const (
	explanationBudget = 24 * time.Second
	componentDeadline = 15 * time.Second
)

func newHarness(t testing.TB) *harness {
	t.Helper()
	db, cosmos := databasetest.New(t)
	h := &harness{db: db, cosmos: cosmos.Options, fleet: &fleet{}, works: &works{}, log: &logtest.Log{}, metrics: newRegistry(), trail: audittest.New(t, "admin", 0)}
	signer := intenttest.New(t)
	h.keyset = filepath.Join(t.TempDir(), "keyset.json")
	must.Do(t, intent.CreateKeys(h.keyset))
	seals := h.sealer(t)
	h.intents = signer.Verifier
	h.config = server.Config{
		Database: db, Fleet: clusterservicev1.NewClusterServiceClient(h.fleet.serve(t)), Maestro: h.works, Environment: "local",
		Access: &access.Config{Groups: map[adminv1.Role][]string{
			adminv1.Reader: {"group-of-reader"}, adminv1.Operator: {"group-of-operator"}, adminv1.BreakGlass: {"group-of-oncall", "group-of-approver"},
		}},
		Policy: policy(), Seals: seals, Elevations: elevation.NewWatcher(db, seals, fastFeed, slog.New(slog.DiscardHandler), h.metrics),
		Authenticator: engineers{}, Intents: signer.Signer, Audit: h.trail, Refusals: refusals.New(h.trail), AuditHistory: audithistory.New(h.trail.Reader(), h.trail.Witness(), nil), Log: slog.New(slog.NewJSONHandler(h.log, nil)), Metrics: newRegistry(),
		AuthenticationFailures: &ratelimit.Limit{Size: 1 << 20, PerSecond: 1}, ExplanationBudget: explanationBudget,
	}
	alertmanager := httptest.NewServer(&alertmanagertest.Alertmanager{})
	t.Cleanup(alertmanager.Close)
	h.config.Silences = alerts.NewSilences(alertmanager.URL, alertmanager.Client().Transport)
	sealing, opening, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	h.config.Gateway, h.gateway = &server.Gateway{URL: "https://gateway.example.com", Keys: sealing, ServiceCluster: true}, opening
	sealing, opening, err = seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	h.recordings, h.sealing = t.TempDir(), sealing
	h.signing = must.Get(audit.GenerateKey())(t)
	signers := audit.Keys{}
	signers.Trust("gateway-access", h.signing)
	h.config.Recordings = &server.Recordings{Storage: sink.FileAt(h.recordings), Keys: opening, Signers: func() audit.Keys { return signers }}
	monitor := must.Get(layers.New(layers.Options{Own: server.Questions(db, h.config.Fleet, h.works), Deadline: componentDeadline, Metrics: newRegistry(), Log: slog.New(slog.DiscardHandler)}))(t)
	h.config.Layers = monitor
	t.Cleanup(run(h.config.Elevations))
	api := httptest.NewServer(server.New(h.config))
	t.Cleanup(api.Close)
	h.url, h.client = api.URL, api.Client()
	return h
}

// replace stores a changed document of admin.
func replace[D any](t *testing.T, h *harness, item *database.Item[D]) {
	t.Helper()
	batch := h.db.NewBatch(database.AdminPartition)
	database.Replace(batch, item)
	must.Do(t, batch.Commit(t.Context()))
}

// recorded returns the number of audit records that match.
func (h *harness) recorded(t *testing.T, matches func(audit.Record) bool) (count int) {
	t.Helper()
	for _, r := range h.trail.Records(t) {
		if matches(r) {
			count++
		}
	}
	return count
}

// sealer returns the sealer of another replica.
func (h *harness) sealer(t testing.TB) *elevation.Sealer {
	t.Helper()
	return must.Get(elevation.LoadSealer(h.keyset))(t)
}

// run runs a watcher until the returned function is called.
func run(watcher *elevation.Watcher) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); watcher.Run(ctx) }()
	return func() { stop(); <-ended }
}

// watch runs the watcher of another replica and returns its metrics.
func (h *harness) watch() (metrics *prometheus.Registry, end func()) {
	metrics = newRegistry()
	return metrics, run(elevation.NewWatcher(h.db, h.config.Seals, fastFeed, slog.New(slog.DiscardHandler), metrics))
}

// fastFeed reads the change feed more often than in production.
var fastFeed = database.FeedOptions{BusyInterval: 5 * time.Millisecond, IdleInterval: 20 * time.Millisecond}

// policy is an access policy that requires an approval for break-glass access to the whole region.
func policy() *elevation.Policy {
	class := func(approval elevation.ApprovalRule) elevation.ClassPolicy {
		return elevation.ClassPolicy{Ticket: elevation.TicketRequired, Approval: approval, ApproverRole: adminv1.BreakGlass, MaxDuration: elevation.Duration{Duration: elevation.MaxDuration}}
	}
	return &elevation.Policy{RequestLifetime: elevation.Duration{Duration: time.Hour}, Classes: map[adminv1.AccessClass]elevation.ClassPolicy{
		adminv1.Operate: class(elevation.ApprovalNever), adminv1.Recover: class(elevation.ApprovalNever), adminv1.BreakGlassAccess: class(elevation.ApprovalRegion),
	}}
}

// fleet simulates Cluster Service with the objects of the test.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer
	clusters    []*clusterservicev1.Cluster
	nodePools   []*clusterservicev1.NodePool
	credentials []*clusterservicev1.BreakGlassCredential
	revocations []*clusterservicev1.BreakGlassRevocation
	works       []*clusterservicev1.Work
	repaired    []*clusterservicev1.RepairedRemoval

	// asked is called before each response with the name of the method; may be nil.
	asked func(ctx context.Context, method string)
	// fail returns the error of all requests; may be nil.
	fail func(ctx context.Context) error

	mu sync.Mutex
	// lists records the requests for lists of clusters.
	lists []*clusterservicev1.ListClustersRequest
	// concerns records the requests for lists of concerns.
	concerns []*clusterservicev1.ListClusterConcernsRequest
}

// drifted is the UID of a cluster that the fleet has and ARM does not.
const drifted = "d0000000-0000-4000-8000-00000000000d"

func (f *fleet) ListInventory(context.Context, *clusterservicev1.ListInventoryRequest) (*clusterservicev1.ListInventoryResponse, error) {
	return &clusterservicev1.ListInventoryResponse{Entries: []*clusterservicev1.InventoryEntry{{
		Kind: clusterservicev1.InventoryKind_INVENTORY_KIND_CLUSTER, Uid: drifted, ClusterUid: drifted, Generation: 1,
		ResourceId: "/subscriptions/00000000-0000-0000-0000-0000000000dd/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/drifted",
	}}}, nil
}

func (f *fleet) ListClusterActions(_ context.Context, r *clusterservicev1.ListClusterActionsRequest) (*clusterservicev1.ListClusterActionsResponse, error) {
	return &clusterservicev1.ListClusterActionsResponse{Actions: []*clusterservicev1.ClusterAction{
		{Uid: "one", ClusterUid: r.GetClusterUid(), Kind: "Retry", Actor: &clusterservicev1.Actor{Name: "alice@example.com", Reason: "it was stuck"}},
	}}, nil
}

func (f *fleet) ListClusterChanges(context.Context, *clusterservicev1.ListClusterChangesRequest) (*clusterservicev1.ListClusterChangesResponse, error) {
	return &clusterservicev1.ListClusterChangesResponse{Changes: []*clusterservicev1.ClusterChange{
		{Time: timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)), ResourceId: resourceID,
			Change: &clusterservicev1.ClusterChange_Phase{Phase: &clusterservicev1.PhaseChange{Before: "CLUSTER_PHASE_INSTALLING", After: "CLUSTER_PHASE_READY"}}},
	}}, nil
}

func (f *fleet) GetBreakGlassCredential(_ context.Context, r *clusterservicev1.GetBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	for _, c := range f.credentials {
		if c.GetUid() == r.GetUid() {
			return c, nil
		}
	}
	return nil, apierror.ToGRPC(apierror.New(apierror.NotFound, "There is no credential %s.", r.GetUid()), "test")
}

func (f *fleet) ListProvisionShards(context.Context, *clusterservicev1.ListProvisionShardsRequest) (*clusterservicev1.ListProvisionShardsResponse, error) {
	return &clusterservicev1.ListProvisionShardsResponse{ProvisionShards: []*clusterservicev1.ProvisionShard{{Name: "mgmt-1", Capacity: 100}}}, nil
}

func (f *fleet) GetProvisionShard(_ context.Context, r *clusterservicev1.GetProvisionShardRequest) (*clusterservicev1.ProvisionShardReport, error) {
	return &clusterservicev1.ProvisionShardReport{ProvisionShard: &clusterservicev1.ProvisionShard{Name: r.GetName()}, Nodes: 5}, nil
}

func (f *fleet) PlanDrain(_ context.Context, r *clusterservicev1.PlanDrainRequest) (*clusterservicev1.DrainPlan, error) {
	return &clusterservicev1.DrainPlan{ProvisionShard: &clusterservicev1.ProvisionShard{Name: r.GetName()}}, nil
}

func (f *fleet) ExplainPlacement(_ context.Context, r *clusterservicev1.ExplainPlacementRequest) (*clusterservicev1.PlacementExplanation, error) {
	return &clusterservicev1.PlacementExplanation{Uid: r.GetUid(), Sentences: []string{"It is on mgmt-1."}}, nil
}

func (f *fleet) ListDeletionLeftovers(context.Context, *clusterservicev1.ListDeletionLeftoversRequest) (*clusterservicev1.ListDeletionLeftoversResponse, error) {
	return &clusterservicev1.ListDeletionLeftoversResponse{Leftovers: []*clusterservicev1.DeletionLeftover{{WorkId: "left"}}}, nil
}

func (f *fleet) ListAzureOrphans(context.Context, *clusterservicev1.ListAzureOrphansRequest) (*clusterservicev1.ListAzureOrphansResponse, error) {
	return &clusterservicev1.ListAzureOrphansResponse{Orphans: []*clusterservicev1.AzureOrphan{{Uid: "group", Kind: "resource-group"}}}, nil
}

func (f *fleet) ListClusterConcerns(_ context.Context, r *clusterservicev1.ListClusterConcernsRequest) (*clusterservicev1.ListClusterConcernsResponse, error) {
	f.mu.Lock()
	f.concerns = append(f.concerns, proto.CloneOf(r))
	f.mu.Unlock()
	return &clusterservicev1.ListClusterConcernsResponse{NextPageToken: "next", Concerns: []*clusterservicev1.ClusterConcern{{ClusterUid: uid, ResourceId: resourceID, SubjectResourceId: resourceID + "/nodePools/np",
		Layer: "node-pool", State: "WaitingForNodes", ProvisionShard: "mgmt-1", Version: "4.20.8", Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY,
		Since: timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))}}}, nil
}

func (f *fleet) SummarizeClusterConcerns(context.Context, *clusterservicev1.SummarizeClusterConcernsRequest) (*clusterservicev1.SummarizeClusterConcernsResponse, error) {
	return &clusterservicev1.SummarizeClusterConcernsResponse{Groups: []*clusterservicev1.ClusterConcernGroup{
		{Layer: "node-pool", State: "WaitingForNodes", ProvisionShard: "mgmt-1", Clusters: 1, OldestSince: timestamppb.New(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))}}}, nil
}

func (f *fleet) ListUpgrades(context.Context, *clusterservicev1.ListUpgradesRequest) (*clusterservicev1.ListUpgradesResponse, error) {
	return &clusterservicev1.ListUpgradesResponse{Upgrades: []*clusterservicev1.Upgrade{{Uid: "upgrade"}}}, nil
}

func (f *fleet) GetUpgrade(_ context.Context, r *clusterservicev1.GetUpgradeRequest) (*clusterservicev1.Upgrade, error) {
	return &clusterservicev1.Upgrade{Uid: r.GetUid()}, nil
}

func (f *fleet) PlanUpgrade(_ context.Context, r *clusterservicev1.PlanUpgradeRequest) (*clusterservicev1.UpgradePlan, error) {
	return &clusterservicev1.UpgradePlan{ToVersion: r.GetVersion()}, nil
}

func (f *fleet) GetUpgradePolicy(_ context.Context, r *clusterservicev1.GetUpgradePolicyRequest) (*clusterservicev1.UpgradePolicy, error) {
	return &clusterservicev1.UpgradePolicy{Name: r.GetName(), Status: &clusterservicev1.UpgradePolicyStatus{Remaining: 3}}, nil
}

func (f *fleet) ListUpgradePolicies(context.Context, *clusterservicev1.ListUpgradePoliciesRequest) (*clusterservicev1.ListUpgradePoliciesResponse, error) {
	return &clusterservicev1.ListUpgradePoliciesResponse{Policies: []*clusterservicev1.UpgradePolicy{{Name: "nightly"}}}, nil
}

func (f *fleet) serve(t testing.TB) *grpc.ClientConn {
	t.Helper()
	return grpctest.Dial(t, grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, f) }, grpc.UnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if f.asked != nil {
			f.asked(ctx, path.Base(info.FullMethod))
		}
		if f.fail != nil {
			if err := f.fail(ctx); err != nil {
				return nil, err
			}
		}
		return handle(ctx, r)
	})))
}

func (f *fleet) GetCluster(_ context.Context, r *clusterservicev1.GetClusterRequest) (*clusterservicev1.Cluster, error) {
	for _, c := range f.clusters {
		if strings.EqualFold(c.GetUid(), r.GetUid()) {
			return c, nil
		}
	}
	return nil, apierror.ToGRPC(apierror.New(apierror.NotFound, "There is no cluster %s.", r.GetUid()), "test")
}

func (f *fleet) ListClusters(_ context.Context, r *clusterservicev1.ListClustersRequest) (*clusterservicev1.ListClustersResponse, error) {
	f.mu.Lock()
	f.lists = append(f.lists, proto.CloneOf(r))
	f.mu.Unlock()
	response := &clusterservicev1.ListClustersResponse{}
	for _, c := range f.clusters {
		if chosen(r, c) {
			response.Clusters = append(response.Clusters, c)
		}
	}
	return response, nil
}

// chosen reports whether a list request selects a cluster.
func chosen(r *clusterservicev1.ListClustersRequest, c *clusterservicev1.Cluster) bool {
	id, name, api := strings.ToLower(c.GetResourceId()), strings.ToLower(c.GetSpec().GetName()), strings.TrimPrefix(c.GetStatus().GetApiUrl(), "https://")
	host, _, _ := net.SplitHostPort(api)
	phase := c.GetStatus().GetPhase()
	if !slices.Contains(r.GetPhases(), phase) && (len(r.GetPhases()) > 0 || phase == clusterservicev1.ClusterPhase_CLUSTER_PHASE_DELETED) {
		return false
	}
	is := func(asked string, values ...string) bool {
		return asked == "" || slices.Contains(values, strings.ToLower(asked))
	}
	return is(r.GetResourceId(), id) && is(r.GetName(), name) && is(r.GetSubscriptionId(), strings.Split(id, "/")[2]) &&
		is(r.GetClusterId(), c.GetStatus().GetClusterId()) && is(r.GetBaseDomainPrefix(), c.GetStatus().GetBaseDomainPrefix()) &&
		is(r.GetApiHost(), api, host) && strings.HasPrefix(id, strings.ToLower(r.GetResourceIdPrefix())) && strings.HasPrefix(name, r.GetNamePrefix()) &&
		(len(r.GetUids()) == 0 || slices.Contains(r.GetUids(), c.GetUid()))
}

func (f *fleet) ListNodePools(_ context.Context, r *clusterservicev1.ListNodePoolsRequest) (*clusterservicev1.ListNodePoolsResponse, error) {
	response := &clusterservicev1.ListNodePoolsResponse{}
	for _, p := range f.nodePools {
		if (r.GetClusterUid() == "" || p.GetClusterUid() == r.GetClusterUid()) && (len(r.GetPhases()) == 0 || slices.Contains(r.GetPhases(), p.GetStatus().GetPhase())) {
			response.NodePools = append(response.NodePools, p)
		}
	}
	return response, nil
}

func (f *fleet) ListExternalAuths(context.Context, *clusterservicev1.ListExternalAuthsRequest) (*clusterservicev1.ListExternalAuthsResponse, error) {
	return &clusterservicev1.ListExternalAuthsResponse{}, nil
}

func (f *fleet) ListBreakGlassCredentials(_ context.Context, r *clusterservicev1.ListBreakGlassCredentialsRequest) (*clusterservicev1.ListBreakGlassCredentialsResponse, error) {
	response := &clusterservicev1.ListBreakGlassCredentialsResponse{}
	for _, c := range f.credentials {
		if c.GetClusterUid() == r.GetClusterUid() {
			response.Credentials = append(response.Credentials, c)
		}
	}
	return response, nil
}

func (f *fleet) ListBreakGlassRevocations(_ context.Context, r *clusterservicev1.ListBreakGlassRevocationsRequest) (*clusterservicev1.ListBreakGlassRevocationsResponse, error) {
	response := &clusterservicev1.ListBreakGlassRevocationsResponse{}
	for _, v := range f.revocations {
		if v.GetClusterUid() == r.GetClusterUid() {
			response.Revocations = append(response.Revocations, v)
		}
	}
	return response, nil
}

func (f *fleet) ListWorks(_ context.Context, r *clusterservicev1.ListWorksRequest) (*clusterservicev1.ListWorksResponse, error) {
	response := &clusterservicev1.ListWorksResponse{}
	for _, w := range f.works {
		if w.GetClusterUid() == r.GetClusterUid() || slices.Contains(r.GetIds(), w.GetId()) {
			response.Works = append(response.Works, w)
		}
	}
	if r.GetDrifting() {
		response.RepairedRemovals = f.repaired
	}
	return response, nil
}

// works simulates Maestro with the bundles of the test. It is unavailable while down is true.
type works struct {
	bundles []maestro.Bundle
	ignored wire.Ignored
	down    bool
	// fail returns the error of all requests for bundles; may be nil.
	fail func(ctx context.Context) error
}

func (w *works) Bundles(ctx context.Context, ids []string) ([]maestro.Bundle, wire.Ignored, error) {
	if w.fail != nil {
		if err := w.fail(ctx); err != nil {
			return nil, wire.Ignored{}, err
		}
	}
	if w.down {
		return nil, wire.Ignored{}, apierror.New(apierror.Unavailable, "Maestro cannot be reached.").WithCause(errors.New("refused"))
	}
	var found []maestro.Bundle
	for _, b := range w.bundles {
		for _, id := range ids {
			if b.ID == id {
				found = append(found, b)
			}
		}
	}
	return found, w.ignored, nil
}

func (w *works) EachPage(_ context.Context, visit func([]adminv1.Orphan) error) (wire.Ignored, error) {
	if w.down {
		return wire.Ignored{}, apierror.New(apierror.Unavailable, "Maestro cannot be reached.")
	}
	for _, b := range w.bundles {
		if err := visit([]adminv1.Orphan{b.Summary()}); err != nil {
			return w.ignored, err
		}
	}
	return w.ignored, visit(nil)
}

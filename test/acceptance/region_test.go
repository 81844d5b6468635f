package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	csconfig "github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/service"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/signingkey"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/store"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/updategraph"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/config"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/server"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/asyncoperation"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/ratelimit"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/postgrestest"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
)

const (
	location    = "westus3"
	environment = "local"
	shard       = "mgmt-1"
	// sampleSubscription is the subscription in the generated bodies, which stands for that of the request.
	sampleSubscription = "11111111-1111-1111-1111-111111111111"
)

var databases *postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m, &databases)) }

// region is a frontend, a Cluster Service and the API server of a management cluster.
type region struct {
	offer    *config.Config
	catalog  *release.Catalog
	frontend http.Handler
	db       *database.DB
	accepted *acceptedDocuments
	client   *clusterservice.Client
	store    *store.Store
	renderer *render.Renderer
	// agent has the rights of Maestro's agent, and operator all rights.
	agent, operator dynamic.Interface
	// prefixes counts the prefixes that the test generated. prefixLocks are locked while a cluster has a prefix.
	prefixes    atomic.Int64
	prefixLocks sync.Map
	// namespaceID is the cluster ID in the names of the namespaces that exist.
	namespaceID string
}

// acceptedDocuments collects the documents that the frontend dispatches, by the resource ID in lower case.
type acceptedDocuments struct {
	mu            sync.Mutex
	clusters      map[string]*database.ClusterDocument
	nodePools     map[string]*database.NodePoolDocument
	externalAuths map[string]*database.ExternalAuthDocument
}

func (a *acceptedDocuments) Cluster(_ context.Context, document *database.ClusterDocument, _ bool, _ string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clusters[strings.ToLower(document.Cluster.ID)] = document
}

func (a *acceptedDocuments) NodePool(_ context.Context, document *database.NodePoolDocument, _ bool, _ string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodePools[strings.ToLower(document.NodePool.ID)] = document
}

func (a *acceptedDocuments) ExternalAuth(_ context.Context, document *database.ExternalAuthDocument, _ bool, _ string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.externalAuths[strings.ToLower(document.ExternalAuth.ID)] = document
}

// take returns and forgets a document of one of the maps of accepted documents.
func take[D any](a *acceptedDocuments, from map[string]*D, id string) (*D, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	id = strings.ToLower(id)
	document := from[id]
	delete(from, id)
	if document == nil {
		return nil, fmt.Errorf("the frontend accepted %s and dispatched nothing", id)
	}
	return document, nil
}

// newRegion starts the parts of a region.
func newRegion(t *testing.T) *region {
	t.Helper()
	offer := must.Get(config.Default())(t)
	catalog := must.Get(release.Default())(t)
	r := &region{offer: offer, catalog: catalog, namespaceID: fleet.ClusterID(uuid.Nil.String()),
		accepted: &acceptedDocuments{clusters: map[string]*database.ClusterDocument{}, nodePools: map[string]*database.NodePoolDocument{}, externalAuths: map[string]*database.ExternalAuthDocument{}}}
	r.startManagementCluster(t)
	r.startClusterService(t)
	r.startFrontend(t)
	return r
}

// definitions returns the files of the CustomResourceDefinitions of HyperShift, and of what it makes of their content in hosted clusters.
func definitions(t *testing.T) []string {
	t.Helper()
	module := must.Get(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/openshift/api").Output())(t)
	files := []string{filepath.Join(strings.TrimSpace(string(module)), "config/v1/zz_generated.crd-manifests/0000_10_config-operator_01_imagedigestmirrorsets.crd.yaml")}
	const generated = "../../.build/third-party/crds/hypershift/hypershift-operator/zz_generated.crd-manifests"
	for _, pattern := range []string{"hostedclusters-*-Default.crd.yaml", "nodepools-Default.crd.yaml"} {
		found := must.Get(filepath.Glob(filepath.Join(generated, pattern)))(t)
		if len(found) == 0 {
			kubeapitest.SkipUnlessCI(t, "HyperShift's CustomResourceDefinitions are not built; run tooling/third-party/build.sh")
		}
		files = append(files, found...)
	}
	return files
}

func (r *region) startManagementCluster(t *testing.T) {
	t.Helper()
	files := definitions(t)
	cluster := kubeapitest.Start(t)
	operator := clientConfig(t, cluster.Kubeconfig())
	must.Get(envtest.InstallCRDs(operator, envtest.CRDInstallOptions{Paths: files, ErrorIfPathMissing: true}))(t)
	r.agent = must.Get(dynamic.NewForConfig(clientConfig(t, cluster.AgentKubeconfig(t))))(t)
	r.operator = must.Get(dynamic.NewForConfig(operator))(t)
	namespace := &unstructured.Unstructured{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	namespace.SetName(fleet.Namespace(environment, r.namespaceID))
	must.Get(r.operator.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), namespace, metav1.CreateOptions{}))(t)
}

func clientConfig(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	c := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	c.QPS = -1
	return c
}

func (r *region) startClusterService(t *testing.T) {
	t.Helper()
	var err error
	r.store = must.Get(store.Open(store.Options{URL: databases.Migrated(t, store.Migrations()), MaxConnections: 4}))(t)
	t.Cleanup(r.store.Close)
	must.Do(t, r.store.ConfigureShards(t.Context(), []csconfig.Shard{{Name: shard, Capacity: 1 << 30}}))
	keeper := must.Get(seal.New())(t)
	public, _, err := seal.NewPair()
	if err != nil {
		t.Fatal(err)
	}
	settings := csconfig.Default()
	for i := range csconfig.MaxImageContentSources {
		settings.ImageContentSources = append(settings.ImageContentSources, csconfig.ImageContentSource{Source: fmt.Sprintf("quay.io/service-%d", i), Mirrors: []string{"mirror.example/service"}})
	}
	r.renderer = &render.Renderer{
		Region:      fleet.Region{BaseDomain: "0ulz.westus3.aroapp-hcp.io", IssuerBase: "https://westus3.oic.aro-hcp.azure.com"},
		Environment: environment, Developer: true, Config: settings, PullSecret: []byte(`{"auths":{}}`),
		Open: func(string, []byte) ([]byte, error) { return []byte("signing key"), nil }, ShardKeys: map[string]*seal.PublicKeys{shard: public},
	}
	api := service.New(service.Options{Store: r.store, Renderer: r.renderer, Releases: updategraph.Fixed(r.catalog), Keeper: keeper,
		SigningKeys: signingkey.NewPool(0, signingkey.Generate)})
	address := grpctest.Serve(t, func(s grpc.ServiceRegistrar) { csv1.RegisterClusterServiceServer(s, api) }, grpc.UnaryInterceptor(service.RejectInvalidValues))
	r.client = clusterservice.NewClient(grpctest.Dial(t, address))
}

func (r *region) startFrontend(t *testing.T) {
	t.Helper()
	r.db, _ = databasetest.New(t)
	keys := must.Get(seal.New())(t)
	r.frontend = server.New(server.Config{
		Database: r.db, Dispatcher: r.accepted, Credentials: r.client, Versions: r.client, Rules: validation.NewRules(r.offer, location), Offer: r.offer,
		SkipTokens: server.NewSkipTokens(keys), Sealer: keys, Notifications: asyncoperation.Policy{Hosts: []string{"management.azure.com"}}, Location: location,
		ClustersPerSubscription: database.MaxClusterQuota, Health: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Rate: &ratelimit.Limit{},
	})
}

// send sends a body to the frontend.
func (r *region) send(method, path, version string, body []byte) (status int, answer string) {
	request := httptest.NewRequestWithContext(context.Background(), method, path+"?api-version="+version, bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Ms-Identity-Url", "https://identity.example")
	request.Header.Set("X-Ms-Home-Tenant-Id", "64dc69e4-d083-49fc-9569-ebece1dd1408")
	recorder := httptest.NewRecorder()
	r.frontend.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

// subscribe registers a new subscription and returns its ID.
func (r *region) subscribe(t *testing.T) string {
	t.Helper()
	id := uuid.NewString()
	if status, answer := r.send(http.MethodPut, "/subscriptions/"+id, "2.0", []byte(`{"state":"Registered","registrationDate":"now"}`)); status != http.StatusOK {
		t.Fatalf("registering a subscription: %d %s", status, answer)
	}
	return id
}

func clusterPath(subscription, name string) string {
	return "/subscriptions/" + subscription + "/resourceGroups/group/providers/" + hub.ClusterResourceType + "/" + name
}

// lock waits until no cluster has a prefix.
func (r *region) lock(prefix string) {
	lock, _ := r.prefixLocks.LoadOrStore(prefix, &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
}

// remove makes Cluster Service forget a cluster, as after its deletion.
func (r *region) remove(ctx context.Context, document *database.ClusterDocument) error {
	defer func() {
		lock, _ := r.prefixLocks.Load(document.Cluster.Properties.DNS.BaseDomainPrefix)
		lock.(*sync.Mutex).Unlock()
	}()
	return r.store.Update(ctx, []string{document.UID}, func(_ context.Context, tx *store.Tx) error {
		if c := tx.Aggregates[document.UID].Cluster; c != nil {
			c.DeleteTime, c.GoneTime = r.store.Now(), r.store.Now()
		}
		return nil
	})
}

// forgetExternalAuth removes an external authentication from the frontend's store, so that its cluster can have another one.
func (r *region) forgetExternalAuth(ctx context.Context, document *database.ExternalAuthDocument, subscription string) error {
	key := database.Key{SubscriptionID: subscription, ResourceID: document.ExternalAuth.ID}
	item, err := r.db.ExternalAuths().Get(ctx, key)
	if err != nil {
		return err
	}
	batch := r.db.NewBatch(subscription)
	database.Remove(batch, item)
	for reserved := range database.ExternalAuthReservations(item.Key, document.UID) {
		reservation, err := r.db.Reservations().Get(ctx, reserved)
		if err != nil {
			return err
		}
		database.Remove(batch, reservation)
	}
	return batch.Commit(ctx)
}

var resources = map[string]schema.GroupVersionResource{
	"ConfigMap":     {Version: "v1", Resource: "configmaps"},
	"Secret":        {Version: "v1", Resource: "secrets"},
	"HostedCluster": {Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"},
	"NodePool":      {Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"},
}

// application states how a rendering is applied: in a dry run, or so that the next rendering changes the stored objects.
type application []string

var (
	dryRun = application{metav1.DryRunAll}
	stored = application(nil)
)

// apply renders a work of a cluster as the publisher does, and applies the objects as Maestro's agent does. It returns the refusals.
func (r *region) apply(ctx context.Context, clusterUID string, kind fleet.WorkKind, ownerUID string, how application) error {
	aggregate, err := r.store.Read(ctx, clusterUID)
	if err != nil {
		return err
	}
	work := aggregate.Work(kind, ownerUID)
	if work == nil {
		return errors.New("Cluster Service has planned no work")
	}
	bundle, err := r.renderer.Bundle(aggregate, work)
	if err != nil {
		return fmt.Errorf("rendering: %w", err)
	}
	var refusals []error
	for i, text := range bundle.Manifests {
		if bundle.Configs[i].UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly {
			continue
		}
		// The namespace of the rendered cluster does not exist.
		text = bytes.ReplaceAll(text, []byte(aggregate.Cluster.ID()), []byte(r.namespaceID))
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(text); err != nil {
			return err
		}
		if object.GetKind() == "Secret" && object.Object["data"] != nil {
			continue // nothing of a customer, and sealed for the agent
		}
		if err := r.applyObject(ctx, &object, text, how); err != nil {
			refusals = append(refusals, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err))
		}
		if err := r.handedOn(ctx, &object); err != nil {
			refusals = append(refusals, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err))
		}
	}
	return errors.Join(refusals...)
}

func (r *region) applyObject(ctx context.Context, object *unstructured.Unstructured, text []byte, how application) error {
	resource, ok := resources[object.GetKind()]
	if !ok {
		return fmt.Errorf("%s is unknown to the test", object.GetKind())
	}
	_, err := r.agent.Resource(resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, text, metav1.PatchOptions{
		FieldManager: workv1.DefaultFieldManager, Force: new(true), FieldValidation: metav1.FieldValidationStrict, DryRun: how})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the namespace %s does not exist: %w", object.GetNamespace(), err)
	}
	return err
}

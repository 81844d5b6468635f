package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/procfs"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/jackc/pgx/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// nothingIsLeft waits until no layer holds anything of any cluster except tombstones. Some objects, for example terminating
// namespaces, disappear only after the operation has ended.
func nothingIsLeft(t *testing.T, ctx context.Context, customers ...*customer.Customer) {
	t.Helper()
	eventually.Before(ctx, t, "no layer has leftovers", func() error {
		if left := leftovers(t, ctx, customers...); len(left) > 0 {
			return errors.New("leftovers:\n  " + strings.Join(left, "\n  "))
		}
		return nil
	})
}

// parallelTests tracks the tests that use the region at the same time. The check of every layer sees the objects of all of them,
// so the last test to finish performs it for all.
type parallelTests struct {
	mu      sync.Mutex
	running int
	// done lists the customers of the finished tests since the last check. failed reports whether one of these tests failed.
	done   []*customer.Customer
	failed bool
}

// parallel tracks the parallel tests of this package.
var parallel parallelTests

// enter registers a test that starts.
func (g *parallelTests) enter() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running++
}

// leave registers the end of a test with its customers. The last test checks every layer of a region of processes.
func (g *parallelTests) leave(t *testing.T, customers ...*customer.Customer) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	g.done, g.failed = append(g.done, customers...), g.failed || t.Failed()
	if g.running > 0 || g.failed || region == nil {
		return
	}
	nothingIsLeft(t, withTimeout(t, 5*time.Minute), g.done...)
	g.done = nil
}

// leftovers returns what every layer still holds. A layer that cannot be read counts as a leftover.
func leftovers(t *testing.T, ctx context.Context, customers ...*customer.Customer) []string {
	t.Helper()
	var left []string
	layers := map[string]func(context.Context) ([]string, error){
		"management cluster": inManagementClusters,
		"maestro":            inMaestro,
		"cluster service":    inClusterService,
		"hosted processes":   inProcesses,
		"etcd":               inEtcd,
		"azure":              inAzure,
		"cosmos": func(ctx context.Context) ([]string, error) {
			var found []string
			for _, c := range customers {
				more, err := inCosmos(ctx, c.Subscription)
				if err != nil {
					return nil, err
				}
				found = append(found, more...)
			}
			return found, nil
		},
	}
	for layer, list := range layers {
		found, err := list(ctx)
		if err != nil {
			left = append(left, layer+": unreadable: "+err.Error())
		}
		for _, thing := range found {
			left = append(left, layer+": "+thing)
		}
	}
	slices.Sort(left)
	return left
}

// inManagementClusters lists hosted control planes, their namespaces and the records of the agents.
func inManagementClusters(ctx context.Context) ([]string, error) {
	kinds := []schema.GroupVersionResource{
		{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"},
		{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"},
		{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedcontrolplanes"},
		{Group: "work.open-cluster-management.io", Version: "v1", Resource: "appliedmanifestworks"},
		{Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"},
		{Version: "v1", Resource: "namespaces"},
	}
	var found []string
	for name, path := range region.Endpoints().Kubeconfigs {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return nil, err
		}
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		for _, kind := range kinds {
			list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("listing %s on %s: %w", kind.Resource, name, err)
			}
			for _, item := range list.Items {
				if kind.Resource == "namespaces" && !strings.HasPrefix(item.GetName(), "ocm-") {
					continue
				}
				found = append(found, fmt.Sprintf("%s %s %s/%s", name, kind.Resource, item.GetNamespace(), item.GetName()))
			}
		}
	}
	return found, nil
}

// inMaestro lists rows, including soft-deleted ones, which exist until the agent has confirmed the deletion.
func inMaestro(ctx context.Context) ([]string, error) {
	return rows(ctx, local.MaestroDatabase, "SELECT id::text || ' of ' || consumer FROM resources")
}

// administrator connects to a database of the region as the superuser.
func administrator(ctx context.Context, name string) (*pgx.Conn, error) {
	address, err := os.ReadFile(region.Endpoints().AdministratorURLFile)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(strings.TrimSpace(string(address)))
	if err != nil {
		return nil, err
	}
	config.Database = name
	return pgx.ConnectConfig(ctx, config)
}

func rows(ctx context.Context, name, query string) ([]string, error) {
	connection, err := administrator(ctx, name)
	if err != nil {
		return nil, err
	}
	defer connection.Close(context.WithoutCancel(ctx))
	result, err := connection.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(result, pgx.RowTo[string])
}

// inClusterService lists everything except tombstones.
func inClusterService(ctx context.Context) ([]string, error) {
	endpoints := region.Endpoints()
	identity, err := mesh.LoadIdentity(endpoints.Identities[string(mesh.Admin)])
	if err != nil {
		return nil, err
	}
	connection, err := grpc.NewClient(endpoints.ClusterService, grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService))))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	client := clusterservicev1.NewClusterServiceClient(connection)
	var found []string
	clusters, err := client.ListClusters(ctx, &clusterservicev1.ListClustersRequest{PageSize: 500})
	if err != nil {
		return nil, err
	}
	for _, cluster := range clusters.GetClusters() {
		found = append(found, fmt.Sprintf("%s in %s", cluster.GetResourceId(), cluster.GetStatus().GetPhase()))
	}
	pools, err := client.ListNodePools(ctx, &clusterservicev1.ListNodePoolsRequest{PageSize: 500})
	if err != nil {
		return nil, err
	}
	for _, pool := range pools.GetNodePools() {
		found = append(found, fmt.Sprintf("%s in %s", pool.GetResourceId(), pool.GetStatus().GetPhase()))
	}
	access, err := accessInClusterService(ctx, client)
	return append(found, access...), err
}

// accessInClusterService lists external authentications that are not deleted, and credentials and revocations that are not
// terminal.
func accessInClusterService(ctx context.Context, client clusterservicev1.ClusterServiceClient) ([]string, error) {
	var found []string
	auths, err := client.ListExternalAuths(ctx, &clusterservicev1.ListExternalAuthsRequest{PageSize: 500})
	if err != nil {
		return nil, err
	}
	for _, auth := range auths.GetExternalAuths() {
		found = append(found, fmt.Sprintf("%s in %s", auth.GetResourceId(), auth.GetStatus().GetPhase()))
	}
	issued, err := client.ListBreakGlassCredentials(ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{PageSize: 500, States: []clusterservicev1.BreakGlassCredentialState{
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING, clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED,
		clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_AWAITING_REVOCATION}})
	if err != nil {
		return nil, err
	}
	for _, credential := range issued.GetCredentials() {
		found = append(found, fmt.Sprintf("credential %s in %s", credential.GetUid(), credential.GetStatus().GetState()))
	}
	running, err := client.ListBreakGlassRevocations(ctx, &clusterservicev1.ListBreakGlassRevocationsRequest{PageSize: 500, States: []clusterservicev1.BreakGlassRevocationState{
		clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING, clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING}})
	if err != nil {
		return nil, err
	}
	for _, revocation := range running.GetRevocations() {
		found = append(found, fmt.Sprintf("revocation %s in %s", revocation.GetUid(), revocation.GetStatus().GetState()))
	}
	return found, nil
}

// inCosmos lists the documents of a subscription that are not deleted, including reservations, and operations that are not
// terminal.
func inCosmos(ctx context.Context, subscription string) ([]string, error) {
	endpoints := region.Endpoints()
	db, err := endpoints.OpenStore(ctx, "backend")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	var found []string
	more, err := liveDocuments(ctx, db.Clusters(), subscription)
	if err != nil {
		return nil, err
	}
	found = append(found, more...)
	if more, err = liveDocuments(ctx, db.NodePools(), subscription); err != nil {
		return nil, err
	}
	found = append(found, more...)
	if more, err = liveDocuments(ctx, db.Reservations(), subscription); err != nil {
		return nil, err
	}
	return append(found, more...), nil
}

func liveDocuments[T any](ctx context.Context, collection *database.Collection[T], subscription string) ([]string, error) {
	var found []string
	err := collection.ForEach(ctx, subscription, "", func(item *database.Item[T]) error {
		found = append(found, item.Key.ResourceID)
		return nil
	})
	return found, err
}

// inProcesses lists the running API servers of hosted control planes of this region.
func inProcesses(context.Context) ([]string, error) {
	var found []string
	for _, process := range procfs.HostedAPIServers(region.Endpoints().Etcd) {
		found = append(found, fmt.Sprintf("%d %s", process.PID, process.Command))
	}
	return found, nil
}

// inEtcd lists the keys and users of hosted control planes.
func inEtcd(ctx context.Context) ([]string, error) {
	config, err := region.Endpoints().EtcdTLS.Config()
	if err != nil {
		return nil, err
	}
	etcd, err := etcdusers.Open(region.Endpoints().Etcd, config)
	if err != nil {
		return nil, err
	}
	defer func() { _ = etcd.Close() }()
	values, err := etcd.Read(ctx, "/hosted")
	if err != nil {
		return nil, err
	}
	users, err := etcd.Users(ctx)
	if err != nil {
		return nil, err
	}
	users = slices.DeleteFunc(users, func(name string) bool { return !strings.HasPrefix(name, "/hosted/") })
	return append(slices.Collect(maps.Keys(values)), users...), nil
}

// inAzure lists what the Azure emulator holds for clusters: resources, certificates, published documents and associations of
// customers' subnets. It ignores what a new region contains and what customers create.
func inAzure(ctx context.Context) ([]string, error) {
	client, err := customer.NewHTTPClient(region.Endpoints().CAFile)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, region.Endpoints().Azure+"/_emulator/leftovers", nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the Azure emulator responded with %s", response.Status)
	}
	var found []string
	return found, json.NewDecoder(response.Body).Decode(&found)
}

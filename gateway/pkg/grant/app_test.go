package grant_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant/granttest"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/intenttest"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

// resources are the resources of the kinds in the rights of the chart.
var resources = map[string]schema.GroupVersionResource{
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"Role":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

// install gives gateway-grants its namespace, its service account and the rights of its chart, and returns the configuration of its pods.
func install(t *testing.T, cluster *kubeapitest.Cluster) *rest.Config {
	t.Helper()
	administrator, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	typed, err := kubernetes.NewForConfig(administrator)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(administrator)
	if err != nil {
		t.Fatal(err)
	}
	const name = string(mesh.GatewayGrants)
	if _, err := typed.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := typed.CoreV1().ServiceAccounts(name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../grants/deploy/rights.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(strings.TrimPrefix(string(text), "---\n"), "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
			t.Fatal(err)
		}
		resource, known := resources[object.GetKind()]
		if !known {
			t.Fatalf("the chart has an object of the kind %s", object.GetKind())
		}
		if _, err := objects.Resource(resource).Namespace(object.GetNamespace()).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	issued, err := typed.CoreV1().ServiceAccounts(name).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &rest.Config{Host: administrator.Host, BearerToken: issued.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: administrator.CAData, CAFile: administrator.CAFile}}
}

// start starts gateway-grants and returns its URL.
func start(t *testing.T, region *meshtest.Region, config *rest.Config, admin *intenttest.Admin, log *logtest.Log) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		p := process.New("gateway-grants", slog.New(slog.NewJSONHandler(log, nil)))
		if err := grant.Serve(ctx, p, grant.Parts{Config: config, Intents: admin.Verifier, Transport: region.Identity(mesh.GatewayGrants), Listener: listener}); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
	})
	return "https://" + listener.Addr().String() + mesh.GrantsPath
}

// client returns the client of a workload, without connections at the end of the test.
func client(t *testing.T, region *meshtest.Region, workload mesh.Peer, url string) *grant.Client {
	transport := region.Identity(workload).ClientTransport(mesh.GatewayGrants)
	t.Cleanup(transport.CloseIdleConnections)
	return grant.NewClient(url, transport)
}

// requestOf returns the request for a session of a mode, after changes of the intent.
func requestOf(t *testing.T, admin *intenttest.Admin, mode adminv1.AccessMode, changes ...func(*intent.Intent)) grant.Request {
	t.Helper()
	signed, parameters := admin.Session(t, adminv1.ActionServiceClusterSessionRequest, intent.Target{Kind: adminv1.TargetServiceCluster, ID: adminv1.ServiceCluster}, mode, changes...)
	return grant.Request{Intent: signed, Parameters: parameters}
}

// TestTokensForServiceCluster requests tokens as the session gateway from gateway-grants with the rights of its chart, and uses them with a real API server. Other
// workloads and intents get none.
func TestTokensForServiceCluster(t *testing.T) {
	cluster, admin, region, log := kubeapitest.Start(t), intenttest.New(t), meshtest.New(t), &logtest.Log{}
	config := install(t, cluster)
	url := start(t, region, config, admin, log)
	gateway := client(t, region, mesh.GatewayAccess, url)
	for _, mode := range []adminv1.AccessMode{adminv1.AccessRead, adminv1.AccessAdmin} {
		var issued *grant.Grant
		eventually.Soon(t, "the API server knows the rights of gateway-grants", func() (err error) {
			issued, err = gateway.Grant(t.Context(), requestOf(t, admin, mode))
			return err
		})

		if issued.Mode != mode {
			t.Errorf("the token has the mode %s, want %s", issued.Mode, mode)
		}
		granttest.Rights(t, issued, "gateway-grants", nil)
		if strings.Contains(log.String(), issued.Token) {
			t.Error("the log has a token")
		}
	}
	for name, request := range map[string]grant.Request{
		"a management cluster": requestOf(t, admin, adminv1.AccessRead, func(i *intent.Intent) {
			i.Action, i.Target = adminv1.ActionShardSessionRequest, intent.Target{Kind: adminv1.TargetShard, ID: "mgmt-1"}
		}),
		"another target": requestOf(t, admin, adminv1.AccessRead, func(i *intent.Intent) { i.Target.Kind = adminv1.TargetShard }),
		"another signer": requestOf(t, intenttest.New(t), adminv1.AccessRead),
		"no intent":      {},
	} {
		if issued, err := gateway.Grant(t.Context(), request); issued != nil || apierror.KindOf(err) != apierror.PermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, workload := range []mesh.Peer{mesh.Admin, mesh.Backend, mesh.Frontend} {
		if issued, err := client(t, region, workload, url).Grant(t.Context(), requestOf(t, admin, adminv1.AccessRead)); issued != nil || err == nil {
			t.Errorf("%s got a token, %v", workload, err)
		}
	}
	if got := region.AllowedRequests(mesh.GatewayGrants, strings.TrimSuffix(url, mesh.GrantsPath), []string{"POST " + mesh.GrantsPath, "GET " + mesh.GrantsPath, "POST /other"}); len(got) != 1 {
		t.Errorf("the calls that the server allows: %q", got)
	}
}

// silentServer is the connection to a server that does not answer.
type silentServer struct{}

// RoundTrip implements http.RoundTripper.
func (silentServer) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestServiceClusterDoesNotAnswer requests a token from a server that does not answer: the gateway may repeat the request. The clock is that of the bubble.
func TestServiceClusterDoesNotAnswer(t *testing.T) {
	request := requestOf(t, intenttest.New(t), adminv1.AccessRead)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := grant.NewClient("https://gateway-grants"+mesh.GrantsPath, silentServer{}).Grant(t.Context(), request); apierror.KindOf(err) != apierror.Unavailable {
			t.Errorf("%v, want the kind %v", err, apierror.Unavailable)
		}
		if took := time.Since(began); took != grant.Timeout {
			t.Errorf("the request ended after %s, want %s", took, grant.Timeout)
		}
	})
}

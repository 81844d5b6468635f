//go:build nightly

// gRPC's xDS client and the packages of Envoy, which only `make nightly` needs, compile for more than a minute of CPU time. So only it
// builds this file, with the tag nightly.

package istiopolicy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	xdscredentials "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiodtest"
	"github.com/hcpmesh/hcpmesh/tooling/mesh-policies/pkg/istiopolicy"
)

// istioMesh is a mesh of gRPC servers, one for each workload, which get their policies from istiod and enforce them (gRPC's xDS).
type istioMesh struct {
	options   istiopolicy.Options
	client    dynamic.Interface
	authority string
	istiod    *istiodtest.Istiod
	// servers are the addresses of the servers.
	servers map[mesh.Peer]string
}

// meshOptions returns options in which one workload takes the place of all ingress gateways. The authority of a test can issue its certificate.
func meshOptions() istiopolicy.Options {
	o := options()
	o.ARMGateway = istiopolicy.ServiceAccount{Namespace: string(mesh.ARMFrontDoor), Name: string(mesh.ARMFrontDoor)}
	o.AdminGateway, o.TunnelGateway = o.ARMGateway, o.ARMGateway
	return o
}

// startMesh starts an API server with the policies of the table, istiod and the servers.
func startMesh(ctx context.Context, t *testing.T) *istioMesh {
	t.Helper()
	istiodtest.Programs(t)
	m := &istioMesh{options: meshOptions(), authority: t.TempDir(), servers: map[mesh.Peer]string{}}
	objects := must.Get(istiopolicy.Render(mesh.Rules(), m.options))(t)
	cluster, client := istioAPIServer(t)
	m.client = client
	createNamespace(t, client, istiodtest.Namespace)
	listeners := map[mesh.Peer]net.Listener{}
	for n, workload := range m.options.Workloads {
		listener := must.Get(net.Listen("tcp", fmt.Sprintf("127.0.1.%d:0", n+1)))(t)
		listeners[workload] = listener
		createNamespace(t, client, string(workload))
		m.createPod(t, workload, listener.Addr().(*net.TCPAddr))
	}
	applyPolicies(t, client, objects)
	m.istiod = istiodtest.Start(t, cluster, m.options.TrustDomain)
	for _, workload := range m.options.Workloads {
		m.serve(ctx, t, workload, listeners[workload])
	}
	return m
}

// createPod creates a running pod of a workload at an address, and its Service. No node runs it: its server is in this process.
func (m *istioMesh) createPod(t *testing.T, workload mesh.Peer, address *net.TCPAddr) {
	t.Helper()
	create(t, m.client, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: %[1]s, namespace: %[1]s}}", workload)
	create(t, m.client, `{apiVersion: v1, kind: Service, metadata: {name: %[1]s, namespace: %[1]s},
		spec: {selector: {app.kubernetes.io/name: %[1]s}, ports: [{name: grpc, port: 8443, targetPort: %[2]d}]}}`, workload, address.Port)
	pod := create(t, m.client, `{apiVersion: v1, kind: Pod, metadata: {name: %[1]s, namespace: %[1]s, labels: {app.kubernetes.io/name: %[1]s}},
		spec: {serviceAccountName: %[1]s, automountServiceAccountToken: false, containers: [{name: server, image: none}]}}`, workload)
	pod.Object["status"] = map[string]any{"phase": "Running", "podIP": address.IP.String(), "podIPs": []any{map[string]any{"ip": address.IP.String()}},
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	pods := m.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(string(workload))
	must.Get(pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}))(t)
}

// identity issues the certificate of a workload and returns its folder.
func (m *istioMesh) identity(t *testing.T, trustDomain string, workload mesh.Peer) string {
	t.Helper()
	authority := must.Get(mesh.OpenAuthority(m.authority, trustDomain))(t)
	dir := t.TempDir()
	must.Do(t, authority.Issue(dir, workload))
	return dir
}

// serve starts the server of a workload, which answers every method, and waits until it has its listener from istiod.
func (m *istioMesh) serve(ctx context.Context, t *testing.T, workload mesh.Peer, listener net.Listener) {
	t.Helper()
	address := listener.Addr().(*net.TCPAddr)
	dir := m.identity(t, m.options.TrustDomain, workload)
	name := string(workload)
	bootstrap := must.Get(json.Marshal(map[string]any{
		"xds_servers": []any{map[string]any{"server_uri": m.istiod.XDS, "channel_creds": []any{map[string]string{"type": "insecure"}}, "server_features": []string{"xds_v3"}}},
		"node": map[string]any{"id": fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", address.IP, name, name, name), "metadata": map[string]any{
			"GENERATOR": "grpc", "CLUSTER_ID": "Kubernetes", "NAMESPACE": name, "SERVICE_ACCOUNT": name, "INSTANCE_IPS": address.IP.String(),
			"LABELS": map[string]string{"app.kubernetes.io/name": name}}},
		"certificate_providers": map[string]any{"default": map[string]any{"plugin_name": "file_watcher", "config": map[string]string{
			"certificate_file": filepath.Join(dir, mesh.CertificateFile), "private_key_file": filepath.Join(dir, mesh.KeyFile),
			"ca_certificate_file": filepath.Join(dir, mesh.CAFile), "refresh_interval": "600s"}}},
		"server_listener_resource_name_template": "xds.istio.io/grpc/lds/inbound/%s",
	}))(t)
	secure := must.Get(xdscredentials.NewServerCredentials(xdscredentials.ServerOptions{FallbackCreds: insecure.NewCredentials()}))(t)
	modes := make(chan xds.ServingModeChangeArgs, 1)
	server := must.Get(xds.NewGRPCServer(grpc.Creds(secure), xds.BootstrapContentsForTesting(bootstrap),
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error { return stream.SendMsg(&emptypb.Empty{}) }),
		xds.ServingModeCallback(func(_ net.Addr, mode xds.ServingModeChangeArgs) {
			select {
			case modes <- mode:
			default: // the test has stopped waiting
			}
		})))(t)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	for {
		select {
		case <-ctx.Done():
			t.Fatalf("%s got no listener from istiod:\n%s", workload, m.istiod.Log())
		case mode := <-modes:
			if mode.Mode != connectivity.ServingModeServing {
				t.Logf("%s is %s: %v", workload, mode.Mode, mode.Err)
				continue
			}
			m.servers[workload] = listener.Addr().String()
			return
		}
	}
}

// connect returns a connection to a server with credentials.
func (m *istioMesh) connect(t *testing.T, server mesh.Peer, with credentials.TransportCredentials) *grpc.ClientConn {
	t.Helper()
	connection := must.Get(grpc.NewClient("passthrough:///"+m.servers[server], grpc.WithTransportCredentials(with)))(t)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// as returns the credentials of a client. The server's certificate is verified, and not its name.
func (m *istioMesh) as(t *testing.T, trustDomain string, client mesh.Peer) credentials.TransportCredentials {
	t.Helper()
	dir := m.identity(t, trustDomain, client)
	pair := must.Get(tls.LoadX509KeyPair(filepath.Join(dir, mesh.CertificateFile), filepath.Join(dir, mesh.KeyFile)))(t)
	text := must.Get(os.ReadFile(filepath.Join(dir, mesh.CAFile)))(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots})
			return err
		}})
}

// call reports whether Istio allows a call.
func call(ctx context.Context, connection *grpc.ClientConn, method string) (bool, error) {
	err := connection.Invoke(ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
	switch {
	case err == nil:
		return true, nil
	case status.Code(err) == codes.PermissionDenied:
		return false, nil
	}
	return false, err
}

// pathOf returns the path that a rule allows for POST, the method of all gRPC calls. It returns "" for a rule without such a path.
func pathOf(rule mesh.Rule) string {
	if rule.Protocol == mesh.GRPC {
		return rule.Method
	}
	path, found := strings.CutPrefix(rule.Method, "POST ")
	if rule.Protocol != mesh.HTTP || !found || strings.Contains(path, "{") {
		return ""
	}
	return path
}

// tableAllows reports whether the table allows a client to POST to a path of a server.
func tableAllows(server, client mesh.Peer, path string) bool {
	return slices.ContainsFunc(mesh.Rules(), func(rule mesh.Rule) bool {
		everything := rule.Protocol == mesh.HTTP && rule.Method == "/"
		return rule.Server == server && (everything || pathOf(rule) == path) && slices.ContainsFunc(rule.Clients, func(g mesh.Grant) bool {
			return g.Client == client || g.Client == mesh.Anybody || client == mesh.ARMFrontDoor && g.Client == mesh.Engineers
		})
	})
}

// TestIstioEnforcesTable calls every method of the table at every workload as every workload. istiod translates the policies, and the servers
// enforce what it sends: they allow exactly the calls that the table allows.
func TestIstioEnforcesTable(t *testing.T) {
	ctx, cancel := eventually.Context(t)
	defer cancel()
	m := startMesh(ctx, t)
	var paths []string
	for _, rule := range mesh.Rules() {
		if path := pathOf(rule); path != "" && slices.Contains(m.options.Workloads, rule.Server) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	paths = append(slices.Compact(paths), "/hcpmesh.clusterservice.v1.ClusterService/Unknown")
	allowed, refused := 0, 0
	for _, client := range mesh.Peers() {
		own, foreign := m.as(t, m.options.TrustDomain, client), m.as(t, "other.example", client)
		for _, server := range m.options.Workloads {
			connection, outsider := m.connect(t, server, own), m.connect(t, server, foreign)
			for _, path := range paths {
				got, err := call(ctx, connection, path)
				if err != nil {
					t.Fatalf("%s of %s by %s: %v", path, server, client, err)
				}
				if want := tableAllows(server, client, path); got != want {
					t.Errorf("%s of %s by %s: Istio allows it: %t, the table: %t", path, server, client, got, want)
				}
				if got {
					allowed++
				} else {
					refused++
				}
			}
			// The table allows the workload of the same name this path, if it allows any.
			path := paths[max(0, slices.IndexFunc(paths, func(path string) bool { return tableAllows(server, client, path) }))]
			if got, err := call(ctx, outsider, path); err != nil || got {
				t.Errorf("%s by %s of another trust domain: allowed %t, %v", server, client, got, err)
			}
		}
	}
	if allowed == 0 || refused == 0 {
		t.Fatalf("%d allowed and %d refused calls were compared", allowed, refused)
	}
	t.Logf("%d calls were allowed and %d refused", allowed, refused)
	for _, server := range m.options.Workloads {
		_, err := call(ctx, m.connect(t, server, insecure.NewCredentials()), paths[0])
		if status.Code(err) != codes.Unavailable {
			t.Errorf("a call of %s without TLS: %v, want Unavailable", server, err)
		}
	}
}

// swapped returns the policies of the table with the backend and hcpctl in each other's place.
func swapped(t *testing.T, o istiopolicy.Options) []runtime.Object {
	t.Helper()
	var rules []mesh.Rule
	for _, rule := range mesh.Rules() {
		rule.Clients = slices.Clone(rule.Clients)
		for n, grant := range rule.Clients {
			switch grant.Client {
			case mesh.Backend:
				rule.Clients[n].Client = mesh.Hcpctl
			case mesh.Hcpctl:
				rule.Clients[n].Client = mesh.Backend
			}
		}
		rules = append(rules, rule)
	}
	return must.Get(istiopolicy.Render(rules, o))(t)
}

// TestIstioFollowsPolicies shows that the test above can fail: a policy for another client changes which calls the servers allow, and without
// a strict PeerAuthentication they accept connections without TLS.
func TestIstioFollowsPolicies(t *testing.T) {
	ctx, cancel := eventually.Context(t)
	defer cancel()
	m := startMesh(ctx, t)
	const path = "/" + mesh.ClusterServiceAPI + "/Watch"
	backend := m.connect(t, mesh.ClusterService, m.as(t, m.options.TrustDomain, mesh.Backend))
	hcpctl := m.connect(t, mesh.ClusterService, m.as(t, m.options.TrustDomain, mesh.Hcpctl))
	expect := func(what string, connection *grpc.ClientConn, want bool) {
		t.Helper()
		eventually.Before(ctx, t, what, func() error {
			if got, err := call(ctx, connection, path); err != nil || got != want {
				return fmt.Errorf("allowed: %t, %v", got, err)
			}
			return nil
		})
	}
	expect("the table allows the backend", backend, true)
	expect("the table refuses hcpctl", hcpctl, false)
	applyPolicies(t, m.client, swapped(t, m.options))
	expect("the changed policy allows hcpctl", hcpctl, true)
	expect("the changed policy refuses the backend", backend, false)

	strict := m.client.Resource(schema.GroupVersionResource{Group: "security.istio.io", Version: "v1", Resource: "peerauthentications"})
	must.Do(t, strict.Namespace(string(mesh.ClusterService)).Delete(ctx, "strict", metav1.DeleteOptions{}))
	eventually.Before(ctx, t, "a call without TLS reaches the policies", func() error {
		allowed, err := call(ctx, m.connect(t, mesh.ClusterService, insecure.NewCredentials()), path)
		if err == nil && allowed {
			return errors.New("it is allowed without an identity")
		}
		return err
	})
}

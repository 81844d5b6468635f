package mesh_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// serveHTTP serves a handler that writes the name of the caller, with the transport of a mode, and returns the address.
func serveHTTP(t *testing.T, authorizer *mesh.Authorizer, transport mesh.Transport) string {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	handler := authorizer.Handler(transport, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, mesh.ClientName(r.Context()))
	}))
	server := &httptest.Server{Listener: authorizer.Listener(transport, listener), Config: &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}}
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().String()
}

// listRules allows admin to list, over HTTP.
func listRules() []mesh.Rule {
	return []mesh.Rule{
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "GET " + consumers, Clients: []mesh.Grant{{Client: mesh.Admin}}},
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "DELETE " + consumers, Clients: []mesh.Grant{{Client: mesh.Hcpctl}}},
	}
}

// get sends a request with headers x-forwarded-client-cert and returns the status and the body.
func get(t *testing.T, transport *http.Transport, base string, headers ...string) (int, string) {
	t.Helper()
	defer transport.CloseIdleConnections()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, base+consumers, nil))(t)
	for _, header := range headers {
		request.Header.Add(mesh.ClientCertHeader, header)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(body)
}

// forged returns headers with which a client pretends to be another workload, in the form of the server's own sidecar and of others.
func forged(server, client mesh.Peer) []string {
	id := func(peer mesh.Peer) string { return mesh.ID{TrustDomain: "test", Peer: peer}.URL().String() }
	own := "By=" + id(server) + `;Hash=00;Subject="";URI=` + id(client)
	return []string{own, "URI=" + id(client), own + `,x="`, own + `,x="\`, own + ";Subject=\"", `x="a,` + own}
}

// TestForwardedCertificatesOfClientsAreIgnored sends requests with forged headers. With certificates the servers never read the header.
// Behind a sidecar they read only the element that the sidecar appended, and refuse a request in which that is not certain.
func TestForwardedCertificatesOfClientsAreIgnored(t *testing.T) {
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			region := meshtest.New(t)
			address := region.Front(mode, mesh.MaestroServer, serveHTTP(t, mesh.NewAuthorizer(mesh.MaestroServer, listRules(), nil), region.Transport(mode, mesh.MaestroServer)))
			transport := func(client mesh.Peer) *http.Transport {
				return &http.Transport{TLSClientConfig: region.Identity(client).ClientTLS(mesh.MaestroServer)}
			}
			for _, header := range forged(mesh.MaestroServer, mesh.Admin) {
				if code, body := get(t, transport(mesh.Hcpctl), "https://"+address, header); code != http.StatusForbidden && !(mode == meshtest.Sidecars && code == http.StatusUnauthorized) {
					t.Errorf("hcpctl with the header %s: status %d, %s", header, code, body)
				}
			}
			if code, body := get(t, transport(mesh.Admin), "https://"+address, forged(mesh.MaestroServer, mesh.Hcpctl)[:2]...); code != http.StatusOK || body != string(mesh.Admin) {
				t.Errorf("admin with the headers of hcpctl: status %d, %s", code, body)
			}

			echo := region.Front(mode, mesh.ClusterService, serveEchoWith(region, region.Transport(mode, mesh.ClusterService)))
			client := csv1.NewClusterServiceClient(region.Dial(mesh.Frontend, mesh.ClusterService, echo))
			for _, header := range forged(mesh.ClusterService, mesh.Backend) {
				ctx := metadata.AppendToOutgoingContext(t.Context(), mesh.ClientCertHeader, header)
				_, err := client.GetCluster(ctx, &csv1.GetClusterRequest{})
				if code := status.Code(err); code != codes.PermissionDenied && !(mode == meshtest.Sidecars && code == codes.Unauthenticated) {
					t.Errorf("the frontend with the header %s: %v", header, err)
				}
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), mesh.ClientCertHeader, forged(mesh.ClusterService, mesh.Frontend)[0])
			cluster, err := csv1.NewClusterServiceClient(region.Dial(mesh.Backend, mesh.ClusterService, echo)).GetCluster(ctx, &csv1.GetClusterRequest{})
			if err != nil || cluster.GetUid() != string(mesh.Backend) {
				t.Errorf("the backend with the header of the frontend is %q, %v", cluster.GetUid(), err)
			}
		})
	}
}

func serveEchoWith(region *meshtest.Region, transport mesh.Transport) string {
	server := grpc.NewServer(mesh.NewAuthorizer(mesh.ClusterService, mesh.Rules(), nil).ServerOptions(transport)...)
	csv1.RegisterClusterServiceServer(server, echo{})
	return region.Serve(server)
}

// TestModesAllowSameCalls makes each call of Cluster Service as each workload and as invalid clients, in both modes.
func TestModesAllowSameCalls(t *testing.T) {
	allowed := map[meshtest.Mode][]string{}
	for _, mode := range meshtest.Modes() {
		region := meshtest.New(t)
		calls := meshtest.Calls(t, mesh.ClusterService, mesh.ClusterServiceAPI)
		allowed[mode] = region.AllowedCalls(mesh.ClusterService, region.Front(mode, mesh.ClusterService, serveEchoWith(region, region.Transport(mode, mesh.ClusterService))), calls)
	}
	if diff := cmp.Diff(allowed[meshtest.Certificates], allowed[meshtest.Sidecars]); diff != "" || len(allowed[meshtest.Sidecars]) < 10 {
		t.Errorf("%d allowed calls (-certificates +sidecars):\n%s", len(allowed[meshtest.Sidecars]), diff)
	}
}

// TestOnlySidecarConnects sends requests with valid headers that do not come from the sidecar's address. The servers do not accept the
// connections, and accept those from this address.
func TestOnlySidecarConnects(t *testing.T) {
	region := meshtest.New(t)
	address := serveHTTP(t, mesh.NewAuthorizer(mesh.MaestroServer, listRules(), nil), region.Transport(meshtest.Sidecars, mesh.MaestroServer))
	api := serveEchoWith(region, region.Transport(meshtest.Sidecars, mesh.ClusterService))
	for from, accepted := range map[string]bool{"127.0.0.1": false, "127.0.0.5": false, "127.0.0.6": true} {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		code, body := get(t, &http.Transport{DialContext: dialer.DialContext}, "http://"+address, forged(mesh.MaestroServer, mesh.Admin)[0])
		if accepted && code != http.StatusOK || !accepted && code != 0 {
			t.Errorf("HTTP from %s: status %d, %s", from, code, body)
		}
		connection, err := grpc.NewClient("passthrough:///"+api, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, "tcp", address)
			}))
		if err != nil {
			t.Fatal(err)
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), mesh.ClientCertHeader, forged(mesh.ClusterService, mesh.Backend)[0])
		_, err = csv1.NewClusterServiceClient(connection).GetCluster(ctx, &csv1.GetClusterRequest{})
		_ = connection.Close()
		if accepted && err != nil || !accepted && status.Code(err) != codes.Unavailable {
			t.Errorf("gRPC from %s: %v", from, err)
		}
	}
}

// TestRequestsWithoutHeaderAreRefused sends requests from the sidecar's address that no client with mutual TLS has made.
func TestRequestsWithoutHeaderAreRefused(t *testing.T) {
	region := meshtest.New(t)
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.0.6")}}
	address := serveHTTP(t, mesh.NewAuthorizer(mesh.MaestroServer, listRules(), nil), region.Transport(meshtest.Sidecars, mesh.MaestroServer))
	if code, body := get(t, &http.Transport{DialContext: dialer.DialContext}, "http://"+address); code != http.StatusUnauthorized {
		t.Errorf("HTTP: status %d, %s", code, body)
	}
	connection := must.Get(grpc.NewClient("passthrough:///"+serveEchoWith(region, region.Transport(meshtest.Sidecars, mesh.ClusterService)), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		})))(t)
	defer func() { _ = connection.Close() }()
	client := csv1.NewClusterServiceClient(connection)
	if _, err := client.GetCluster(t.Context(), &csv1.GetClusterRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a unary call: %v", err)
	}
	stream, err := client.Watch(t.Context(), &csv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a stream: %v", err)
	}
}

// TestPublicServer sends requests to a server that authenticates tokens. Behind a sidecar it accepts only those of the region's workloads.
func TestPublicServer(t *testing.T) {
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			region := meshtest.New(t)
			transport := region.Transport(mode, mesh.Admin)
			listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			handler := transport.PublicHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
			server := &httptest.Server{Listener: transport.PublicListener(listener), Config: &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}}
			server.Start()
			t.Cleanup(server.Close)
			base := "https://" + region.Front(mode, mesh.Admin, listener.Addr().String())
			for _, client := range []mesh.Peer{mesh.Backend, mesh.ARMFrontDoor} {
				if code, body := get(t, &http.Transport{TLSClientConfig: region.Identity(client).ClientTLS(mesh.Admin)}, base); code != http.StatusOK {
					t.Errorf("%s: status %d, %s", client, code, body)
				}
			}
			for _, invalid := range region.InvalidClients(mesh.Backend) {
				code, _ := get(t, &http.Transport{TLSClientConfig: invalid.TLS()}, base)
				// The names of workloads have no meaning here: admin authenticates tokens.
				member := invalid.Name == "unknown workload instead of backend" || invalid.Name == "certificate of engineers instead of backend" || invalid.Name == "certificate of anybody instead of backend"
				if want := mode == meshtest.Certificates || member; (code == http.StatusOK) != want {
					t.Errorf("%s: status %d, accepted %t", invalid.Name, code, want)
				}
			}
			if mode == meshtest.Sidecars {
				if code, body := get(t, &http.Transport{}, "http://"+listener.Addr().String(), forged(mesh.Admin, mesh.Backend)[0]); code != 0 {
					t.Errorf("a request past the sidecar: status %d, %s", code, body)
				}
			}
		})
	}
}

// TestProgramsBehindSidecars calls servers as programs do whose connections go through the sidecars of both sides.
func TestProgramsBehindSidecars(t *testing.T) {
	region := meshtest.New(t)
	client := region.Transport(meshtest.Sidecars, mesh.Admin)
	rest := region.Sidecar(mesh.MaestroServer, serveHTTP(t, mesh.NewAuthorizer(mesh.MaestroServer, listRules(), nil), region.Transport(meshtest.Sidecars, mesh.MaestroServer)))
	base := client.Scheme() + "://" + region.ClientSidecar(mesh.Admin, mesh.MaestroServer, rest)
	if code, body := get(t, client.ClientTransport(mesh.MaestroServer), base); code != http.StatusOK || body != string(mesh.Admin) {
		t.Errorf("HTTP: status %d, %s", code, body)
	}
	api := region.Sidecar(mesh.ClusterService, serveEchoWith(region, region.Transport(meshtest.Sidecars, mesh.ClusterService)))
	connection := must.Get(grpc.NewClient("passthrough:///"+region.ClientSidecar(mesh.Backend, mesh.ClusterService, api),
		grpc.WithTransportCredentials(region.Transport(meshtest.Sidecars, mesh.Backend).ClientCredentials(mesh.ClusterService))))(t)
	defer func() { _ = connection.Close() }()
	stream := must.Get(csv1.NewClusterServiceClient(connection).Watch(t.Context(), &csv1.WatchRequest{}))(t)
	if event, err := stream.Recv(); err != nil || event.GetCluster().GetUid() != string(mesh.Backend) {
		t.Errorf("a stream has the caller %q, %v", event.GetCluster().GetUid(), err)
	}
	// A client that pretends to be another one has the identity of its own sidecar.
	pretender := must.Get(grpc.NewClient("passthrough:///"+region.ClientSidecar(mesh.Hcpctl, mesh.ClusterService, api), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer func() { _ = pretender.Close() }()
	ctx := metadata.AppendToOutgoingContext(t.Context(), mesh.ClientCertHeader, forged(mesh.ClusterService, mesh.Backend)[0])
	if _, err := csv1.NewClusterServiceClient(pretender).GetCluster(ctx, &csv1.GetClusterRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("hcpctl with the header of the backend: %v", err)
	}
}

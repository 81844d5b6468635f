// Package meshtest calls a server as each workload of a region, over mutual TLS, and reports which calls the server allowed.
// Tests compare the result with a golden file, so that a change of the authorization table is visible in review.
package meshtest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

// Region issues the identities of the workloads of one test.
type Region struct {
	t           testing.TB
	trustDomain string
	// dir is the folder of the authority, which issues the identities that are not there yet.
	dir        string
	authority  *mesh.Authority
	identities map[mesh.Peer]*mesh.Identity
	// sidecars are the addresses of the stand-ins of sidecars.
	sidecars map[string]bool
}

// trustDomain is the trust domain of the regions of New.
const trustDomain = "test"

// New returns a region with its own certificate authority.
func New(t testing.TB) *Region {
	t.Helper()
	return Open(t, t.TempDir(), trustDomain)
}

// Open returns a region with the certificate authority in a folder, for example that of a local region.
func Open(t testing.TB, dir, trustDomain string) *Region {
	t.Helper()
	authority, err := mesh.OpenAuthority(dir, trustDomain)
	if err != nil {
		t.Fatal(err)
	}
	return &Region{t: t, trustDomain: trustDomain, dir: dir, authority: authority, identities: map[mesh.Peer]*mesh.Identity{}, sidecars: map[string]bool{}}
}

// Identity returns the identity of a workload.
func (r *Region) Identity(workload mesh.Peer) *mesh.Identity {
	r.t.Helper()
	if r.identities[workload] == nil {
		r.identities[workload] = r.IdentityWith(workload, "127.0.0.1")
	}
	return r.identities[workload]
}

// IdentityWith issues an identity of a workload whose certificate contains hosts.
func (r *Region) IdentityWith(workload mesh.Peer, hosts ...string) *mesh.Identity {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), string(workload))
	if err := r.authority.Issue(dir, workload, hosts...); err != nil {
		r.t.Fatal(err)
	}
	identity, err := mesh.LoadIdentity(dir)
	if err != nil {
		r.t.Fatal(err)
	}
	return identity
}

// Serve serves a gRPC server on loopback until the test ends, and returns its address.
func (r *Region) Serve(server *grpc.Server) string {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	r.t.Cleanup(func() { server.Stop(); <-done })
	return listener.Addr().String()
}

// Dial returns a connection of a workload to a server, until the test ends.
func (r *Region) Dial(workload, server mesh.Peer, address string) *grpc.ClientConn {
	r.t.Helper()
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(r.Identity(workload).ClientTLS(server))))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// Call is a gRPC request to one method.
type Call struct {
	// Method is the full name of the method.
	Method string
	// Variant describes the request, if a method has several; else it is empty.
	Variant string
	Request proto.Message
	// Intent is the signed intent that the call carries; may be empty.
	Intent string
}

// Calls returns a call of each method of services, by their full names, with an empty request. The services must be linked into
// the test. A method of the server without a rule in the authorization table is an error.
func Calls(t testing.TB, server mesh.Peer, services ...string) []Call {
	t.Helper()
	ruled := map[string]bool{}
	for _, rule := range mesh.Rules() {
		ruled[rule.Method] = ruled[rule.Method] || rule.Server == server && rule.Protocol == mesh.GRPC
	}
	var calls []Call
	for _, name := range services {
		descriptor, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Fatalf("service %s: %v", name, err)
		}
		methods := descriptor.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			method := "/" + name + "/" + string(methods.Get(i).Name())
			if !ruled[method] {
				t.Errorf("%s of %s has no rule; add one to internal/mesh/rules.go", method, server)
			}
			calls = append(calls, Call{Method: method, Request: dynamicpb.NewMessage(methods.Get(i).Input())})
		}
	}
	return calls
}

// AllowedCalls makes all calls as each workload and returns those that the server allowed, one line per call, sorted. It also makes all
// calls as invalid clients with the names of the allowed clients; see Region.InvalidClients. Those are an error if the server accepts them. A call is
// refused if the connection is refused, or if the response is PermissionDenied and names the workload. Behind a sidecar, a server refuses
// calls and not connections. The implementation
// behind the server must not respond with Unavailable or PermissionDenied. A server that is not running refuses all calls:
// compare the result with calls that must be allowed.
func (r *Region) AllowedCalls(server mesh.Peer, address string, calls []Call) []string {
	r.t.Helper()
	var allowed []string
	var clients []mesh.Peer
	for _, workload := range mesh.Peers() {
		before := len(allowed)
		connection := r.Dial(workload, server, address)
		for _, call := range calls {
			err := invoke(r.t.Context(), connection, call)
			switch code := status.Code(err); {
			case code == codes.Unavailable: // the connection is refused
			case code != codes.PermissionDenied:
				allowed = append(allowed, strings.TrimSpace(string(workload)+" "+call.Method+" "+call.Variant))
			case r.sidecars[address] && refusedByMesh(err) && strings.Contains(err.Error(), "identity "+string(workload)+" may not call any method of "):
			case !refusedByMesh(err) || !strings.Contains(err.Error(), "identity "+string(workload)+" may not call "+call.Method):
				r.t.Errorf("%s as %s: %v", call.Method, workload, err)
			}
		}
		if len(allowed) > before {
			clients = append(clients, workload)
		}
	}
	for _, client := range clients {
		r.refuseCalls(client, address, calls)
	}
	slices.Sort(allowed)
	return allowed
}

// invoke makes a call and receives its first response. It treats each method as a stream of responses, which has the same
// form on the wire.
func invoke(ctx context.Context, connection *grpc.ClientConn, call Call) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if call.Intent != "" {
		ctx = intent.AppendToOutgoingContext(ctx, call.Intent)
	}
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, call.Method)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(call.Request); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(&emptypb.Empty{}); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func refusedByMesh(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetReason() == mesh.ReasonNotAuthorized {
			return true
		}
	}
	return false
}

// AllowedRequests sends HTTP requests, each as METHOD /path, to base as each workload, and returns those that the server allowed,
// one line per request, sorted. It also sends them as invalid clients, as AllowedCalls does. A request is refused if the connection is
// refused, or if the status is 403 and the body names the workload.
func (r *Region) AllowedRequests(server mesh.Peer, base string, requests []string) []string {
	r.t.Helper()
	var allowed []string
	var clients []mesh.Peer
	for _, workload := range mesh.Peers() {
		before := len(allowed)
		transport := &http.Transport{TLSClientConfig: r.Identity(workload).ClientTLS(server)}
		for _, text := range requests {
			response, err := roundTrip(r.t, transport, text, base)
			if err != nil {
				continue // the connection is refused
			}
			body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
			_ = response.Body.Close()
			switch {
			case err != nil:
				r.t.Errorf("%s as %s: %v", text, workload, err)
			case response.StatusCode != http.StatusForbidden:
				allowed = append(allowed, string(workload)+" "+text)
			case strings.HasPrefix(text, http.MethodHead+" ") && r.sidecars[strings.TrimPrefix(base, "https://")]: // the response has no body
			case !strings.Contains(string(body), "identity "+string(workload)+" may not call"):
				r.t.Errorf("%s as %s: status 403 with body %s", text, workload, body)
			}
		}
		transport.CloseIdleConnections()
		if len(allowed) > before {
			clients = append(clients, workload)
		}
	}
	for _, client := range clients {
		r.refuseRequests(client, base, requests)
	}
	slices.Sort(allowed)
	return allowed
}

// roundTrip sends a request METHOD /path to base. It does not follow redirects.
func roundTrip(t testing.TB, transport *http.Transport, text, base string) (*http.Response, error) {
	t.Helper()
	method, path, _ := strings.Cut(text, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return transport.RoundTrip(request)
}

// Golden compares lines with a file, or writes the file.
func Golden(t testing.TB, path string, lines []string, write bool) {
	t.Helper()
	got := strings.Join(lines, "\n") + "\n"
	if write {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the golden file (-update writes it): %v", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the allowed calls differ from %s (-want +got):\n%s", path, diff)
	}
}

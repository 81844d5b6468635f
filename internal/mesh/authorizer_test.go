package mesh_test

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	_ "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRulesOfClusterService checks that each rule is for an existing method, and that its conditions are for existing fields.
func TestRulesOfClusterService(t *testing.T) {
	ruled := map[string]bool{}
	for _, rule := range mesh.Rules() {
		if rule.Server != mesh.ClusterService {
			continue
		}
		if rule.Protocol != mesh.GRPC || ruled[rule.Method] {
			t.Errorf("%s %s: Cluster Service has one rule for each gRPC method", rule.Protocol, rule.Method)
		}
		ruled[rule.Method] = true
		name := strings.ReplaceAll(strings.TrimPrefix(rule.Method, "/"), "/", ".")
		method, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			t.Errorf("%s: the rule is for a method that does not exist", rule.Method)
			continue
		}
		for _, grant := range rule.Clients {
			checkCondition(t, method.(protoreflect.MethodDescriptor), grant.Condition)
		}
	}
}

// checkCondition checks that the field of a condition exists, and its values if the field is an enumeration.
func checkCondition(t *testing.T, method protoreflect.MethodDescriptor, condition mesh.Condition) {
	t.Helper()
	if condition.Absent != "" && method.Input().Fields().ByName(protoreflect.Name(condition.Absent)) == nil {
		t.Errorf("%s: %s has no field %s", method.Name(), method.Input().Name(), condition.Absent)
	}
	if condition.Field == "" {
		return
	}
	message := method.Input()
	if condition.InResponse {
		message = method.Output()
	}
	for names := strings.Split(condition.Field, "."); ; names = names[1:] {
		field := message.Fields().ByName(protoreflect.Name(names[0]))
		switch {
		case field == nil:
			t.Errorf("%s: %s has no field %s", method.Name(), message.Name(), condition.Field)
			return
		case len(names) > 1:
			message = field.Message()
			continue
		case field.Enum() != nil:
			for _, value := range condition.Values {
				if field.Enum().Values().ByName(protoreflect.Name(value)) == nil {
					t.Errorf("%s: %s has no value %s", method.Name(), field.Enum().Name(), value)
				}
			}
		}
		return
	}
}

// TestRulesNameKnownWorkloads checks that a typing error in the table cannot grant something to nobody.
func TestRulesNameKnownWorkloads(t *testing.T) {
	for _, rule := range mesh.Rules() {
		for _, grant := range rule.Clients {
			if grant.Client.IsWorkload() && !slices.Contains(mesh.Peers(), grant.Client) {
				t.Errorf("%s of %s: unknown workload %s", rule.Method, rule.Server, grant.Client)
			}
			if (grant.Client == mesh.Engineers) != (grant.Condition.Role != "") {
				t.Errorf("%s of %s: a role is for engineers and not for %s", rule.Method, rule.Server, grant.Client)
			}
		}
	}
}

const consumers = "/api/maestro/v1/consumers"

func TestHandler(t *testing.T) {
	region := meshtest.New(t)
	rules := []mesh.Rule{
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "GET " + consumers, Clients: []mesh.Grant{{Client: mesh.Admin}, {Client: mesh.Hcpctl}}},
		{Server: mesh.MaestroServer, Protocol: mesh.HTTP, Method: "DELETE " + consumers + "/{id}", Clients: []mesh.Grant{{Client: mesh.Hcpctl}}},
		{Server: mesh.MaestroServer, Protocol: mesh.GRPC, Method: "GET /other", Clients: []mesh.Grant{{Client: mesh.Admin}}},
		{Server: mesh.Frontend, Protocol: mesh.HTTP, Method: "GET /other", Clients: []mesh.Grant{{Client: mesh.Admin}}},
	}
	authorizer := mesh.NewAuthorizer(mesh.MaestroServer, rules, nil)
	handler := authorizer.Handler(region.Identity(mesh.MaestroServer), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, mesh.ClientName(r.Context()))
	}))
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	server := &httptest.Server{Listener: tls.NewListener(listener, region.Identity(mesh.MaestroServer).ServerTLS(authorizer.Clients()...)), Config: &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}}
	server.Start()
	defer server.Close()
	allowed := region.AllowedRequests(mesh.MaestroServer, "https://"+listener.Addr().String(), []string{"GET " + consumers, "HEAD " + consumers, "POST " + consumers,
		"DELETE " + consumers + "/1", "DELETE " + consumers + "/1/2", "DELETE " + consumers + "/%31%2F2", "DELETE " + consumers + "/", "GET /other", "GET /", "OPTIONS /"})
	want := []string{"admin GET " + consumers, "admin HEAD " + consumers, "hcpctl DELETE " + consumers + "/%31%2F2", "hcpctl DELETE " + consumers + "/1",
		"hcpctl GET " + consumers, "hcpctl HEAD " + consumers}
	if !slices.Equal(allowed, want) {
		t.Errorf("allowed are %q, want %q", allowed, want)
	}

	plain := httptest.NewRecorder()
	handler.ServeHTTP(plain, httptest.NewRequest(http.MethodGet, consumers, nil))
	if plain.Code != http.StatusUnauthorized {
		t.Errorf("a request without TLS got status %d", plain.Code)
	}
}

// echo is an API whose watch sends the name of its caller as an error.
type echo struct {
	csv1.UnimplementedClusterServiceServer
}

func (echo) GetCluster(ctx context.Context, _ *csv1.GetClusterRequest) (*csv1.Cluster, error) {
	return &csv1.Cluster{Uid: mesh.ClientName(ctx)}, nil
}

func (echo) Watch(_ *csv1.WatchRequest, stream grpc.ServerStreamingServer[csv1.WatchResponse]) error {
	return stream.Send(&csv1.WatchResponse{Event: &csv1.WatchResponse_Cluster{Cluster: &csv1.Cluster{Uid: mesh.ClientName(stream.Context())}}})
}

// TestHandlersKnowTheirCaller checks the context of unary calls and of streams.
func TestHandlersKnowTheirCaller(t *testing.T) {
	region := meshtest.New(t)
	client := csv1.NewClusterServiceClient(region.Dial(mesh.Backend, mesh.ClusterService, serveEcho(region, mesh.Rules())))
	cluster, err := client.GetCluster(t.Context(), &csv1.GetClusterRequest{})
	if err != nil || cluster.GetUid() != string(mesh.Backend) {
		t.Errorf("a unary call has the caller %q, %v", cluster.GetUid(), err)
	}
	stream := must.Get(client.Watch(t.Context(), &csv1.WatchRequest{}))(t)
	event, err := stream.Recv()
	if err != nil || event.GetCluster().GetUid() != string(mesh.Backend) {
		t.Errorf("a stream has the caller %q, %v", event.GetCluster().GetUid(), err)
	}
}

func serveEcho(region *meshtest.Region, rules []mesh.Rule) string {
	server := grpc.NewServer(mesh.NewAuthorizer(mesh.ClusterService, rules, nil).ServerOptions(region.Identity(mesh.ClusterService))...)
	csv1.RegisterClusterServiceServer(server, echo{})
	return region.Serve(server)
}

// TestConditionsOfStreams checks the messages of a stream in both directions.
func TestConditionsOfStreams(t *testing.T) {
	const watch = csv1.ClusterService_Watch_FullMethodName
	for name, c := range map[string]struct {
		reason    string
		condition mesh.Condition
		allowed   bool
	}{
		"Response":      {"the message has the value", mesh.Condition{Field: "cluster.uid", Values: []string{"admin"}, InResponse: true}, true},
		"OtherResponse": {"the message has another value", mesh.Condition{Field: "cluster.uid", Values: []string{"other"}, InResponse: true}, false},
		"Request":       {"a request without the field does not comply", mesh.Condition{Field: "unknown", Values: []string{"x"}}, false},
		"NotText":       {"a number is not a value", mesh.Condition{Field: "after_revision", Values: []string{"0"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			region := meshtest.New(t)
			rules := []mesh.Rule{{Server: mesh.ClusterService, Protocol: mesh.GRPC, Method: watch, Clients: []mesh.Grant{{Client: mesh.Admin, Condition: c.condition}}}}
			allowed := region.AllowedCalls(mesh.ClusterService, serveEcho(region, rules), []meshtest.Call{{Method: watch, Request: &csv1.WatchRequest{}}})
			if slices.Equal(allowed, []string{"admin " + watch}) != c.allowed {
				t.Errorf("allowed are %q: %s", allowed, c.reason)
			}
		})
	}
}

// fixedIntents returns the same result for every intent.
type fixedIntents struct{ err error }

func (fixedIntents) CarriesIntent(context.Context) bool { return true }

func (f fixedIntents) VerifyIntent(ctx context.Context, _ string, _ proto.Message) (context.Context, string, error) {
	return ctx, "alice", f.err
}

// TestCallsThatNeedIntents checks that a server refuses all calls that need an intent unless it can verify intents, that streams
// cannot need one, and that the record of a refusal names the engineer who is proven.
func TestCallsThatNeedIntents(t *testing.T) {
	const get, watch = csv1.ClusterService_GetCluster_FullMethodName, csv1.ClusterService_Watch_FullMethodName
	asked := []mesh.Grant{{Client: mesh.Backend, Condition: mesh.Condition{Intent: true}}}
	rules := []mesh.Rule{{Server: mesh.ClusterService, Protocol: mesh.GRPC, Method: get, Clients: asked}, {Server: mesh.ClusterService, Protocol: mesh.GRPC, Method: watch, Clients: asked}}
	refusal := apierror.New(apierror.PermissionDenied, "The identity backend may not call %s: the elevation has ended.", get).WithReason(mesh.ReasonNotAuthorized)
	for name, c := range map[string]struct {
		intents mesh.IntentVerifier
		want    []string
		record  string
	}{
		"NoVerifier": {nil, nil, "outcome=refused"},
		"Verified":   {fixedIntents{}, []string{"backend " + get}, ""},
		"Refused":    {fixedIntents{refusal}, nil, "actor=alice"},
	} {
		t.Run(name, func(t *testing.T) {
			var records strings.Builder
			region := meshtest.New(t)
			authorizer := mesh.NewAuthorizer(mesh.ClusterService, rules, slog.New(slog.NewTextHandler(&records, nil))).WithIntents(c.intents)
			server := grpc.NewServer(authorizer.ServerOptions(region.Identity(mesh.ClusterService))...)
			csv1.RegisterClusterServiceServer(server, echo{})
			calls := []meshtest.Call{{Method: get, Request: &csv1.GetClusterRequest{}}, {Method: watch, Request: &csv1.WatchRequest{}}}
			if allowed := region.AllowedCalls(mesh.ClusterService, region.Serve(server), calls); !slices.Equal(allowed, c.want) {
				t.Errorf("allowed are %q, want %q", allowed, c.want)
			}
			server.Stop()
			if !strings.Contains(records.String(), c.record) {
				t.Errorf("the records lack %s: %s", c.record, &records)
			}
		})
	}
}

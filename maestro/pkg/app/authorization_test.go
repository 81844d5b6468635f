package app_test

import (
	"context"
	"flag"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/meshtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/restapi"
)

var update = flag.Bool("update", false, "rewrite the golden file of allowed calls")

// sources are the sources in the requests: the one of Cluster Service, another one, and none.
var sources = []string{"cluster-service", "another-source", ""}

// TestAllowedCalls makes each call of both APIs as each workload, in both modes of identity. The database is unreachable, so an allowed call
// fails in the server and changes nothing.
func TestAllowedCalls(t *testing.T) {
	for _, mode := range meshtest.Modes() {
		t.Run(string(mode), func(t *testing.T) { testAllowedCalls(t, mode) })
	}
}

func testAllowedCalls(t *testing.T, mode meshtest.Mode) {
	region, grpcAddress, restAddress := serveWith(t, func(c *app.Config, region *meshtest.Region) { c.Transport = region.Transport(mode, mesh.MaestroServer) })
	grpcAddress, restAddress = region.Front(mode, mesh.MaestroServer, grpcAddress), region.Front(mode, mesh.MaestroServer, restAddress)
	var calls []meshtest.Call
	for _, source := range sources {
		calls = append(calls,
			meshtest.Call{Method: pbv1.CloudEventService_Publish_FullMethodName, Variant: "source=" + source, Request: &pbv1.PublishRequest{Event: &pbv1.CloudEvent{Source: source}}},
			// The data type is not supported, so an allowed subscription ends.
			meshtest.Call{Method: pbv1.CloudEventService_Subscribe_FullMethodName, Variant: "source=" + source, Request: &pbv1.SubscriptionRequest{Source: source, DataType: "none"}})
	}
	for _, call := range meshtest.Calls(t, mesh.MaestroServer, mesh.CloudEventsAPI, mesh.HealthAPI) {
		call.Variant = "with an empty request"
		calls = append(calls, call)
	}
	const root, id = maestroapi.RESTPath, "/00000000-0000-0000-0000-000000000001"
	requests := []string{
		"GET " + root + "/consumers", "POST " + root + "/consumers", "GET " + root + "/consumers" + id, "PATCH " + root + "/consumers" + id, "DELETE " + root + "/consumers" + id,
		"GET " + root + "/resource-bundles", "POST " + root + "/resource-bundles", "GET " + root + "/resource-bundles" + id, "DELETE " + root + "/resource-bundles" + id,
		"GET /", "GET /metrics", "GET " + root + "/resource-bundles/", "GET " + root + "/consumers/../resource-bundles" + id, "GET /" + root + "/resource-bundles" + id,
	}
	allowed := append(region.AllowedCalls(mesh.MaestroServer, grpcAddress, calls), region.AllowedRequests(mesh.MaestroServer, "https://"+restAddress, requests)...)
	meshtest.Golden(t, "testdata/allowed-calls.golden", allowed, *update)
}

// TestEveryRouteHasRule compares the rules with the routes of the REST API.
func TestEveryRouteHasRule(t *testing.T) {
	var ruled []string
	for _, rule := range mesh.Rules() {
		if rule.Server == mesh.MaestroServer && rule.Protocol == mesh.HTTP {
			ruled = append(ruled, rule.Method)
		}
	}
	slices.Sort(ruled)
	patterns := restapi.Patterns()
	slices.Sort(patterns)
	if diff := cmp.Diff(patterns, ruled); diff != "" {
		t.Errorf("the rules differ from the routes (-routes +rules):\n%s", diff)
	}
}

// TestPublishRefusesHiddenSource publishes events whose attributes or content replace the source that was authorized.
func TestPublishRefusesHiddenSource(t *testing.T) {
	region, address, _ := serve(t)
	client := pbv1.NewCloudEventServiceClient(region.Dial(mesh.ClusterService, mesh.MaestroServer, address))
	text := func(value string) *pbv1.CloudEventAttributeValue {
		return &pbv1.CloudEventAttributeValue{Attr: &pbv1.CloudEventAttributeValue_CeString{CeString: value}}
	}
	for name, event := range map[string]*pbv1.CloudEvent{
		"Attribute": {SpecVersion: "1.0", Id: "1", Source: "cluster-service", Type: maestroapi.TypeDelete, Attributes: map[string]*pbv1.CloudEventAttributeValue{
			"ce-source": text("another-source"), "ce-resourceid": text("00000000-0000-0000-0000-000000000001"), "ce-clustername": text("mgmt-1")}},
		"StructuredData": {Source: "cluster-service", Attributes: map[string]*pbv1.CloudEventAttributeValue{"contenttype": text("application/cloudevents+json")},
			Data: &pbv1.CloudEvent_BinaryData{BinaryData: []byte(`{"specversion":"1.0","id":"1","source":"another-source","type":"` + maestroapi.TypeDelete +
				`","resourceid":"00000000-0000-0000-0000-000000000001","clustername":"mgmt-1"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := client.Publish(t.Context(), &pbv1.PublishRequest{Event: event})
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "two different sources") {
				t.Errorf("got %v, want a refusal because of the sources", err)
			}
		})
	}
}

// serve runs a server whose database and broker are unreachable.
func serve(t *testing.T, changes ...func(*app.Config)) (region *meshtest.Region, grpcAddress, restAddress string) {
	t.Helper()
	return serveWith(t, func(c *app.Config, _ *meshtest.Region) {
		for _, change := range changes {
			change(c)
		}
	})
}

// serveWith is serve with a change that needs the region.
func serveWith(t *testing.T, change func(*app.Config, *meshtest.Region)) (region *meshtest.Region, grpcAddress, restAddress string) {
	t.Helper()
	region = meshtest.New(t)
	config := unreachable(t, region)
	change(&config, region)
	ctx, cancel := context.WithCancel(context.Background())
	server, err := app.New(ctx, config)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("the server stopped: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return region, config.GRPC.Addr().String(), config.REST.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

package app_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/refusals"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/maestro/pkg/app"
)

// TestRefusedCallsAreRecorded publishes under another source, deletes a bundle with admin's certificate and connects with that of the
// frontend. The audit has a record of each, with the workload.
func TestRefusedCallsAreRecorded(t *testing.T) {
	options := audittest.Options(t)
	refused, stop, err := refusals.Start(t.Context(), options, string(mesh.MaestroServer), slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	region, grpcAddress, restAddress := serve(t, func(c *app.Config) { c.Refused = refused.Call })
	client := pbv1.NewCloudEventServiceClient(region.Dial(mesh.ClusterService, mesh.MaestroServer, grpcAddress))
	for range 3 {
		if _, err := client.Publish(t.Context(), &pbv1.PublishRequest{Event: &pbv1.CloudEvent{Source: "another-source"}}); err == nil {
			t.Error("the event was accepted")
		}
	}
	const bundle = maestroapi.RESTPath + "/resource-bundles/00000000-0000-0000-0000-000000000001"
	for _, workload := range []mesh.Peer{mesh.Admin, mesh.Frontend} {
		transport := &http.Transport{TLSClientConfig: region.Identity(workload).ClientTLS(mesh.MaestroServer)}
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+restAddress+bundle, nil))(t)
		response, err := transport.RoundTrip(request)
		if (err == nil) != (workload == mesh.Admin) {
			t.Fatal(workload, err)
		}
		if err == nil {
			_ = response.Body.Close()
		}
		transport.CloseIdleConnections()
	}
	stop()
	record := func(peer mesh.Peer, action, object string) audit.Record {
		return audit.Record{Peer: string(peer), Action: action, Object: audit.Object{ID: object}, Outcome: audit.Refused, Code: "Forbidden"}
	}
	repeated := record(mesh.ClusterService, "Publish", "")
	repeated.Count = 2
	want := []audit.Record{
		record(mesh.ClusterService, "Publish", ""),
		record(mesh.Admin, "DELETE "+maestroapi.RESTPath+"/resource-bundles/{id}", bundle),
		record(mesh.Frontend, "connect", ""),
		repeated,
	}
	if diff := cmp.Diff(want, audittest.Stored(t, options, string(mesh.MaestroServer)), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

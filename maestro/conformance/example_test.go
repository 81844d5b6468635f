package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"k8s.io/apimachinery/pkg/api/meta"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/payload"
	pbv1 "open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protobuf/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/generic/options/grpc/protocol"

	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// applyAndWait is a complete source in one function, as an example for the protocol documentation. It subscribes, publishes a bundle
// and returns when the bundle is applied.
func applyAndWait(ctx context.Context, service pbv1.CloudEventServiceClient, source, consumer, bundle string) error {
	// 1. Subscribe and wait for the header. From here on every status is received.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := metadata.AppendToOutgoingContext(ctx, "maestro-omit-manifests", "true")
	statuses, err := service.Subscribe(quiet, &pbv1.SubscriptionRequest{Source: source, ClusterName: consumer})
	if err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}
	if _, err := statuses.Header(); err != nil {
		return fmt.Errorf("subscribing: %w", err)
	}

	// 2. Publish. The header of the response contains the resulting version.
	id := uuid.NewString()
	evt := cloudevents.NewEvent()
	evt.SetID(uuid.NewString())
	evt.SetSource(source)
	evt.SetType("io.open-cluster-management.works.v1alpha1.manifestbundles.spec.create_request")
	evt.SetExtension("resourceid", id)
	evt.SetExtension("resourceversion", 0)
	evt.SetExtension("clustername", consumer)
	evt.SetExtension("metadata", fmt.Sprintf(`{"name":%q}`, id))
	if err := evt.SetData(cloudevents.ApplicationJSON, json.RawMessage(bundle)); err != nil {
		return err
	}
	request := &pbv1.PublishRequest{Event: &pbv1.CloudEvent{}}
	if err := protocol.WritePBMessage(ctx, binding.ToMessage(&evt), request.Event); err != nil {
		return err
	}
	var header metadata.MD
	if _, err := service.Publish(ctx, request, grpc.Header(&header)); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	version := header.Get("maestro-resource-version")[0]

	// 3. Wait for the report that this version was applied.
	for {
		in, err := statuses.Recv()
		if err != nil {
			return fmt.Errorf("waiting for the status: %w", err)
		}
		status, err := binding.ToEvent(ctx, protocol.NewMessage(in))
		if err != nil || status.Extensions()["resourceid"] != id {
			continue // a heartbeat, or a status of another resource
		}
		var body payload.ManifestBundleStatus
		if err := status.DataAs(&body); err != nil {
			return fmt.Errorf("reading the status: %w", err)
		}
		applied := meta.FindStatusCondition(body.Conditions, "Applied")
		if applied != nil && applied.Status == "True" && fmt.Sprint(applied.ObservedGeneration) == version {
			return nil
		}
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	s := r.StartServer()
	consumer := r.consumer(s)
	r.startAgent(consumer)
	conn := must.Get(grpc.NewClient("passthrough:///"+s.GRPC,
		grpc.WithTransportCredentials(credentials.NewTLS(r.Identity("cluster-service").ClientTLS(mesh.MaestroServer)))))(t)
	defer conn.Close()
	name := unique("cm")
	bundle := fmt.Sprintf(`{
		"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": %[1]q, "namespace": "default"}, "data": {"key": "value"}}],
		"manifestConfigs": [{
			"resourceIdentifier": {"group": "", "resource": "configmaps", "name": %[1]q, "namespace": "default"},
			"updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"fieldManager": "cluster-service"}},
			"feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "key", "path": ".data.key"}]}]
		}]
	}`, name)
	must.Do(t, applyAndWait(t.Context(), pbv1.NewCloudEventServiceClient(conn), "cluster-service", consumer, bundle))
	if _, err := r.configMap(name); err != nil {
		t.Error(err)
	}
}

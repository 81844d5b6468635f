package app_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/clusterservice"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestMalformedIDsAreRefused sends IDs in forms that the frontend never sends, with its certificate: other spellings of a UUID, which would be another
// key of the same row, and resource IDs that the database cannot store. The error names the field, and nothing is stored.
func TestMalformedIDsAreRefused(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	frontend := r.as(mesh.Frontend, service)
	victim := applyRequest("victim", 1)
	must.Get(service.ApplyCluster(t.Context(), victim))(t)
	refused := func(attack, field string, err error) {
		t.Helper()
		known := apierror.As(apierror.FromGRPC(err))
		if status.Code(err) != codes.InvalidArgument || len(known.Violations) != 1 || known.Violations[0].Field != field {
			t.Errorf("%s: %v, want an error of %s", attack, err, field)
		}
	}
	for _, uid := range []string{victim.Uid, uuid.NewString()} {
		for _, spelling := range []string{"{" + uid + "}", "urn:uuid:" + uid, strings.ReplaceAll(uid, "-", ""), "[" + uid + "]"} {
			cluster := applyRequest("victim", 2)
			cluster.Uid = spelling
			_, err := frontend.ApplyCluster(t.Context(), cluster)
			refused("cluster "+spelling, "uid", err)
			_, err = frontend.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: spelling})
			refused("deletion of "+spelling, "uid", err)
			pool := poolRequest(victim, "pool", 1)
			pool.ClusterUid = spelling
			_, err = frontend.ApplyNodePool(t.Context(), pool)
			refused("node pool of "+spelling, "cluster_uid", err)
			_, err = frontend.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: uuid.NewString(), ClusterUid: spelling})
			refused("deletion of a node pool of "+spelling, "cluster_uid", err)
			_, err = frontend.GetBreakGlassCredential(t.Context(), &csv1.GetBreakGlassCredentialRequest{Uid: spelling})
			refused("credential "+spelling, "uid", err)
			_, err = service.ListClusters(t.Context(), &csv1.ListClustersRequest{Uids: []string{spelling}})
			refused("list with "+spelling, "uids", err)
		}
	}
	random := make([]byte, 1500)
	_, _ = rand.Read(random) // never fails
	long := hex.EncodeToString(random)
	for name, id := range map[string]string{"zero byte": resourceID("victim") + "\x00", "long": long, "empty": ""} {
		cluster, pool := applyRequest("new", 1), poolRequest(victim, "pool", 1)
		cluster.ResourceId, pool.ResourceId = id, id
		_, err := frontend.ApplyCluster(t.Context(), cluster)
		refused("cluster, "+name, "resource_id", err)
		_, err = frontend.ApplyNodePool(t.Context(), pool)
		refused("node pool, "+name, "resource_id", err)
	}
	for name, id := range map[string]string{"zero byte": "\x00", "long": long} {
		_, err := frontend.DeleteCluster(t.Context(), &csv1.DeleteClusterRequest{Uid: uuid.NewString(), ResourceId: id})
		refused("deletion of an unknown cluster, "+name, "resource_id", err)
		_, err = frontend.DeleteNodePool(t.Context(), &csv1.DeleteNodePoolRequest{Uid: uuid.NewString(), ClusterUid: victim.Uid, ResourceId: id})
		refused("deletion of an unknown node pool, "+name, "resource_id", err)
		_, err = frontend.DeleteExternalAuth(t.Context(), &csv1.DeleteExternalAuthRequest{Uid: uuid.NewString(), ClusterUid: victim.Uid, ResourceId: id})
		refused("deletion of an unknown external authentication, "+name, "resource_id", err)
	}
	list, err := service.ListClusters(t.Context(), &csv1.ListClustersRequest{})
	if err != nil || len(list.GetClusters()) != 1 || list.GetClusters()[0].GetGeneration() != 1 {
		t.Errorf("the clusters are %v, %v", list.GetClusters(), err)
	}
}

// TestGenerationIsNotTheLast sends generations after which no change of a customer would be newer, with the certificate of the frontend.
func TestGenerationIsNotTheLast(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	frontend := r.as(mesh.Frontend, service)
	const step = 1 << 20
	victim := applyRequest("victim", 1)
	pool, auth := poolRequest(victim, "pool", 1), authRequest(victim, "auth", 1)
	apply := func(generation int64) map[string]error {
		cluster, pool, auth := proto.CloneOf(victim), proto.CloneOf(pool), proto.CloneOf(auth)
		cluster.Generation, pool.Generation, auth.Generation = generation, generation, generation
		failures := map[string]error{}
		_, failures["cluster"] = frontend.ApplyCluster(t.Context(), cluster)
		_, failures["node pool"] = frontend.ApplyNodePool(t.Context(), pool)
		_, failures["external authentication"] = frontend.ApplyExternalAuth(t.Context(), auth)
		return failures
	}
	must.Get(frontend.ApplyCluster(t.Context(), victim))(t)
	for _, attempt := range []struct {
		generation int64
		refused    bool
	}{{math.MaxInt64, true}, {1, false}, {math.MaxInt64, true}, {step + 2, true}, {step + 1, false}, {step + 2, false}} {
		for what, err := range apply(attempt.generation) {
			refused := err != nil && slices.ContainsFunc(apierror.As(apierror.FromGRPC(err)).Violations, func(v apierror.Violation) bool { return v.Field == "generation" })
			if refused != attempt.refused || !refused && err != nil {
				t.Errorf("%s with the generation %d: %v", what, attempt.generation, err)
			}
		}
	}
}

// TestCallIDSuppressesNoOtherCaller sends the ID of an engineer's operation as that of a call, with the certificate of the frontend, before the backend executes
// the operation.
func TestCallIDSuppressesNoOtherCaller(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	const method = csv1.ClusterService_UpdateProvisionShard_FullMethodName
	cordoned, operation := true, uuid.NewString()
	request := &csv1.UpdateProvisionShardRequest{Name: "mgmt-1", Cordoned: &cordoned, Actor: &csv1.Actor{Name: "alice@example.com", Reason: "it is stuck", Ticket: "INC-1"}}
	signed := r.admin.Call(t, method, request, func(i *intent.Intent) { i.OperationID = operation })

	forged := metadata.AppendToOutgoingContext(t.Context(), clusterservice.CallIDKey, operation)
	must.Get(r.as(mesh.Frontend, service).ApplyCluster(forged, applyRequest("own", 1)))(t)
	if _, err := service.UpdateProvisionShard(intent.AppendToOutgoingContext(t.Context(), signed), request); err != nil {
		t.Errorf("the engineer's action: %v", err)
	}
}

// TestFrontendReachesNothingBehindItsMethods calls with the certificate of the frontend what is beside its methods: services that gRPC servers often have, messages
// above the limit, fields that its requests do not have, and recovery data in another encoding.
func TestFrontendReachesNothingBehindItsMethods(t *testing.T) {
	t.Parallel()
	r := newMeshRegion(t)
	service := r.start(nil)
	connection := r.mesh.Dial(mesh.Frontend, mesh.ClusterService, service.address)
	frontend := csv1.NewClusterServiceClient(connection)
	for _, method := range []string{
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "/grpc.channelz.v1.Channelz/GetServers",
		"/hcpmesh.clusterservice.v1.ClusterService/applycluster", "/hcpmesh.clusterservice.v1.ClusterService/ApplyCluster/", "//hcpmesh.clusterservice.v1.ClusterService/PauseCluster",
		"/hcpmesh.clusterservice.v1.ClusterService/%50auseCluster",
	} {
		if err := connection.Invoke(t.Context(), method, &emptypb.Empty{}, &emptypb.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", method, err)
		}
	}
	watch := func(ctx context.Context) error {
		stream, err := frontend.Watch(ctx, &csv1.WatchRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for range mesh.MaxStreams + 1 {
		if err := watch(t.Context()); status.Code(err) != codes.PermissionDenied {
			t.Fatalf("a watch: %v", err)
		}
	}
	large := applyRequest("large", 1)
	large.Spec.Experiments = map[string]string{"x": strings.Repeat("x", 4<<20)}
	if _, err := frontend.ApplyCluster(t.Context(), large, grpc.MaxCallSendMsgSize(math.MaxInt32)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a request of more than 4 MiB: %v", err)
	}

	// What the release does not know has no effect. Field 5 of the request is the recovery data, and field 20 of a cluster are the settings of SREs.
	request := applyRequest("c", 1)
	var hidden []byte
	hidden = protowire.AppendVarint(protowire.AppendTag(hidden, 5, protowire.VarintType), 1)
	hidden = protowire.AppendBytes(protowire.AppendTag(hidden, 20, protowire.BytesType), must.Get(proto.Marshal(&csv1.ClusterOverrides{Pause: &csv1.ClusterPause{}}))(t))
	request.ProtoReflect().SetUnknown(hidden)
	cluster, err := frontend.ApplyCluster(t.Context(), request)
	if err != nil || cluster.GetOverrides().GetPause() != nil || len(cluster.ProtoReflect().GetUnknown()) > 0 {
		t.Errorf("a request with unknown fields: %v, %v", cluster, err)
	}
	for name, content := range map[string][]byte{"empty": {}, "twice": protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), nil)} {
		request := applyRequest("c", 2)
		request.ProtoReflect().SetUnknown(append(protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), nil), content...))
		if _, err := frontend.ApplyCluster(t.Context(), request); status.Code(err) != codes.PermissionDenied {
			t.Errorf("recovery data, %s: %v", name, err)
		}
	}
	if got, err := service.GetCluster(t.Context(), &csv1.GetClusterRequest{Uid: request.Uid}); err != nil || got.GetGeneration() != 1 {
		t.Errorf("generation %d, %v", got.GetGeneration(), err)
	}
}

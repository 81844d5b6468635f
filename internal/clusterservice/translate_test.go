package clusterservice

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

var update = flag.Bool("update", false, "update the golden files")

// golden compares message with testdata/<name>.json. It formats the JSON again because protojson varies its spacing.
func golden(t *testing.T, name string, message proto.Message) {
	t.Helper()
	text := must.Get(protojson.Marshal(message))(t)
	var value any
	must.Do(t, json.Unmarshal(text, &value))
	got := must.Get(json.MarshalIndent(value, "", "  "))(t)
	got = append(got, '\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		must.Do(t, os.WriteFile(path, got, 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("request (-want +got), run with -update to accept it:\n%s", diff)
	}
}

const clusterID = "/subscriptions/00000000-0000-0000-0000-0000000000aa/resourceGroups/Rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/Prod"

func fullCluster() *database.ClusterDocument {
	d := &database.ClusterDocument{UID: "11111111-1111-1111-1111-111111111111", Generation: 3, TenantID: "tenant", IdentityURL: "https://identity.example"}
	d.Cluster.Resource = hub.Resource{
		ID: clusterID, Name: "Prod", Location: "westus3",
		Tags:        map[string]string{"team": "a", "ARO-HCP.Experimental.Cluster.Single-Replica": "SingleReplica", "aro-hcp.experimental.cluster.size-override": "Minimal"},
		Experiments: map[string]string{"aro-hcp.experimental.cluster.single-replica": "SingleReplica"},
		Identity: &hub.Identity{Type: "UserAssigned", UserAssigned: map[string]hub.UserAssignedIdentity{
			"/subscriptions/S/providers/Microsoft.ManagedIdentity/userAssignedIdentities/CP": {ClientID: "client", PrincipalID: "principal"},
		}},
	}
	d.Cluster.Properties = hub.ClusterProperties{
		Version: hub.Version{ID: "4.20", ChannelGroup: "stable"},
		DNS:     hub.DNS{BaseDomainPrefix: "prod"},
		Network: hub.Network{NetworkType: "OVNKubernetes", PodCIDR: "10.128.0.0/14", ServiceCIDR: "172.30.0.0/16", MachineCIDR: "10.0.0.0/16", HostPrefix: 23},
		API:     hub.API{Visibility: hub.Public, AuthorizedCIDRs: []string{"192.0.2.0/24"}},
		Ingress: hub.Ingress{Type: hub.Private},
		Platform: hub.Platform{
			ManagedResourceGroup: "managed", SubnetID: "/subnet", VnetIntegrationSubnetID: "/vnet", OutboundType: "LoadBalancer", NetworkSecurityGroupID: "/nsg",
			OperatorsAuthentication: hub.OperatorsAuthentication{UserAssignedIdentities: hub.OperatorIdentities{
				ControlPlaneOperators: map[string]string{"cluster-api-azure": "/cp"}, DataPlaneOperators: map[string]string{"disk-csi-driver": "/dp"}, ServiceManagedIdentity: "/smi",
			}},
		},
		Autoscaling: hub.Autoscaling{MaxNodesTotal: 100, MaxPodGracePeriodSeconds: 600, MaxNodeProvisionTimeSeconds: 900, PodPriorityThreshold: -10},
		Etcd: hub.Etcd{DataEncryption: hub.DataEncryption{KeyManagementMode: "CustomerManaged", CustomerManaged: &hub.CustomerManagedEncryption{
			EncryptionType: "KMS", KMS: &hub.KMSEncryption{VaultName: "vault", Visibility: hub.Private, ActiveKey: hub.KMSKey{Name: "key", Version: "1"}},
		}}},
		ImageDigestMirrors:      []hub.ImageDigestMirror{{Source: "quay.io/a", Mirrors: []string{"mirror.example/a"}}},
		ClusterImageRegistry:    hub.ImageRegistry{State: "Disabled"},
		CryptoRestrictions:      "FIPS",
		NodeDrainTimeoutMinutes: 30,
	}
	return d
}

func TestClusterRequest(t *testing.T) {
	for name, document := range map[string]*database.ClusterDocument{
		"cluster_full":  fullCluster(),
		"cluster_least": {UID: "u", Generation: 1, Cluster: hub.Cluster{Resource: hub.Resource{ID: clusterID, Name: "Prod", Location: "westus3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			request := must.Get(ClusterRequest(document))(t)
			golden(t, name, request)
		})
	}
	if _, err := ClusterRequest(&database.ClusterDocument{Cluster: hub.Cluster{Resource: hub.Resource{ID: "/subscriptions/s/x"}}}); err == nil {
		t.Error("an ID without a resource group was accepted")
	}
}

// TestClusterRequestIsPure: the frontend and the backend must send the same request.
func TestClusterRequestIsPure(t *testing.T) {
	first := must.Get(ClusterRequest(fullCluster()))(t)
	second := must.Get(ClusterRequest(fullCluster()))(t)
	if !proto.Equal(first, second) {
		t.Error("one document resulted in two different requests")
	}
}

func TestNodePoolRequest(t *testing.T) {
	zero := int32(0)
	pool := hub.NodePool{Resource: hub.Resource{ID: clusterID + "/nodePools/np", Name: "np"}}
	pool.Properties = hub.NodePoolProperties{
		Version:    hub.Version{ID: "4.20.8", ChannelGroup: "stable"},
		Platform:   hub.NodePoolPlatform{VMSize: "Standard_D8s_v3", AvailabilityZone: "1", OSDisk: hub.OSDisk{SizeGiB: 64, DiskStorageAccountType: "Premium_LRS", DiskType: "Ephemeral"}},
		Replicas:   3,
		AutoRepair: true,
		Labels:     []hub.Label{{Key: "a", Value: "b"}},
		Taints:     []hub.Taint{{Key: "k", Value: "v", Effect: "NoSchedule"}},
	}
	fixed := &database.NodePoolDocument{UID: "p", ClusterUID: "c", Generation: 2, NodePool: pool}
	request := must.Get(NodePoolRequest(fixed))(t)
	golden(t, "nodepool_fixed", request)
	pool.Properties.Replicas, pool.Properties.AutoScaling, pool.Properties.NodeDrainTimeoutMinutes = 0, &hub.NodePoolAutoScaling{Min: 0, Max: 5}, &zero
	request = must.Get(NodePoolRequest(&database.NodePoolDocument{UID: "p", ClusterUID: "c", Generation: 2, NodePool: pool}))(t)
	golden(t, "nodepool_autoscaled", request)
}

func TestClusterReport(t *testing.T) {
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	got := must.Get(ClusterReport(&clusterservicev1.Cluster{
		Uid: "u", ResourceId: clusterID, Generation: 2, Revision: 7, DeleteTime: timestamppb.New(at),
		Status: &clusterservicev1.ClusterStatus{
			Phase: clusterservicev1.ClusterPhase_CLUSTER_PHASE_READY, ObservedGeneration: 1, ApiUrl: "https://api",
			Conditions: []*clusterservicev1.Condition{{Type: "Available", Status: "True", Reason: "AsExpected", LastTransitionTime: timestamppb.New(at)}},
			Progress:   []*clusterservicev1.LayerProgress{{Layer: "placement", State: "Placed", Since: timestamppb.New(at)}},
			Identities: map[string]*clusterservicev1.UserAssignedIdentity{"/a": {ClientId: "c", PrincipalId: "p"}},
		},
	}))(t)
	conditions := []hub.Condition{{Type: "Available", Status: "True", Reason: "AsExpected", LastTransitionTime: at}}
	want := Report{
		UID: "u", ResourceID: clusterID, Revision: 7, Generation: 2, ObservedGeneration: 1, Phase: PhaseReady, Deleting: true, DeleteTime: at, Conditions: conditions,
		Cluster: &hub.ClusterStatus{Conditions: conditions, APIURL: "https://api", Progress: []hub.Progress{{Layer: "placement", State: "Placed", Since: at}},
			Identities: map[string]hub.UserAssignedIdentity{"/a": {ClientID: "c", PrincipalID: "p"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cluster (-want +got):\n%s", diff)
	}
}

// TestRangesAndMirrorsAreSentOnce: HyperShift rejects duplicates and single addresses, which the ARM API accepts.
func TestRangesAndMirrorsAreSentOnce(t *testing.T) {
	document := fullCluster()
	p := &document.Cluster.Properties
	p.API.AuthorizedCIDRs = []string{"192.0.2.7", "10.0.0.0/8", "192.0.2.7/32", "10.0.0.0/8"}
	p.ImageDigestMirrors = []hub.ImageDigestMirror{{Source: "*.example.com", Mirrors: []string{"a.example/a", "b.example/b", "a.example/a"}}}
	request := must.Get(ClusterRequest(document))(t)
	if got, want := request.Spec.Api.AuthorizedCidrs, []string{"192.0.2.7/32", "10.0.0.0/8"}; !slices.Equal(got, want) {
		t.Errorf("got ranges %v, want %v", got, want)
	}
	if got, want := request.Spec.ImageDigestMirrors[0].Mirrors, []string{"a.example/a", "b.example/b"}; !slices.Equal(got, want) {
		t.Errorf("got mirrors %v, want %v", got, want)
	}
	if len(p.API.AuthorizedCIDRs) != 4 || p.API.AuthorizedCIDRs[0] != "192.0.2.7" {
		t.Errorf("the document was changed: %v", p.API.AuthorizedCIDRs)
	}
}

// appliedClusters records requests and responds with an error.
type appliedClusters struct {
	grpc.ClientConnInterface
	requests []*clusterservicev1.ApplyClusterRequest
}

func (a *appliedClusters) Invoke(_ context.Context, _ string, request, _ any, _ ...grpc.CallOption) error {
	a.requests = append(a.requests, request.(*clusterservicev1.ApplyClusterRequest))
	return status.Error(codes.Unavailable, "away")
}

// TestClientWithoutRecovery checks that the frontend's client sends no recovery data, and that Cluster Service then does not place a
// cluster again that it had.
func TestClientWithoutRecovery(t *testing.T) {
	document := fullCluster()
	connection := &appliedClusters{}
	client := NewClient(connection)
	for _, recovery := range []*database.FleetRecovery{nil, {ProvisionShard: "mgmt-1", ReleaseVersion: "4.20.8", ReleaseImage: "image"}} {
		document.Fleet.Recovery = recovery
		_, _ = client.ApplyCluster(t.Context(), document)
		_, _ = client.WithoutRecovery().ApplyCluster(t.Context(), document)
	}
	for i, want := range []struct{ recovery, mustExist bool }{{false, false}, {false, false}, {true, false}, {false, true}} {
		if r := connection.requests[i]; (r.GetRecovery() != nil) != want.recovery || r.GetMustExist() != want.mustExist {
			t.Errorf("request %d has recovery data %v and must exist: %v", i, r.GetRecovery(), r.GetMustExist())
		}
	}
}

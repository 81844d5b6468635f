package command

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// fleetService is a Cluster Service that has one cluster, whose deletion waits for a finalizer.
type fleetService struct {
	csv1.UnimplementedClusterServiceServer
	cluster *csv1.Cluster
	actors  []*csv1.Actor
	args    []string
}

const deletingUID = "3b0f2a52-6a8f-4c7e-9f0e-2d6a53f6c1aa"

// startFleet serves it as Cluster Service does, and returns the flags that lead there.
func startFleet(t *testing.T) (*fleetService, []string) {
	t.Helper()
	dir := t.TempDir()
	authority, err := mesh.OpenAuthority(filepath.Join(dir, "ca"), "test")
	if err != nil {
		t.Fatal(err)
	}
	for _, peer := range []mesh.Peer{mesh.ClusterService, mesh.Hcpctl} {
		if err := authority.Issue(filepath.Join(dir, string(peer)), peer, "127.0.0.1"); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := mesh.LoadIdentity(filepath.Join(dir, string(mesh.ClusterService)))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
	f := &fleetService{cluster: &csv1.Cluster{
		Uid: deletingUID, ResourceId: "/subscriptions/" + DefaultSubscription + "/resourceGroups/demo/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/mine",
		CreateTime: ago(time.Hour), DeleteTime: ago(40 * time.Minute),
		Status: &csv1.ClusterStatus{Phase: csv1.ClusterPhase_CLUSTER_PHASE_DELETING, ProvisionShard: "mgmt-1", Deletion: &csv1.Deletion{Steps: []*csv1.DeletionStep{
			{Name: "hosted-cluster/publish", Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: ago(40 * time.Minute)},
			{Name: "hosted-cluster", Layer: "management-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Since: ago(40 * time.Minute), Stuck: true,
				Attempts: 41, WaitsFor: "Waiting for the agent of mgmt-1 to confirm that everything of work w is gone. It reports: Finalizers gone.example.com/hook.",
				Finalizers: []string{"gone.example.com/hook"}},
			{Name: "namespaces/publish", Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: ago(40 * time.Minute),
				After: []string{"hosted-cluster"}, WaitsFor: "Waiting for other steps: hosted-cluster."},
		}}},
	}}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(identity.ServerTLS(mesh.Allowed(mesh.ClusterService)...))))
	csv1.RegisterClusterServiceServer(server, f)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() { server.Stop(); <-stopped })
	return f, []string{"--cluster-service-address=" + listener.Addr().String(), "--identity-dir=" + filepath.Join(dir, string(mesh.Hcpctl))}
}

func (f *fleetService) GetCluster(_ context.Context, r *csv1.GetClusterRequest) (*csv1.Cluster, error) {
	if r.GetUid() != f.cluster.GetUid() {
		return nil, status.Error(codes.NotFound, "There is no cluster "+r.GetUid()+".")
	}
	return f.cluster, nil
}

func (f *fleetService) ListClusters(_ context.Context, r *csv1.ListClustersRequest) (*csv1.ListClustersResponse, error) {
	if r.GetResourceId() != "" && !strings.EqualFold(r.GetResourceId(), f.cluster.GetResourceId()) {
		return &csv1.ListClustersResponse{}, nil
	}
	return &csv1.ListClustersResponse{Clusters: []*csv1.Cluster{f.cluster}}, nil
}

func (f *fleetService) ListNodePools(context.Context, *csv1.ListNodePoolsRequest) (*csv1.ListNodePoolsResponse, error) {
	return &csv1.ListNodePoolsResponse{}, nil
}

func (f *fleetService) ListExternalAuths(context.Context, *csv1.ListExternalAuthsRequest) (*csv1.ListExternalAuthsResponse, error) {
	return &csv1.ListExternalAuthsResponse{}, nil
}

func (f *fleetService) RetryDeletion(_ context.Context, r *csv1.RetryDeletionRequest) (*csv1.RetryDeletionResponse, error) {
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, "retry "+r.GetClusterUid())
	return &csv1.RetryDeletionResponse{Steps: []string{"hosted-cluster"}}, nil
}

func (f *fleetService) ReleaseDeletionFinalizers(_ context.Context, r *csv1.ReleaseDeletionFinalizersRequest) (*csv1.DeletionStep, error) {
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, "release "+r.GetStep()+" "+strings.Join(r.GetFinalizers(), ","))
	return f.cluster.Status.Deletion.Steps[1], nil
}

func (f *fleetService) ForceDeletionStep(_ context.Context, r *csv1.ForceDeletionStepRequest) (*csv1.DeletionStep, error) {
	if r.GetStep() != "hosted-cluster" {
		return nil, status.Error(codes.FailedPrecondition, "Step "+r.GetStep()+" waits for others to end: hosted-cluster. Those may be forced.")
	}
	f.actors, f.args = append(f.actors, r.GetActor()), append(f.args, "force "+r.GetStep())
	return &csv1.DeletionStep{Name: r.GetStep(), Force: &csv1.DeletionForce{LeftBehind: "May be left: a HostedCluster."}}, nil
}

// hcpctl runs a command and returns its output, with ages made the same.
func hcpctl(t *testing.T, args ...string) (out, progress string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := New(&stdout, &stderr)
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return regexp.MustCompile(`40m\d+s`).ReplaceAllString(stdout.String(), "40m0s"), stderr.String(), err
}

func TestDeletion(t *testing.T) {
	f, flags := startFleet(t)
	run := func(args ...string) (string, string, error) {
		t.Helper()
		return hcpctl(t, append(append([]string{"deletion"}, args...), flags...)...)
	}
	for name, args := range map[string][]string{"deletion-show.txt": {"show", "mine"}, "deletion-list.txt": {"list", "--stuck"}} {
		out, _, err := run(args...)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, out)
	}
	byUID, _, err := run("show", deletingUID)
	if err != nil || !strings.Contains(byUID, "hosted-cluster/publish") {
		t.Errorf("by uid: %v\n%s", err, byUID)
	}
	for _, args := range [][]string{
		{"retry", "mine", "--reason", "again"}, {"release", "mine", "hosted-cluster", "gone.example.com/hook", "--reason", "its controller is gone", "--ticket", "INC-1"},
		{"force", "mine", "hosted-cluster", "--reason", "the node is gone"},
	} {
		if _, progress, err := run(args...); err != nil || progress == "" {
			t.Errorf("%v: %v, %q", args, err, progress)
		}
	}
	if got := strings.Join(f.args, "; "); got != "retry "+deletingUID+"; release hosted-cluster gone.example.com/hook; force hosted-cluster" {
		t.Errorf("asked: %s", got)
	}
	for _, a := range f.actors {
		if a.GetReason() == "" || !strings.HasSuffix(a.GetName(), " with hcpctl") {
			t.Errorf("actor %v", a)
		}
	}
	mistakes := map[string]struct {
		args []string
		says string
	}{
		"NoReason":    {[]string{"force", "mine", "hosted-cluster"}, `required flag(s) "reason"`},
		"OtherStep":   {[]string{"force", "mine", "namespaces", "--reason", "x"}, "Those may be forced."},
		"Unknown":     {[]string{"show", "other"}, "no cluster "},
		"UnknownUID":  {[]string{"show", "00000000-0000-4000-8000-000000000000"}, "There is no cluster"},
		"NoName":      {[]string{"show", "not a name"}, "no name of a cluster"},
		"NoFinalizer": {[]string{"release", "mine", "hosted-cluster", "--reason", "x"}, "at least 3"},
	}
	for name, tc := range mistakes {
		t.Run(name, func(t *testing.T) {
			if _, _, err := run(tc.args...); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want it to say %q", err, tc.says)
			}
		})
	}
}

package command

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const deletingUID = "3b0f2a52-6a8f-4c7e-9f0e-2d6a53f6c1aa"

// withDeletion adds a cluster to the simulated admin, with a deletion that waits for a finalizer.
func withDeletion(t *testing.T) *sres {
	a := newSREs(t)
	ago := timestamppb.New(time.Now().Add(-40 * time.Minute))
	steps := []*csv1.DeletionStep{
		{Name: "fleet-accepted", Kind: "fleet-accepted", Layer: "cluster-service", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: ago},
		{Name: "hosted-cluster/publish", Kind: "hosted-cluster-publish", Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_DONE, Since: ago},
		{Name: "hosted-cluster", Kind: "hosted-cluster", Layer: "management-cluster", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Since: ago, Stuck: true,
			Attempts: 41, WaitsFor: "Waiting for the agent of mgmt-1 to confirm the deletion of all objects of work w. It reports: Finalizers gone.example.com/hook.",
			Finalizers: []string{"gone.example.com/hook"}},
		{Name: "namespaces/publish", Kind: "namespaces-publish", Layer: "maestro", State: csv1.DeletionStepState_DELETION_STEP_STATE_WAITING, Since: ago,
			After: []string{"hosted-cluster"}, WaitsFor: "Waiting for other steps: hosted-cluster."},
		{Name: "fleet-deleted", Kind: "fleet-deleted", Layer: "cluster-service", State: csv1.DeletionStepState_DELETION_STEP_STATE_RUNNING, Since: ago,
			After: []string{"hosted-cluster"}, WaitsFor: "Waiting for Cluster Service to say that nothing is left."},
	}
	item := adminv1.Deletion{Kind: "cluster", ResourceID: deletingID, UID: deletingUID, ClusterUID: deletingUID, DeleteTime: ago.AsTime(), OperationID: "0f3c",
		Deletion: adminv1.Message[*csv1.Deletion]{Of: &csv1.Deletion{Steps: steps}}}
	over := item
	over.Over, over.OperationID, over.Deletion = true, "", adminv1.Message[*csv1.Deletion]{Of: &csv1.Deletion{Steps: steps[:2]}}
	cluster := adminv1.Cluster{UID: deletingUID, ResourceID: deletingID, ProvisioningState: "Succeeded"}
	a.shown = map[string]any{
		"/clusters/mine/deletion": adminv1.ClusterDeletion{Cluster: cluster, Items: []adminv1.Deletion{item}},
		"/clusters/over/deletion": adminv1.ClusterDeletion{Cluster: cluster, Items: []adminv1.Deletion{over}, Unavailable: map[string]string{"arm": "It is away."}},
		"/clusters/calm/deletion": adminv1.ClusterDeletion{Cluster: cluster, Items: []adminv1.Deletion{}},
		"/deletions?stuck=true":   adminv1.DeletionList{Items: []adminv1.Deletion{item}},
		"/deletion-leftovers?cluster=mine&gone=true": adminv1.LeftoverList{Items: adminv1.Messages([]*csv1.DeletionLeftover{{Work: "w", ProvisionShard: "mgmt-1", Step: "hosted-cluster",
			Force: &csv1.DeletionForce{Time: day, Actor: kim}, Attempts: 3}})},
	}
	a.results = map[string]any{
		"POST /clusters/mine/deletion/retry": adminv1.DeletionRetryResult{Steps: []string{"hosted-cluster"}, ResourceIDs: []string{deletingID}},
		"POST /clusters/mine/deletion/release": wire(&csv1.DeletionStep{Name: "hosted-cluster",
			Actions: []*csv1.DeletionStepAction{{Actor: kim, ReleasedFinalizers: []string{"gone.example.com/hook"}}}}),
		"POST /clusters/mine/deletion/force": wire(&csv1.DeletionStep{Name: "hosted-cluster", Force: &csv1.DeletionForce{LeftBehind: "May be left: a HostedCluster."}}),
	}
	a.refused["POST /clusters/over/deletion/force"] = "Step namespaces waits for other steps: hosted-cluster. Force those steps instead."
	return a
}

// ages matches the ages of steps, which change while the test runs.
var ages = regexp.MustCompile(`40m\d+s`)

func TestAzureOrphans(t *testing.T) {
	a := withDeletion(t)
	seen := timestamppb.New(time.Now().Add(-40 * time.Minute))
	a.shown["/azure-orphans"] = adminv1.AzureOrphanList{Items: adminv1.Messages([]*csv1.AzureOrphan{
		{Uid: "group-1", Kind: "resource-group", AzureId: "/subscriptions/s/resourceGroups/managed", Evidence: "managedBy is the resource ID of a cluster.", FirstTime: seen, LastTime: seen},
		{Uid: "group-2", Kind: "resource-group", AzureId: "/subscriptions/s/resourceGroups/other", Evidence: "managedBy is the resource ID of a cluster.", Proof: "Cluster c was deleted.", FirstTime: seen, LastTime: seen}})}
	out := must.Get(a.hcpctl(t, "azure-orphan", "list"))(t)
	golden(t, "azure-orphans.txt", ages.ReplaceAllString(out, "40m0s"))
	if out, err := a.hcpctl(t, "azure-orphan", "list", "-o", "json"); err != nil || !strings.Contains(out, `"proof": "Cluster c was deleted."`) {
		t.Errorf("as JSON: %v, %s", err, out)
	}
}

func TestDeletion(t *testing.T) {
	g := &sreGroup{sres: withDeletion(t), name: "deletion", reason: "its controller is gone", ticket: "INC-1", plain: func(out string) string { return ages.ReplaceAllString(out, "40m0s") }}
	g.prints(t, map[string][]string{"deletion-show.txt": {"show", "mine"}, "deletion-list.txt": {"list", "--stuck"}})
	g.acts(t, []sreAction{
		{[]string{"retry", "mine"}, adminv1.Operate, `POST /clusters/mine/deletion/retry`, "retries the deletion of 11111111-1111-1111-1111-111111111111/demo/mine\nretried steps: hosted-cluster\n"},
		{[]string{"release", "mine", "hosted-cluster", "gone.example.com/hook"}, adminv1.Recover,
			`POST /clusters/mine/deletion/release {"step":"hosted-cluster","finalizers":["gone.example.com/hook"]}`, "release of gone.example.com/hook requested"},
		{[]string{"force", "mine", "hosted-cluster"}, adminv1.Recover, `POST /clusters/mine/deletion/force {"step":"hosted-cluster"}`, "May be left: a HostedCluster."},
	})
	for name, tc := range map[string]struct {
		reason string
		args   []string
		says   string
	}{
		"Over":      {"the tombstone reports it", []string{"show", "over"}, "; deleted"},
		"Calm":      {"nothing is being deleted", []string{"show", "calm"}, "is Succeeded; no deletion is in progress"},
		"Leftovers": {"what a forced step left", []string{"leftovers", "mine", "--gone"}, "kernel update"},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := g.run(t, tc.args...); err != nil || !strings.Contains(out, tc.says) {
				t.Errorf("%s: %v, it says %q, want %q", tc.reason, err, out, tc.says)
			}
		})
	}
	g.rejects(t, map[string]rejectedCommand{
		"NoTicket":    {"both are required", []string{"force", "mine", "hosted-cluster", "--reason", "its controller is gone"}, "ticket"},
		"OtherStep":   {"another step is running", g.because("force", "over", "namespaces"), "Force those steps instead."},
		"Unknown":     {"the cluster does not exist", []string{"show", "other"}, "There is no"},
		"NoFinalizer": {"it is an argument", g.because("release", "mine", "hosted-cluster"), "at least 3"},
	})
}

package timeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/admin/pkg/timeline"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

const cluster = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/demo"

var midnight = time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)

// at returns a time of the day in minutes after midnight.
func at(minutes int) time.Time { return midnight.Add(time.Duration(minutes) * time.Minute) }

func end(minutes int) *time.Time {
	t := at(minutes)
	return &t
}

// generation returns the change of a generation, with the changed fields as triples.
func generation(minutes int, resource string, number int64, fields ...[3]string) *clusterservicev1.ClusterChange {
	state := &clusterservicev1.DesiredStateChange{Generation: number}
	for _, f := range fields {
		state.Fields = append(state.Fields, &clusterservicev1.FieldChange{Path: f[0], Before: f[1], After: f[2]})
	}
	return &clusterservicev1.ClusterChange{Time: timestamppb.New(at(minutes)), ResourceId: resource, Change: &clusterservicev1.ClusterChange_DesiredState{DesiredState: state}}
}

// sources returns what all layers have of a day in the life of a cluster.
func sources() timeline.Sources {
	pool := strings.ToUpper(cluster) + "/nodePools/workers" // ARM and Cluster Service may differ in case
	return timeline.Sources{
		Dump: &adminv1.Dump{TakenAt: at(60), Cluster: adminv1.Cluster{Name: "demo", ResourceID: cluster, ProvisionShard: "mgmt-1"},
			ARM: &adminv1.ARMLayer{Operations: []adminv1.ARMOperation{
				{OperationID: "o3", Request: "Update", ResourceID: pool, StartTime: at(40)},
				{OperationID: "o2", Request: "Update", ResourceID: cluster, StartTime: at(30), EndTime: end(31), Status: "Failed", Error: &adminv1.FailureDetail{Code: "Invalid", Message: "It cannot be."}},
				{OperationID: "o1", Request: "Create", ResourceID: cluster, StartTime: at(0), EndTime: end(5), Status: "Succeeded"},
			}},
			ClusterService: &adminv1.FleetLayer{
				Upgrades: adminv1.Messages([]*clusterservicev1.Upgrade{{Uid: "u1", CreateTime: timestamppb.New(at(20)),
					Spec: &clusterservicev1.UpgradeSpec{Version: "4.20.2", Actor: &clusterservicev1.Actor{Name: "alice", Reason: "a fix", Ticket: "INC-1"}},
					Status: &clusterservicev1.UpgradeStatus{State: clusterservicev1.UpgradeState_UPGRADE_STATE_NODE_POOLS, FromVersion: "4.20.1", Message: "One node pool follows.",
						Steps: []*clusterservicev1.UpgradeStep{
							{StartTime: timestamppb.New(at(21)), CompletionTime: timestamppb.New(at(22)), FromVersion: "4.20.1", ToVersion: "4.20.2", State: clusterservicev1.UpgradeStepState_UPGRADE_STEP_STATE_COMPLETED},
							{NodePool: "workers", FromVersion: "4.20.1", ToVersion: "4.20.2"},
						}}}}),
				Credentials: adminv1.Messages([]*clusterservicev1.BreakGlassCredential{{Uid: "c1", CreateTime: timestamppb.New(at(50)),
					Spec:   &clusterservicev1.BreakGlassCredentialSpec{Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Requester: "bob", Reason: "look"},
					Status: &clusterservicev1.BreakGlassCredentialStatus{State: clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED, ExpirationTime: timestamppb.New(at(65))}}}),
				Revocations: adminv1.Messages([]*clusterservicev1.BreakGlassRevocation{{Uid: "r1", CreateTime: timestamppb.New(at(52)), Class: clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_SRE, Requester: "bob",
					Status: &clusterservicev1.BreakGlassRevocationStatus{State: clusterservicev1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_REVOKING}}}),
			},
			Monitor: &adminv1.Journal{Items: []adminv1.JournalEntry{ // newest first
				{Time: at(39), Event: adminv1.JournalConcernEnded, Kind: "etcd_fails", Since: at(32)},
				{Time: at(38), Event: adminv1.JournalAPI, From: adminv1.HealthUnavailable, To: adminv1.HealthUnknown, Reason: "blind"},
				{Time: at(33), Event: adminv1.JournalConcernBegan, Kind: "etcd_fails", Fault: "service", Since: at(32), Evidence: "500 from /readyz"},
				{Time: at(6), Event: adminv1.JournalAPI, To: adminv1.HealthAvailable},
			}}},
		Changes: []*clusterservicev1.ClusterChange{ // newest first
			generation(42, pool, 2, [3]string{"replicas", "2", "5"}),
			generation(41, cluster, 3, [3]string{"version.id", `"4.20.2"`, `"4.20.3"`}, [3]string{"autoscaling.maxNodes", "7", ""}),
			{Time: timestamppb.New(at(33)), ResourceId: cluster, Change: &clusterservicev1.ClusterChange_Condition{Condition: &clusterservicev1.ConditionChange{
				Before: "True", Condition: &clusterservicev1.Condition{Type: "Available", Status: "False", Reason: "EtcdUnavailable", Message: "Etcd has no leader."}}}},
			generation(19, cluster, 2, [3]string{"version.id", `"4.20.1"`, `"4.20.2"`}, [3]string{"autoscaling.maxNodes", "", "7"}),
			generation(12, pool, 1),
			{Time: timestamppb.New(at(5)), ResourceId: cluster, Change: &clusterservicev1.ClusterChange_Phase{Phase: &clusterservicev1.PhaseChange{Before: "CLUSTER_PHASE_INSTALLING", After: "CLUSTER_PHASE_READY"}}},
			generation(0, cluster, 1),
		},
		Actions: []adminv1.Operation{{ID: "a1", Action: adminv1.ActionClusterRetry, State: adminv1.Succeeded, StartTime: at(34), EndTime: end(34), Target: adminv1.Target{ResourceID: cluster},
			Actor: adminv1.Actor{Name: "alice", Reason: "it waits", Ticket: "INC-2"}}},
		Effects: map[string]string{"a1": "3 works are published again."},
		Access: []adminv1.AccessRecord{
			{Name: "w-1", Properties: adminv1.AccessRecordProperties{Time: at(35), Person: "bob", Action: "clusters.dump", Outcome: "succeeded", Reason: "look"}},
			{Name: "w-2", Properties: adminv1.AccessRecordProperties{Time: at(34), Person: "alice", Action: adminv1.ActionClusterRetry, Outcome: "accepted", OperationID: "a1"}},
			{Name: "w-3", Properties: adminv1.AccessRecordProperties{Time: at(36), Person: "eve", Action: "clusters.pause", Outcome: "refused", ErrorCode: "Forbidden"}},
		},
		Components: []adminv1.Component{
			{Name: "mgmt-1-maestro-agent", ProvisionShard: "mgmt-1", State: adminv1.ComponentUnreachable, Since: at(55), Message: "connection refused"},
			{Name: "mgmt-2-maestro-agent", ProvisionShard: "mgmt-2", State: adminv1.ComponentUnreachable, Since: at(55)},
			{Name: "backend", State: adminv1.ComponentReady},
		},
		Alerts: []alerts.Alert{
			{Name: "ClusterConcern", Severity: "ticket", Shard: "mgmt-1", Cluster: true, Start: at(37), End: at(44)},
			{Name: "AgentSilent", Severity: "page", Shard: "mgmt-1", Start: at(56)},
			{Name: "CosmosDBAway", Severity: "page", Start: at(57)},
			{Name: "ClustersWithConcern", Severity: "ticket", Concern: "etcd_fails", Start: at(58)},
		},
	}
}

// lines returns the entries of a timeline as lines.
func lines(t *adminv1.Timeline) (all []string) {
	for _, e := range t.Entries {
		line := fmt.Sprintf("%s %s %s %s", e.Time.Format("15:04"), e.Layer, e.Kind, e.Summary)
		if e.Subject != "" {
			line += " [" + strings.ToLower(e.Subject) + "]"
		}
		if e.Person != "" || e.Reason != "" {
			line += fmt.Sprintf(" <%s: %s %s>", e.Person, e.Reason, e.Ticket)
		}
		all = append(all, line)
	}
	return all
}

// TestTimeline checks the entries of all layers and their order.
func TestTimeline(t *testing.T) {
	got := timeline.Of(sources(), at(0), at(60))
	want := []string{
		"00:00 arm Operation The customer's request Create ended: Succeeded after 5m0s.",
		"00:00 cluster-service DesiredState Cluster Service accepted generation 1.",
		"00:05 cluster-service Phase The phase changed from Installing to Ready.",
		"00:06 monitor API The API is available.",
		"00:12 cluster-service DesiredState Cluster Service accepted generation 1. [nodepools/workers]",
		`00:19 cluster-service DesiredState Cluster Service accepted generation 2, which changes version.id from "4.20.1" to "4.20.2", autoscaling.maxNodes from no value to 7.`,
		"00:20 cluster-service Upgrade The upgrade from 4.20.1 to 4.20.2 was requested. Its state is NodePools. One node pool follows. <alice: a fix INC-1>",
		"00:21 cluster-service UpgradeStep The step from 4.20.1 to 4.20.2 is in state Completed.",
		"00:30 arm Operation The customer's request Update ended: Failed after 1m0s. The error is Invalid: It cannot be.",
		"00:32 monitor Concern The concern etcd_fails began, at the fault of the service. Monitor saw: 500 from /readyz",
		"00:33 cluster-service Condition The condition Available changed from True to False (EtcdUnavailable). It says: Etcd has no leader.",
		"00:34 admin Action The action clusters.retry ended: Succeeded. 3 works are published again. <alice: it waits INC-2>",
		"00:35 audit Access The request clusters.dump succeeded. <bob: look >",
		"00:36 audit Access The request clusters.pause was refused. The error is Forbidden. <eve:  >",
		"00:37 alerts Alert The alert ClusterConcern about the cluster fired. Its severity is ticket.",
		"00:38 monitor API The API changed from unavailable to unknown. The reason is blind.",
		"00:39 monitor Concern The concern etcd_fails ended.",
		"00:40 arm Operation The customer's request Update is in progress. [nodepools/workers]",
		`00:41 cluster-service DesiredState Cluster Service accepted generation 3, which changes version.id from "4.20.2" to "4.20.3", autoscaling.maxNodes from 7 to no value.`,
		"00:42 cluster-service DesiredState Cluster Service accepted generation 2, which changes replicas from 2 to 5. [nodepools/workers]",
		"00:50 cluster-service Credential A credential of class sre was requested by bob. Its state is Issued. Its certificate is valid until 2026-11-24T01:05:00Z. <: look >",
		"00:52 cluster-service Revocation The revocation of credentials of class sre was requested by bob. Its state is Revoking.",
		"00:55 region Outage mgmt-1-maestro-agent is Unreachable. It says: connection refused",
		"00:56 alerts Alert The alert AgentSilent about the provision shard mgmt-1 fired. Its severity is page.",
		"00:57 alerts Alert The alert CosmosDBAway about the region fired. Its severity is page.",
		"00:58 alerts Alert The alert ClustersWithConcern about clusters with the concern etcd_fails fired. Its severity is ticket.",
	}
	if diff := cmp.Diff(want, lines(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got.Partial || len(got.Unavailable) > 0 {
		t.Errorf("it is partial: %v", got.Unavailable)
	}
}

// TestTimelineOfPeriod checks that a period has what happened in it and what continued in it, and no more.
func TestTimelineOfPeriod(t *testing.T) {
	var kinds []string
	for _, e := range timeline.Of(sources(), at(31), at(34)).Entries {
		kinds = append(kinds, string(e.Kind))
	}
	if diff := cmp.Diff([]string{"Upgrade", "Operation", "Concern", "Condition", "Action"}, kinds); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestDesiredStates checks the differences between the desired states at two times.
func TestDesiredStates(t *testing.T) {
	pool := "/NODEPOOLS/WORKERS"
	for name, c := range map[string]struct {
		from, to int
		want     []adminv1.TimelineDifference
	}{
		"all": {0, 60, []adminv1.TimelineDifference{
			{ToGeneration: 3, Fields: []adminv1.FieldDifference{{Path: "version.id", Before: `"4.20.1"`, After: `"4.20.3"`}}},
			{Subject: pool[1:], ToGeneration: 2, Fields: []adminv1.FieldDifference{{Path: "replicas", Before: "2", After: "5"}}}}},
		"one change":          {41, 41, []adminv1.TimelineDifference{{FromGeneration: 2, ToGeneration: 3, Fields: []adminv1.FieldDifference{{Path: "autoscaling.maxNodes", Before: "7"}, {Path: "version.id", Before: `"4.20.2"`, After: `"4.20.3"`}}}}},
		"before all":          {-10, -1, []adminv1.TimelineDifference{}},
		"between the changes": {20, 40, []adminv1.TimelineDifference{}},
	} {
		got := timeline.Of(sources(), at(c.from), at(c.to)).DesiredState
		for i := range got {
			got[i].Subject = strings.ToUpper(got[i].Subject)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestPartialTimeline checks that layers that could not be read are named, and that long timelines lose their oldest entries.
func TestPartialTimeline(t *testing.T) {
	s := sources()
	s.Dump.ARM, s.Dump.ClusterService, s.Changes = nil, nil, nil
	s.Dump.Unavailable = map[string]string{adminv1.LayerARM: "It did not respond in time."}
	s.Unavailable = map[string]string{adminv1.LayerAudit: "The audit sink cannot be read."}
	got := timeline.Of(s, at(0), at(60))
	want := map[string]string{adminv1.LayerARM: "It did not respond in time.", adminv1.LayerAudit: "The audit sink cannot be read."}
	if diff := cmp.Diff(want, got.Unavailable); diff != "" || !got.Partial {
		t.Errorf("partial is %t; -want +got:\n%s", got.Partial, diff)
	}
	for i := range timeline.MaxEntries {
		s.Access = append(s.Access, adminv1.AccessRecord{Properties: adminv1.AccessRecordProperties{Time: at(1), Action: fmt.Sprint(i), Outcome: "succeeded"}})
	}
	if got = timeline.Of(s, at(0), at(60)); len(got.Entries) != timeline.MaxEntries || got.Omitted != 12 || got.Entries[len(got.Entries)-1].Kind != adminv1.TimelineAlert {
		t.Errorf("%d entries and %d omitted ones", len(got.Entries), got.Omitted)
	}
}

// TestPermanentRefusalNamesWhoActs: only the entry of a permanent refusal states that a person must act.
func TestPermanentRefusalNamesWhoActs(t *testing.T) {
	for name, c := range map[string]struct {
		reason, message, want string
	}{
		"property":  {"ApplyRefused", "properties.labels: NodePool x: is invalid", "This is permanent: the customer must act."},
		"rendering": {"ApplyRefused", "NodePool x: is invalid", "This is permanent: an SRE must act."},
		"temporary": {"AppliedManifestWorkFailed", "NodePool x: etcd has no leader", ""},
	} {
		change := &clusterservicev1.ClusterChange{Time: timestamppb.New(at(1)), ResourceId: cluster, Change: &clusterservicev1.ClusterChange_Condition{Condition: &clusterservicev1.ConditionChange{
			Before: "False", Condition: &clusterservicev1.Condition{Type: "Applied", Status: "False", Reason: c.reason, Message: c.message}}}}
		got := timeline.Of(timeline.Sources{Dump: &adminv1.Dump{TakenAt: at(60)}, Changes: []*clusterservicev1.ClusterChange{change}}, at(1), at(1)).Entries
		if len(got) != 1 || strings.Contains(got[0].Summary, "permanent") != (c.want != "") || !strings.Contains(got[0].Summary, c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}

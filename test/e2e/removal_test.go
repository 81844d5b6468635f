package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// runbookOfRemovals is the runbook whose commands loseControlPlane executes.
const runbookOfRemovals = "../../docs/operators/removed-objects.md"

// lostRemoval is a removal on a management cluster that destroys a control plane.
type lostRemoval struct {
	name, subscription string
	// namespace returns the namespace to delete, from the HostedCluster's namespace and the control-plane namespace.
	namespace func(hosted, controlPlane string) string
	// keepsHostedCluster is true if the HostedCluster is the same afterwards.
	keepsHostedCluster bool
}

// TestRemovedControlPlaneIsNeverHealthy deletes the namespace of a hosted cluster on its management cluster. The agent applies it
// again, and HyperShift builds a new, empty control plane, which becomes available. Every channel must show that the cluster has
// lost its data, until an SRE who follows the runbook accepts the new control plane.
func TestRemovedControlPlaneIsNeverHealthy(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	loseControlPlane(t, lostRemoval{name: "removed", subscription: "11111111-0000-0000-0000-0000000000de",
		namespace: func(hosted, _ string) string { return hosted }})
}

// TestRemovedControlPlaneNamespaceIsNeverHealthy deletes only the namespace in which HyperShift runs the control plane. The
// HostedCluster stays the same, and only the identity of that namespace shows that the data is gone.
func TestRemovedControlPlaneNamespaceIsNeverHealthy(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	loseControlPlane(t, lostRemoval{name: "emptied", subscription: "11111111-0000-0000-0000-0000000000df",
		namespace: func(_, controlPlane string) string { return controlPlane }, keepsHostedCluster: true})
}

func loseControlPlane(t *testing.T, removal lostRemoval) {
	t.Helper()
	ctx := withTimeout(t, 8*time.Minute)
	c := newCustomer(t, ctx, removal.subscription, removal.name)
	parallel.enter()
	defer func() { parallel.leave(t, c) }()
	id := c.ClusterID(removal.name)
	d := scenario{t: t, ctx: ctx, c: c, id: id}
	d.put(id, c.ClusterBody(removal.name))
	d.put(c.NodePoolID(removal.name, "workers"), c.NodePoolBody(1))
	reader, mgmt := engineer(t, "reader"), hosting(t, ctx, id)
	hosted := mgmt.get(ctx, "hostedclusters", `{.items[0].metadata.uid} {.items[0].metadata.name}`)
	hostedUID, hostedName, _ := strings.Cut(hosted, " ")
	controlPlane := mgmt.namespace + "-" + hostedName
	namespaceUID := mgmt.get(ctx, "namespace "+controlPlane, `{.metadata.uid}`)
	fleet := clusterService(t)
	clusterUID := uidOf(t, ctx, fleet, id)

	began := time.Now()
	must.Get(mgmt.run(ctx, "delete", "namespace", removal.namespace(mgmt.namespace, controlPlane), "--wait=false"))(t)
	deleted := time.Now()
	eventually.Before(ctx, t, "the removal is reported", func() error {
		found, err := fleet.GetCluster(ctx, &csv1.GetClusterRequest{Uid: clusterUID})
		if err != nil || found.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_LOST {
			return fmt.Errorf("the cluster is in phase %s, error %v", found.GetStatus().GetPhase(), err)
		}
		return nil
	})
	t.Logf("kubectl took %s; Cluster Service had the removal %s later", deleted.Sub(began).Round(time.Millisecond), time.Since(deleted).Round(time.Millisecond))
	eventually.Before(ctx, t, "the removal is explained", func() error {
		explanation, err := adminclient.Get(ctx, reader, adminv1.ReadExplanation, nil, id)
		if err != nil {
			return err
		}
		_, err = lostItem(explanation)
		return err
	})
	t.Logf("the removal was explained %s after the deletion", time.Since(deleted).Round(time.Millisecond))
	// From now on no explanation may call the cluster ready, whatever the new control plane reports.
	eventually.Before(ctx, t, "the new control plane is available", func() error {
		if _, err := explanationOfLost(t, ctx, reader, id); err != nil {
			return err
		}
		return isRebuilt(ctx, mgmt, controlPlane, namespaceUID)
	})
	t.Logf("the new control plane was available %s after the deletion", time.Since(deleted).Round(time.Millisecond))
	checkLost(t, ctx, c, reader, id)
	mgmt.await(ctx, "nodepools", `{.items[*].status.replicas}`, equals("1"))
	checkLost(t, ctx, c, reader, id)
	if now := mgmt.get(ctx, "hostedclusters", `{.items[0].metadata.uid}`); (now == hostedUID) != removal.keepsHostedCluster {
		t.Errorf("the HostedCluster is %s, before %s", now, hostedUID)
	}
	compareNamespaces(t, d, mgmt, controlPlane, namespaceUID)
	followRunbook(t, d)
	eventually.Before(ctx, t, "the accepted control plane is healthy", func() error {
		explanation, err := adminclient.Get(ctx, reader, adminv1.ReadExplanation, nil, id)
		if err != nil {
			return err
		}
		state, err := provisioningState(ctx, c, id)
		if err != nil {
			return err
		}
		if state != "Succeeded" || explanation.Items[0].Code != adminv1.ExplanationReady {
			return fmt.Errorf("ARM shows %s; %s", state, explanation.Items[0].Summary.Text)
		}
		if !slices.ContainsFunc(explanation.Facts, func(s adminv1.Sentence) bool { return s.Code == adminv1.SentenceRemoval }) {
			return errors.New("the removal is missing in the explanation")
		}
		return nil
	})
	must.Do(t, c.Delete(ctx, id))
}

// isRebuilt returns an error unless the control-plane namespace is another one than before and the HostedControlPlane in it is available.
// The condition of the HostedCluster alone does not show that: a HostedCluster that stays keeps its conditions until HyperShift has
// completed the deletion of the former HostedControlPlane and written them again.
func isRebuilt(ctx context.Context, mgmt kubectl, controlPlane, namespaceUID string) error {
	now, err := mgmt.read(ctx, "namespaces --field-selector=metadata.name="+controlPlane, `{.items[*].metadata.uid}`)
	if err != nil {
		return err
	}
	if now == "" || now == namespaceUID {
		return fmt.Errorf("the UID of the control-plane namespace is %q, before %q", now, namespaceUID)
	}
	for _, at := range []struct{ namespace, kind string }{{controlPlane, "hostedcontrolplanes"}, {mgmt.namespace, "hostedclusters"}} {
		in := mgmt
		in.namespace = at.namespace
		available, err := in.read(ctx, at.kind, `{.items[*].status.conditions[?(@.type=="Available")].status}`)
		if err != nil {
			return err
		}
		if available != "True" {
			return fmt.Errorf("the condition Available of %s is %q", at.kind, available)
		}
	}
	return nil
}

// compareNamespaces executes the commands of the runbook that compare the stored identity of the control-plane namespace with the
// management cluster. first is the UID before the removal.
func compareNamespaces(t *testing.T, d scenario, mgmt kubectl, controlPlane, first string) {
	t.Helper()
	text := must.Get(os.ReadFile(runbookOfRemovals))(t)
	if !strings.Contains(string(text), "`hcpctl cluster dump CLUSTER` shows the stored identity as `namespaceUid`") {
		t.Fatal("the runbook does not name the command that shows the stored identity")
	}
	if out := d.hcpctlRead("cluster", "dump", d.id); !strings.Contains(out, "namespaceUid: "+first) {
		t.Errorf("the dump lacks the identity %s:\n%s", first, out)
	}
	command := comparison.FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("the runbook has no command that reads the control-plane namespace")
	}
	out := mgmt.get(d.ctx, "namespace "+controlPlane, command[1])
	if fields := strings.Fields(out); len(fields) != 2 || fields[0] == first {
		t.Errorf("the control-plane namespace is %q, want another UID than %s and no deletion", out, first)
	}
}

// comparison matches the command of the runbook that reads the control-plane namespace.
var comparison = regexp.MustCompile(`(?m)^ +kubectl get namespace ocm-…-NAME -o jsonpath='([^'\n]+)'`)

// followRunbook executes the commands of the runbook for a cluster whose control plane was replaced.
func followRunbook(t *testing.T, d scenario) {
	t.Helper()
	commands := commandsOf(t, d.id)
	for _, command := range commands {
		if command[0] == "cluster" { // the acceptance
			d.hcpctl(command...)
			continue
		}
		out := d.hcpctlRead(command...)
		switch command[0] {
		case "explain":
			if !strings.Contains(out, "has lost its control plane") {
				t.Errorf("hcpctl %s:\n%s", strings.Join(command, " "), out)
			}
		case "work", "drift":
			if !strings.Contains(out, "Replaced") {
				t.Errorf("hcpctl %s:\n%s", strings.Join(command, " "), out)
			}
		}
	}
	if !slices.ContainsFunc(commands, func(command []string) bool { return slices.Contains(command, "accept-control-plane") }) {
		t.Fatalf("the runbook has no command that accepts the control plane: %q", commands)
	}
}

// explanationOfLost reads the explanation of a cluster whose control plane is lost. An error means that it could not be read. The test
// fails at once if the explanation calls the cluster ready.
func explanationOfLost(t *testing.T, ctx context.Context, reader *adminclient.Client, id string) (*adminv1.Explanation, error) {
	t.Helper()
	explanation, err := adminclient.Get(ctx, reader, adminv1.ReadExplanation, nil, id)
	if err != nil {
		return nil, err
	}
	for _, item := range explanation.Items {
		if item.Code == adminv1.ExplanationReady {
			t.Fatalf("after the removal was explained: %s: %+v", item.Summary.Text, explanation)
		}
	}
	return explanation, nil
}

// lostItem returns the item of an explanation that the control plane is lost. An error means that the explanation has none. The first item
// may be an outage instead: another test may restart a process of the region, and on a busy machine a process may not respond in time.
func lostItem(explanation *adminv1.Explanation) (adminv1.ExplanationItem, error) {
	for _, item := range explanation.Items {
		if item.Code == adminv1.ExplanationControlPlaneLost && item.Responsible == adminv1.PartySRE {
			return item, nil
		}
		if item.Code != adminv1.ExplanationLayerAway {
			break
		}
	}
	return adminv1.ExplanationItem{}, errors.New(explanation.Text())
}

// checkLost waits until each channel that shows the health of a cluster shows the new control plane as another one. The reports about it
// arrive in Cluster Service after it is available on the management cluster. The test fails at once if an explanation or a dump shows the
// cluster as healthy meanwhile.
func checkLost(t *testing.T, ctx context.Context, c *customer.Customer, reader *adminclient.Client, id string) {
	t.Helper()
	eventually.Before(ctx, t, "ARM shows the cluster as failed", func() error {
		state, err := provisioningState(ctx, c, id)
		if err == nil && state != "Failed" {
			err = errors.New("it shows " + state)
		}
		return err
	})
	eventually.Before(ctx, t, "the replaced control plane is explained", func() error {
		explanation, err := explanationOfLost(t, ctx, reader, id)
		if err != nil {
			return err
		}
		item, err := lostItem(explanation)
		if err == nil && item.State != "ControlPlaneReplaced" {
			err = fmt.Errorf("the state is %s: %s", item.State, item.Summary.Text)
		}
		return err
	})
	eventually.Before(ctx, t, "the dump has the cluster", func() error {
		dump, err := adminclient.Get(ctx, reader, adminv1.ReadDump, nil, id)
		if err != nil {
			return err
		}
		if dump.ClusterService == nil || dump.ClusterService.Cluster == nil {
			return fmt.Errorf("the dump is partial: %v", dump.Unavailable)
		}
		s := dump.ClusterService.Cluster.Of.GetStatus()
		if s.GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_LOST || len(s.GetRemovals()) == 0 {
			t.Errorf("dump: phase %s, removals %v", s.GetPhase(), s.GetRemovals())
		}
		for _, condition := range s.GetConditions() {
			if condition.GetType() == "Available" && condition.GetStatus() != "False" {
				t.Errorf("dump: %v", condition)
			}
		}
		return nil
	})
	eventually.Before(ctx, t, "a work is replaced", func() error {
		bundles, err := adminclient.Get(ctx, reader, adminv1.ReadWorks, nil, id)
		if err == nil && !slices.ContainsFunc(bundles.Items, func(b adminv1.Bundle) bool { return b.Drift == "Replaced" }) {
			err = fmt.Errorf("the bundles are %+v", bundles.Items)
		}
		return err
	})
	eventually.Before(ctx, t, "the drift of the cluster is listed", func() error {
		drift, err := adminclient.Get(ctx, reader, adminv1.ReadDrift, nil)
		if err == nil && !slices.ContainsFunc(drift.Items, func(d adminv1.Drift) bool {
			return d.Difference == "Replaced" && strings.EqualFold(d.ResourceID, id) && d.Layer == "management-cluster"
		}) {
			err = fmt.Errorf("the drift is %+v", drift.Items)
		}
		return err
	})
	eventually.Before(ctx, t, "the lost control plane is counted", func() error {
		text, err := metricsOf(ctx, "cluster-service")
		if err != nil {
			return err
		}
		for line := range strings.SplitSeq(text, "\n") {
			if value, ok := strings.CutPrefix(line, "cluster_service_control_planes_lost "); ok && value != "0" {
				return nil
			}
		}
		return errors.New("cluster_service_control_planes_lost is 0")
	})
}

func provisioningState(ctx context.Context, c *customer.Customer, id string) (string, error) {
	response, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
	if err != nil {
		return "", err
	}
	state, _ := property(response.GenericResource, "provisioningState").(string)
	return state, nil
}

func metricsOf(ctx context.Context, process string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+region.Endpoints().Ops[process]+"/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// documented matches the commands of the runbook's first procedure.
var documented = regexp.MustCompile("(?m)(?:^ +|`)hcpctl ((?:explain|work list|drift list|cluster accept-control-plane)[^`\n]*)")

// commandsOf returns the commands of the runbook for a cluster, in order.
func commandsOf(t *testing.T, id string) [][]string {
	t.Helper()
	text := must.Get(os.ReadFile(runbookOfRemovals))(t)
	procedure, _, _ := strings.Cut(string(text), "**Check.**")
	var commands [][]string
	for _, match := range documented.FindAllStringSubmatch(procedure, -1) {
		var command []string
		for _, word := range strings.Fields(match[1]) {
			switch {
			case word == "CLUSTER":
				word = id
			case word == "…" && command[len(command)-1] == "--reason":
				word = "the customer restores a backup"
			case word == "…":
				word = "INC-11"
			}
			command = append(command, word)
		}
		if slices.Contains(command, "--reason") {
			command = append(command, "--as", "oncall")
		}
		commands = append(commands, command)
	}
	return commands
}

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
	// identity returns the object that is another one afterwards, as arguments of kubectl.
	identity func(controlPlane string) []string
}

// TestRemovedControlPlaneIsNeverHealthy deletes the namespace of a hosted cluster on its management cluster. The agent applies it
// again, and HyperShift builds a new, empty control plane, which becomes available. Every channel must show that the cluster has
// lost its data, until an SRE who follows the runbook accepts the new control plane.
func TestRemovedControlPlaneIsNeverHealthy(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	loseControlPlane(t, lostRemoval{name: "removed", subscription: "11111111-0000-0000-0000-0000000000de",
		namespace: func(hosted, _ string) string { return hosted }, identity: func(string) []string { return []string{"hostedclusters"} }})
}

// TestRemovedControlPlaneNamespaceIsNeverHealthy deletes only the namespace in which HyperShift runs the control plane. The
// HostedCluster stays the same, and only the identity of that namespace shows that the data is gone.
func TestRemovedControlPlaneNamespaceIsNeverHealthy(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	loseControlPlane(t, lostRemoval{name: "emptied", subscription: "11111111-0000-0000-0000-0000000000df",
		namespace: func(_, controlPlane string) string { return controlPlane },
		identity: func(controlPlane string) []string {
			return []string{"namespaces", "--field-selector=metadata.name=" + controlPlane}
		}})
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
	// identity returns the UID of the object that the removal replaces; empty if it does not exist.
	identity := func() (string, error) {
		return mgmt.run(ctx, append([]string{"get", "-o", "jsonpath={.items[*].metadata.uid}"}, removal.identity(controlPlane)...)...)
	}
	first, err := identity()
	if err != nil || first == "" {
		t.Fatalf("the identity before the removal is %q, %v", first, err)
	}
	namespaceUID := mgmt.get(ctx, "namespace "+controlPlane, `{.metadata.uid}`)
	fleet := clusterService(t)
	clusterUID := uidOf(t, ctx, fleet, id)

	began := time.Now()
	if _, err := mgmt.run(ctx, "delete", "namespace", removal.namespace(mgmt.namespace, controlPlane), "--wait=false"); err != nil {
		t.Fatal(err)
	}
	deleted := time.Now()
	eventually.Before(ctx, t, "the removal is reported", func() error {
		found, err := fleet.GetCluster(ctx, &csv1.GetClusterRequest{Uid: clusterUID})
		if err != nil || found.GetStatus().GetPhase() != csv1.ClusterPhase_CLUSTER_PHASE_LOST {
			return fmt.Errorf("the cluster is in phase %s, error %v", found.GetStatus().GetPhase(), err)
		}
		return nil
	})
	t.Logf("kubectl took %s; Cluster Service had the removal %s later", deleted.Sub(began).Round(time.Millisecond), time.Since(deleted).Round(time.Millisecond))
	eventually.Before(ctx, t, "the removal is explained", func() error { return isLost(ctx, reader, id) })
	t.Logf("the removal was explained %s after the deletion", time.Since(deleted).Round(time.Millisecond))
	// From now on no explanation may call the cluster ready, whatever the new control plane reports.
	var gone, again time.Time
	eventually.Before(ctx, t, "the new control plane is available", func() error {
		if err := isNotReady(ctx, reader, id); err != nil {
			t.Errorf("after the removal was explained: %v", err)
		}
		now, err := identity()
		if err != nil {
			return err
		}
		switch {
		case now == "" && gone.IsZero():
			gone = time.Now()
		case now != "" && now != first && again.IsZero():
			again = time.Now()
		}
		available, err := mgmt.run(ctx, "get", "hostedclusters", "-o", "jsonpath="+`{.items[*].status.conditions[?(@.type=="Available")].status}`)
		if err != nil {
			return err
		}
		if now == "" || now == first || available != "True" {
			return fmt.Errorf("the identity is %q, before %q; the HostedCluster's condition Available is %q", now, first, available)
		}
		return nil
	})
	if !gone.IsZero() {
		t.Logf("the object existed again at most %s after it was gone", again.Sub(gone).Round(time.Millisecond))
	}
	checkLost(t, ctx, c, reader, id)
	mgmt.await(ctx, "nodepools", `{.items[*].status.replicas}`, equals("1"))
	checkLost(t, ctx, c, reader, id)
	if now, _, _ := strings.Cut(mgmt.get(ctx, "hostedclusters", `{.items[0].metadata.uid}`), " "); (now == hostedUID) != (first != hostedUID) {
		t.Errorf("the HostedCluster is %s, before %s", now, hostedUID)
	}
	compareNamespaces(t, d, mgmt, controlPlane, namespaceUID)
	followRunbook(t, d)
	eventually.Before(ctx, t, "the accepted control plane is healthy", func() error {
		explanation, err := reader.Explanation(ctx, id)
		if err != nil {
			return err
		}
		if state := provisioningState(t, ctx, c, id); state != "Succeeded" || explanation.Items[0].Code != adminv1.ExplanationReady {
			return fmt.Errorf("ARM shows %s; %s", state, explanation.Items[0].Summary.Text)
		}
		if !slices.ContainsFunc(explanation.Facts, func(s adminv1.Sentence) bool { return s.Code == adminv1.SentenceRemoval }) {
			return errors.New("the removal is missing in the explanation")
		}
		return nil
	})
	if err := c.Delete(ctx, id); err != nil {
		t.Fatal(err)
	}
}

// compareNamespaces executes the commands of the runbook that compare the stored identity of the control-plane namespace with the
// management cluster. first is the UID before the removal.
func compareNamespaces(t *testing.T, d scenario, mgmt kubectl, controlPlane, first string) {
	t.Helper()
	text, err := os.ReadFile(runbookOfRemovals)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "`hcpctl cluster dump CLUSTER` shows the stored identity as `namespaceUid`") {
		t.Fatal("the runbook does not name the command that shows the stored identity")
	}
	if out := d.hcpctl("cluster", "dump", d.id); !strings.Contains(out, "namespaceUid: "+first) {
		t.Errorf("the dump lacks the identity %s:\n%s", first, out)
	}
	command := comparison.FindStringSubmatch(string(text))
	if command == nil {
		t.Fatal("the runbook has no command that reads the control-plane namespace")
	}
	out, err := mgmt.run(d.ctx, "get", "namespace", controlPlane, "-o", "jsonpath="+command[1])
	if err != nil {
		t.Fatal(err)
	}
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
		out := d.hcpctl(command...)
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

// isLost returns an error unless the first item of a cluster's explanation is that its control plane is lost.
func isLost(ctx context.Context, reader *adminclient.Client, id string) error {
	explanation, err := reader.Explanation(ctx, id)
	if err != nil {
		return err
	}
	if item := explanation.Items[0]; item.Code != adminv1.ExplanationControlPlaneLost || item.Responsible != adminv1.PartySRE {
		return fmt.Errorf("%s: %s", item.Code, item.Summary.Text)
	}
	return nil
}

// isNotReady returns an error if the explanation of a cluster states that it is ready. Another test may kill a process of the
// region meanwhile; then the first item is that outage.
func isNotReady(ctx context.Context, reader *adminclient.Client, id string) error {
	explanation, err := reader.Explanation(ctx, id)
	if err != nil {
		return err
	}
	for _, item := range explanation.Items {
		if item.Code == adminv1.ExplanationReady {
			return errors.New(item.Summary.Text)
		}
	}
	return nil
}

// checkLost checks each channel that shows the health of a cluster.
func checkLost(t *testing.T, ctx context.Context, c *customer.Customer, reader *adminclient.Client, id string) {
	t.Helper()
	eventually.Before(ctx, t, "ARM shows the cluster as failed", func() error {
		if state := provisioningState(t, ctx, c, id); state != "Failed" {
			return errors.New("it shows " + state)
		}
		return nil
	})
	eventually.Before(ctx, t, "the lost control plane is explained", func() error { return isLost(ctx, reader, id) })
	dump, err := reader.Dump(ctx, id)
	if err != nil || dump.ClusterService == nil {
		t.Fatalf("dump: %v", err)
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
	bundles, err := reader.Bundles(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(bundles, func(b adminv1.Bundle) bool { return b.Drift == "Replaced" }) {
		t.Errorf("works: none is replaced")
	}
	drift, err := reader.Drift(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(drift.Items, func(d adminv1.Drift) bool {
		return d.Difference == "Replaced" && strings.EqualFold(d.ResourceID, id) && d.Layer == "management-cluster"
	}) {
		t.Errorf("drift: %+v", drift.Items)
	}
	eventually.Before(ctx, t, "the lost control plane is counted", func() error {
		for _, line := range strings.Split(metricsOf(t, ctx, "cluster-service"), "\n") {
			if value, ok := strings.CutPrefix(line, "cluster_service_control_planes_lost "); ok && value != "0" {
				return nil
			}
		}
		return errors.New("cluster_service_control_planes_lost is 0")
	})
}

func provisioningState(t *testing.T, ctx context.Context, c *customer.Customer, id string) string {
	t.Helper()
	response, err := c.Resources.GetByID(ctx, id, customer.APIVersion, nil)
	if err != nil {
		t.Fatal(err)
	}
	properties, _ := response.Properties.(map[string]any)
	state, _ := properties["provisioningState"].(string)
	return state
}

func metricsOf(t *testing.T, ctx context.Context, process string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+region.Endpoints().Ops[process]+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documented matches the commands of the runbook's first procedure.
var documented = regexp.MustCompile("(?m)(?:^ +|`)hcpctl ((?:explain|work list|drift list|cluster accept-control-plane)[^`\n]*)")

// commandsOf returns the commands of the runbook for a cluster, in order.
func commandsOf(t *testing.T, id string) [][]string {
	t.Helper()
	text, err := os.ReadFile(runbookOfRemovals)
	if err != nil {
		t.Fatal(err)
	}
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

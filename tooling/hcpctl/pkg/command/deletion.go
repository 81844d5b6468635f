package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) deletion() *cobra.Command {
	c := group("deletion", "List deletions in progress and unblock stuck ones",
		e.deletionList(), e.deletionShow(), e.deletionLeftovers())
	c.Long = `List deletions in progress and unblock stuck ones. A cluster that is gone from ARM is found as long as Cluster Service keeps its
deletion record. The runbooks are in docs/operators/stuck-deletion.`
	return c
}

// deletionKinds maps the kinds to their names in tables.
var deletionKinds = map[string]string{deletion.KindCluster: "cluster", deletion.KindNodePool: "node pool", deletion.KindExternalAuth: "external authentication"}

// printUnavailable prints a hint for each layer that could not be read.
func (e *environment) printUnavailable(unavailable map[string]string) {
	for _, layer := range slices.Sorted(maps.Keys(unavailable)) {
		fmt.Fprintf(e.err, "warning: the steps of %s are missing: %s\n", layer, unavailable[layer])
	}
}

func (e *environment) deletionList() *cobra.Command {
	var stuck bool
	c := view(e, &cobra.Command{Use: "list", Short: "List deletions in progress with their current steps"}, adminv1.ReadDeletions, func() adminclient.Query {
		return adminclient.Query{"stuck": stuck}
	}, asTable(e, func(list *adminv1.DeletionList) error {
		e.printUnavailable(list.Unavailable)
		return display.Table(e.out, []string{"KIND", "NAME", "STEP", "AGE", "STUCK", "WAITS FOR"}, stepRows(list.Items, stuck, time.Now()))
	}))
	c.Flags().BoolVar(&stuck, "stuck", false, "list only stuck steps")
	return c
}

func stepRows(list []adminv1.Deletion, stuck bool, now time.Time) [][]string {
	var rows [][]string
	for _, d := range list {
		for _, s := range deletion.BlockingSteps(d.Deletion.Of.GetSteps()) {
			if s.GetStuck() || !stuck {
				rows = append(rows, []string{deletionKinds[d.Kind], shortID(d.ResourceID), s.GetName(), age(s, now), yes(s.GetStuck()), s.GetWaitsFor()})
			}
		}
	}
	return rows
}

// shortID returns the parts of a resource ID that identify it in the region: subscription, resource group and names. It returns
// any other text unchanged.
func shortID(resourceID string) string {
	id, err := arm.ParseResourceID(resourceID)
	if err != nil || id.ResourceGroupName == "" {
		return resourceID
	}
	short := ""
	for ; id.ResourceType.String() != arm.ResourceGroupResourceType.String(); id = id.Parent {
		short = "/" + id.Name + short
	}
	return id.SubscriptionID + "/" + id.Name + short
}

func age(s *csv1.DeletionStep, now time.Time) string {
	return now.Sub(s.GetSince().AsTime()).Round(time.Second).String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

func (e *environment) deletionShow() *cobra.Command {
	return view(e, &cobra.Command{Use: "show CLUSTER", Short: "Show the steps of the deletion of a cluster or of its children"}, adminv1.ReadDeletion, noQuery, asTable(e, func(shown *adminv1.ClusterDeletion) error {
		e.printUnavailable(shown.Unavailable)
		return e.deletionTables(shown, time.Now())
	}))
}

func (e *environment) deletionTables(shown *adminv1.ClusterDeletion, now time.Time) error {
	if len(shown.Items) == 0 {
		fmt.Fprintf(e.out, "cluster %s is %s; no deletion is in progress\n", shortID(shown.Cluster.ResourceID), cmp.Or(shown.Cluster.ProvisioningState, shown.Cluster.Phase))
		return nil
	}
	for _, d := range shown.Items {
		fmt.Fprintf(e.out, "%s %s (%s): deletion requested %s ago", deletionKinds[d.Kind], shortID(d.ResourceID), d.UID, now.Sub(d.DeleteTime).Round(time.Second))
		switch {
		case d.Over:
			fmt.Fprint(e.out, "; deleted")
		case d.OperationID != "":
			fmt.Fprintf(e.out, "; ARM operation %s", d.OperationID)
		}
		fmt.Fprintln(e.out)
		if len(d.Deletion.Of.GetSteps()) == 0 {
			continue
		}
		if err := display.List(e.out, d.Deletion.Of.GetSteps(), func(s *csv1.DeletionStep) display.Row {
			state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_"))
			if s.GetStuck() {
				state = "stuck"
			}
			return display.Row{{"STEP", s.GetName()}, {"LAYER", s.GetLayer()}, {"STATE", state}, {"AGE", age(s, now)}, {"ATTEMPTS", positive(s.GetAttempts())}, {"DETAILS", stepDetails(s)}}
		}); err != nil {
			return err
		}
	}
	return nil
}

// stepDetails returns what a step waits for, its last error and the actions on it.
func stepDetails(s *csv1.DeletionStep) string {
	var parts []string
	if s.GetWaitsFor() != "" {
		parts = append(parts, s.GetWaitsFor())
	}
	if s.GetLastError() != "" {
		parts = append(parts, "Last error: "+s.GetLastError())
	}
	for _, i := range s.GetActions() {
		what := "Retried"
		if len(i.GetReleasedFinalizers()) > 0 {
			what = "Released " + strings.Join(i.GetReleasedFinalizers(), ", ")
		}
		parts = append(parts, fmt.Sprintf("%s by %s: %s.", what, i.GetActor().GetName(), strings.TrimSuffix(i.GetActor().GetReason(), ".")))
	}
	if force := s.GetForce(); force != nil {
		parts = append(parts, fmt.Sprintf("Forced by %s: %s. %s", force.GetActor().GetName(), strings.TrimSuffix(force.GetActor().GetReason(), "."), force.GetLeftBehind()))
	}
	return strings.Join(parts, " ")
}

// printRetriedDeletion prints what a retry of a deletion retried.
func (e *environment) printRetriedDeletion(operation *adminv1.Operation) error {
	var result adminv1.DeletionRetryResult
	if err := adminclient.DecodeResult(operation, &result); err != nil {
		return err
	}
	for _, id := range result.ResourceIDs {
		fmt.Fprintf(e.out, "the backend retries the deletion of %s\n", shortID(id))
	}
	if len(result.Steps) > 0 {
		fmt.Fprintf(e.out, "retried steps: %s\n", strings.Join(result.Steps, ", "))
	}
	return nil
}

// printReleasedStep prints the finalizers of a deletion step that are released.
func (e *environment) printReleasedStep(step *csv1.DeletionStep) error {
	var finalizers []string
	if done := step.GetActions(); len(done) > 0 {
		finalizers = done[len(done)-1].GetReleasedFinalizers()
	}
	_, err := fmt.Fprintf(e.out, "release of %s requested from the agent; step %s continues afterwards\n", strings.Join(finalizers, ", "), step.GetName())
	return err
}

// printForcedStep prints what a forced deletion step may leave behind.
func (e *environment) printForcedStep(step *csv1.DeletionStep) error {
	_, err := fmt.Fprintf(e.out, "step %s forced. %s\n", step.GetName(), step.GetForce().GetLeftBehind())
	return err
}

func (e *environment) deletionLeftovers() *cobra.Command {
	var gone bool
	c := answer(e, &cobra.Command{Use: "leftovers [CLUSTER]", Short: "List objects that forced deletions may have left behind"}, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.LeftoverList, error) {
		return adminclient.Get(ctx, client, adminv1.ReadLeftovers, adminclient.Query{"cluster": strings.Join(args, ""), "gone": gone})
	}, func(left *adminv1.LeftoverList) error { return printList(e, left.Items, leftoverRow) })
	c.Flags().BoolVar(&gone, "gone", false, "include leftovers that are gone")
	return c
}

func leftoverRow(l adminv1.Message[*csv1.DeletionLeftover]) display.Row {
	state := fmt.Sprintf("remaining, attempt %d", l.Of.GetAttempts())
	if l.Of.GetGoneTime() != nil {
		state = "removed at " + l.Of.GetGoneTime().AsTime().Format(time.RFC3339)
	}
	forced := l.Of.GetForce()
	return display.Row{{"WORK", l.Of.GetWork()}, {"SHARD", l.Of.GetProvisionShard()}, {"STEP", l.Of.GetStep()}, {"FORCED", forced.GetTime().AsTime().Format(time.RFC3339)},
		{"ACTOR", forced.GetActor().GetName()}, {"REASON", forced.GetActor().GetReason()}, {"STATE", state}}
}

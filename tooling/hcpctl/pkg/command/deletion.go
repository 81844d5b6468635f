package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/deletion"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) deletion() *cobra.Command {
	c := group("deletion", "As an SRE: see what deletions wait for, and help those that are stuck",
		e.deletionList(), e.deletionShow(), e.deletionRetry(), e.deletionRelease(), e.deletionForce(), e.deletionLeftovers())
	c.Long = `See what deletions wait for, and help those that are stuck. CLUSTER is anything that 'hcpctl cluster find' takes, as long as it
means one cluster; one that is gone from ARM is found as long as Cluster Service remembers it. The runbooks are in
docs/operators/stuck-deletion.`
	return c
}

// deletionKinds are the kinds in words.
var deletionKinds = map[string]string{deletion.KindCluster: "cluster", deletion.KindNodePool: "node pool", deletion.KindExternalAuth: "external auth"}

// printUnavailable says which layers could not be asked.
func (e *environment) printUnavailable(unavailable map[string]string) {
	for _, layer := range slices.Sorted(maps.Keys(unavailable)) {
		fmt.Fprintf(e.err, "the steps of %s are missing: %s\n", layer, unavailable[layer])
	}
}

func (e *environment) deletionList() *cobra.Command {
	var stuck bool
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List what is being deleted, with the steps that run", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			list, err := client.Deletions(ctx, stuck)
			if err != nil {
				return err
			}
			if e.output != "table" {
				return display.Object(e.out, e.output, list)
			}
			e.printUnavailable(list.Unavailable)
			return display.Table(e.out, []string{"KIND", "NAME", "STEP", "AGE", "STUCK", "WAITS FOR"}, stepRows(list.Items, stuck, time.Now()))
		})
	c.Flags().BoolVar(&stuck, "stuck", false, "only steps that are stuck")
	e.addOutputFlag(c)
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

// shortID is what tells a resource from others of the region: subscription, group and names.
func shortID(id string) string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	if len(parts) < 8 {
		return id
	}
	names := []string{parts[1], parts[3]}
	for i := 7; i < len(parts); i += 2 {
		names = append(names, parts[i])
	}
	return strings.Join(names, "/")
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
	c := e.readCommand(&cobra.Command{
		Use: "show CLUSTER", Short: "Show the steps of a cluster's deletion, or of what is being deleted in it", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		shown, err := client.Deletion(ctx, args[0])
		if err != nil {
			return err
		}
		if e.output != "table" {
			return display.Object(e.out, e.output, shown)
		}
		e.printUnavailable(shown.Unavailable)
		return e.deletionTables(shown, time.Now())
	})
	e.addOutputFlag(c)
	return c
}

func (e *environment) deletionTables(shown *adminv1.ClusterDeletion, now time.Time) error {
	if len(shown.Items) == 0 {
		fmt.Fprintf(e.out, "cluster %s is %s, and nothing in it is being deleted\n", shortID(shown.Cluster.ResourceID), cmp.Or(shown.Cluster.ProvisioningState, shown.Cluster.Phase))
		return nil
	}
	for _, d := range shown.Items {
		fmt.Fprintf(e.out, "%s %s (%s): deletion asked for %s ago", deletionKinds[d.Kind], shortID(d.ResourceID), d.UID, now.Sub(d.DeleteTime).Round(time.Second))
		switch {
		case d.Over:
			fmt.Fprint(e.out, "; it is deleted")
		case d.OperationID != "":
			fmt.Fprintf(e.out, "; ARM's operation is %s", d.OperationID)
		}
		fmt.Fprintln(e.out)
		if len(d.Deletion.Of.GetSteps()) == 0 {
			continue
		}
		var rows [][]string
		for _, s := range d.Deletion.Of.GetSteps() {
			state := strings.ToLower(strings.TrimPrefix(s.GetState().String(), "DELETION_STEP_STATE_"))
			if s.GetStuck() {
				state = "stuck"
			}
			attempts := ""
			if s.GetAttempts() > 0 {
				attempts = fmt.Sprint(s.GetAttempts())
			}
			rows = append(rows, []string{s.GetName(), s.GetLayer(), state, age(s, now), attempts, stepDetails(s)})
		}
		if err := display.Table(e.out, []string{"STEP", "LAYER", "STATE", "AGE", "ATTEMPTS", ""}, rows); err != nil {
			return err
		}
	}
	return nil
}

// stepDetails is what there is to say of a step.
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

func (e *environment) deletionRetry() *cobra.Command {
	return e.requestAndShow(&cobra.Command{
		Use: "retry CLUSTER", Short: "Have everything that deletions of a cluster wait for tried at once", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, adminv1.Operator, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.RetryDeletion(ctx, args[0])
	}, func(operation *adminv1.Operation) error {
		var result adminv1.DeletionRetryResult
		if err := json.Unmarshal(operation.Result, &result); err != nil {
			return fmt.Errorf("reading the result of operation %s: %w", operation.ID, err)
		}
		for _, id := range result.ResourceIDs {
			fmt.Fprintf(e.out, "the backend takes up the deletion of %s again\n", shortID(id))
		}
		if len(result.Steps) > 0 {
			fmt.Fprintf(e.out, "tried again: %s\n", strings.Join(result.Steps, ", "))
		}
		return nil
	})
}

func (e *environment) deletionRelease() *cobra.Command {
	return requestResult(e, &cobra.Command{
		Use: "release CLUSTER STEP FINALIZER...", Short: "Take finalizers of controllers that are gone off what a step waits for (role break-glass)",
		Args: cobra.MinimumNArgs(3), ValidArgsFunction: e.completeFleet,
		Long: `Take finalizers of controllers that are gone off what a step waits for. Maestro's agent on the management cluster does it, on the
objects of the step and on everything in the cluster's namespaces that is being deleted; the step goes on by itself. Finalizers
of controllers that every management cluster has are refused.`,
	}, adminv1.BreakGlass, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.ReleaseFinalizers(ctx, args[0], args[1], args[2:])
	}, func(step *csv1.DeletionStep) error {
		var finalizers []string
		if done := step.GetActions(); len(done) > 0 {
			finalizers = done[len(done)-1].GetReleasedFinalizers()
		}
		_, err := fmt.Fprintf(e.out, "the agent is told to release %s; step %s goes on when it has\n", strings.Join(finalizers, ", "), step.GetName())
		return err
	})
}

func (e *environment) deletionForce() *cobra.Command {
	return requestResult(e, &cobra.Command{
		Use: "force CLUSTER STEP", Short: "Wait no longer for a stuck step, and keep a record of what may be left behind (role break-glass)", Args: cobra.ExactArgs(2),
		ValidArgsFunction: e.completeFleet,
	}, adminv1.BreakGlass, func(ctx context.Context, client *adminclient.Client, args []string) (*adminv1.Operation, error) {
		return client.ForceDeletionStep(ctx, args[0], args[1])
	}, func(step *csv1.DeletionStep) error {
		_, err := fmt.Fprintf(e.out, "step %s is not waited for any more. %s\n", step.GetName(), step.GetForce().GetLeftBehind())
		return err
	})
}

func (e *environment) deletionLeftovers() *cobra.Command {
	var gone bool
	c := e.readCommand(&cobra.Command{
		Use: "leftovers [CLUSTER]", Short: "List what forced deletions may have left behind", Args: cobra.MaximumNArgs(1), ValidArgsFunction: e.completeFleet,
	}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		left, err := client.Leftovers(ctx, strings.Join(args, ""), gone)
		if err != nil {
			return err
		}
		if e.output != "table" {
			return display.Object(e.out, e.output, adminv1.Messages(left))
		}
		var rows [][]string
		for _, l := range left {
			state := fmt.Sprintf("asked to go %d times", l.GetAttempts())
			if l.GetGoneTime() != nil {
				state = "gone since " + l.GetGoneTime().AsTime().Format(time.RFC3339)
			}
			rows = append(rows, []string{l.GetWork(), l.GetProvisionShard(), l.GetStep(), l.GetForce().GetTime().AsTime().Format(time.RFC3339),
				l.GetForce().GetActor().GetName(), l.GetForce().GetActor().GetReason(), state})
		}
		return display.Table(e.out, []string{"WORK", "SHARD", "STEP", "FORCED", "BY", "WHY", "STATE"}, rows)
	})
	c.Flags().BoolVar(&gone, "gone", false, "those that have gone, too")
	e.addOutputFlag(c)
	return c
}

package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) drift() *cobra.Command {
	return group("drift", "List and resolve differences between ARM and the fleet", e.driftList())
}

func (e *environment) driftList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list", Short: "List the differences between ARM, Cluster Service, Maestro and the management clusters",
		Long: `List the differences between ARM, Cluster Service, Maestro and the management clusters. Below them are the objects that another client
removed from a management cluster in the last 24 hours and that exist again, newest first, at most 100.`}, adminv1.ReadDrift, noQuery, asTable(e, e.driftTable))
}

func (e *environment) driftTable(list *adminv1.DriftList) error {
	if err := e.differenceTable(list); err != nil || len(list.RepairedRemovals) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(e.out, "\nremoved by another client in the last 24 hours, and repaired:"); err != nil {
		return err
	}
	return display.List(e.out, list.RepairedRemovals, func(r adminv1.RepairedRemoval) display.Row {
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		return display.Row{{"REMOVED", r.Removed.UTC().Format(time.RFC3339)}, {"REPAIRED", r.AppliedAgain.UTC().Format(time.RFC3339)}, {"KIND", r.Kind}, {"OBJECT", name}, {"SHARD", r.Shard}, {"RESOURCE", r.ResourceID}}
	})
}

// differenceTable prints the differences that exist.
func (e *environment) differenceTable(list *adminv1.DriftList) error {
	if len(list.Items) == 0 {
		_, err := fmt.Fprintf(e.out, "no differences: %d resources desired, %d in the fleet\n", list.Desired, list.InFleet)
		return err
	}
	if err := display.List(e.out, list.Items, func(d adminv1.Drift) display.Row {
		return display.Row{{"LAYER", d.Layer}, {"DIFFERENCE", d.Difference}, {"KIND", d.Kind}, {"UID", d.UID}, {"DESIRED", strconv.FormatInt(d.Desired, 10)}, {"IN FLEET", strconv.FormatInt(d.InFleet, 10)},
			{"RESOURCE", d.ResourceID}, {"REMEDY", d.Remedy}}
	}); err != nil || !list.More {
		return err
	}
	_, err := fmt.Fprintf(e.out, "only the first %d differences are listed\n", len(list.Items))
	return err
}

// printReconciled prints the result of a comparison of the region.
func (e *environment) printReconciled(operation *adminv1.Operation) error {
	var result adminv1.DriftResult
	if err := json.Unmarshal(operation.Result, &result); err != nil {
		return e.printDone(operation)
	}
	if _, err := fmt.Fprintf(e.out, "%d resources desired, %d in the fleet: %d sent again, %d deletions sent again\n", result.Desired, result.InFleet, result.Applied, result.Deleted); err != nil {
		return err
	}
	for _, concern := range slices.Sorted(maps.Keys(result.Findings)) {
		if _, err := fmt.Fprintf(e.out, "%d differences need a decision: %s (see `hcpctl drift list`)\n", result.Findings[concern], concern); err != nil {
			return err
		}
	}
	return nil
}

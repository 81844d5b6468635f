package command

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
)

func (e *environment) drift() *cobra.Command {
	return group("drift", "List and resolve differences between ARM and the fleet", e.driftList())
}

func (e *environment) driftList() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List the differences between ARM, Cluster Service, Maestro and the management clusters", Args: cobra.NoArgs,
		Long: `List the differences between ARM, Cluster Service, Maestro and the management clusters. Below them are the objects that another client
removed from a management cluster in the last 24 hours and that exist again, newest first, at most 100.`},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			list, err := client.Drift(ctx)
			if err != nil {
				return err
			}
			return e.printAs(list, func() error { return e.driftTable(list) })
		})
	e.addOutputFlag(c)
	return c
}

func (e *environment) driftTable(list *adminv1.DriftList) error {
	if err := e.differenceTable(list); err != nil || len(list.RepairedRemovals) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(e.out, "\nremoved by another client in the last 24 hours, and repaired:"); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range list.RepairedRemovals {
		name := r.Name
		if r.Namespace != "" {
			name = r.Namespace + "/" + name
		}
		rows = append(rows, []string{r.Removed.UTC().Format(time.RFC3339), r.AppliedAgain.UTC().Format(time.RFC3339), r.Kind, name, r.Shard, r.ResourceID})
	}
	return display.Table(e.out, []string{"REMOVED", "REPAIRED", "KIND", "OBJECT", "SHARD", "RESOURCE"}, rows)
}

// differenceTable prints the differences that exist.
func (e *environment) differenceTable(list *adminv1.DriftList) error {
	if len(list.Items) == 0 {
		_, err := fmt.Fprintf(e.out, "no differences: %d resources desired, %d in the fleet\n", list.Desired, list.InFleet)
		return err
	}
	var rows [][]string
	for _, d := range list.Items {
		rows = append(rows, []string{d.Layer, d.Difference, d.Kind, d.UID, strconv.FormatInt(d.Desired, 10), strconv.FormatInt(d.InFleet, 10), d.ResourceID, d.Remedy})
	}
	if err := display.Table(e.out, []string{"LAYER", "DIFFERENCE", "KIND", "UID", "DESIRED", "IN FLEET", "RESOURCE", "REMEDY"}, rows); err != nil || !list.More {
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

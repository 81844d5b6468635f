package command

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) work() *cobra.Command {
	return group("work", "List the ManifestWorks of a cluster in transport", e.workList())
}

func (e *environment) workList() *cobra.Command {
	c := e.readCommand(&cobra.Command{
		Use: "list CLUSTER", Short: "List the Maestro bundles of a cluster with their status", Args: cobra.ExactArgs(1), ValidArgsFunction: e.completeFleet,
	}, func(ctx context.Context, client *adminclient.Client, args []string) error {
		list, err := client.Bundles(ctx, args[0])
		if err != nil {
			return err
		}
		e.warnIgnored("works", list.Ignored.Err())
		return e.printAs(list.Items, func() error {
			var rows [][]string
			for _, b := range list.Items {
				rows = append(rows, []string{b.Name, b.Consumer, fmt.Sprint(b.Version), applied(b), formatAge(b.UpdatedAt), b.ID})
			}
			return display.Table(e.out, []string{"NAME", "SHARD", "VERSION", "APPLIED", "UPDATED", "ID"}, rows)
		})
	})
	e.addOutputFlag(c)
	return c
}

// warnIgnored prints which elements of a list are malformed and therefore not listed.
func (e *environment) warnIgnored(list string, ignored error) {
	if ignored != nil {
		fmt.Fprintf(e.err, "warning: the list of %s is not complete: %v\n", list, ignored)
	}
}

// applied returns the status of the Applied condition that the agent reported. If the management cluster differs from the work all
// the same, for example because the object was removed and rebuilt, applied returns how it differs.
func applied(b adminv1.Bundle) string {
	switch {
	case b.DeletedAt != nil:
		return "Deleting"
	case b.Drift != "":
		return b.Drift
	}
	var status struct {
		Conditions []struct{ Type, Status string } `json:"conditions"`
	}
	if json.Unmarshal(b.Status, &status) == nil {
		for _, c := range status.Conditions {
			if c.Type == "Applied" {
				return c.Status
			}
		}
	}
	return "Unknown"
}

func formatAge(t time.Time) string { return time.Since(t).Round(time.Second).String() + " ago" }

func (e *environment) orphan() *cobra.Command {
	return group("orphan", "List and delete bundles without a ManifestWork", e.orphanList())
}

func (e *environment) orphanList() *cobra.Command {
	c := e.readCommand(&cobra.Command{Use: "list", Short: "List Maestro bundles that belong to no ManifestWork", Args: cobra.NoArgs},
		func(ctx context.Context, client *adminclient.Client, _ []string) error {
			list, err := client.Orphans(ctx)
			if err != nil {
				return err
			}
			e.warnIgnored("orphans", list.Ignored.Err())
			return e.printAs(list.Items, func() error {
				var rows [][]string
				for _, o := range list.Items {
					rows = append(rows, []string{o.ID, o.Consumer, o.ClusterID, formatAge(o.UpdatedAt), strings.Join(o.Objects, ", ")})
				}
				return display.Table(e.out, []string{"ID", "SHARD", "CLUSTER ID", "UPDATED", "OBJECTS"}, rows)
			})
		})
	e.addOutputFlag(c)
	return c
}

func (e *environment) azureOrphan() *cobra.Command {
	return group("azure-orphan", "List and delete resources in Azure that belong to no cluster", e.azureOrphanList())
}

func (e *environment) azureOrphanList() *cobra.Command {
	c := e.readCommand(&cobra.Command{
		Use: "list", Short: "List resources in Azure that claim to belong to a cluster which does not exist", Args: cobra.NoArgs,
		Long: `List resources in Azure that claim to belong to a cluster which does not exist. Cluster Service searches each subscription about
every 6 hours, and reports what two searches at least an hour apart found. PROOF is the record of the cluster's deletion.`,
	}, func(ctx context.Context, client *adminclient.Client, _ []string) error {
		orphans, err := client.AzureOrphans(ctx)
		if err != nil {
			return err
		}
		if e.output != "table" {
			return display.Object(e.out, e.output, adminv1.Messages(orphans))
		}
		var rows [][]string
		for _, o := range orphans {
			rows = append(rows, []string{o.GetUid(), o.GetKind(), o.GetAzureId(), formatAge(o.GetFirstTime().AsTime()), o.GetEvidence(), cmp.Or(o.GetProof(), "none")})
		}
		return display.Table(e.out, []string{"ID", "KIND", "AZURE ID", "FIRST SEEN", "EVIDENCE", "PROOF"}, rows)
	})
	e.addOutputFlag(c)
	return c
}

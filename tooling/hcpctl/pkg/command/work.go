package command

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/spf13/cobra"
)

func (e *environment) work() *cobra.Command {
	return group("work", "List the ManifestWorks of a cluster in transport", e.workList())
}

func (e *environment) workList() *cobra.Command {
	return view(e, &cobra.Command{Use: "list CLUSTER", Short: "List the Maestro bundles of a cluster with their status"}, adminv1.ReadWorks, noQuery, func(list *adminv1.BundleList) error {
		e.warnIgnored("works", list.Ignored.Err())
		return printList(e, list.Items, func(b adminv1.Bundle) display.Row {
			return display.Row{{"NAME", b.Name}, {"SHARD", b.Consumer}, {"VERSION", fmt.Sprint(b.Version)}, {"APPLIED", applied(b)}, {"UPDATED", formatAge(b.UpdatedAt)}, {"ID", b.ID}}
		})
	})
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
	return view(e, &cobra.Command{Use: "list", Short: "List Maestro bundles that belong to no ManifestWork"}, adminv1.ReadOrphans, noQuery, func(list *adminv1.OrphanList) error {
		e.warnIgnored("orphans", list.Ignored.Err())
		return printList(e, list.Items, func(o adminv1.Orphan) display.Row {
			return display.Row{{"ID", o.ID}, {"SHARD", o.Consumer}, {"CLUSTER ID", o.ClusterID}, {"UPDATED", formatAge(o.UpdatedAt)}, {"OBJECTS", strings.Join(o.Objects, ", ")}}
		})
	})
}

func (e *environment) azureOrphan() *cobra.Command {
	return group("azure-orphan", "List and delete resources in Azure that belong to no cluster", e.azureOrphanList())
}

func (e *environment) azureOrphanList() *cobra.Command {
	return view(e, &cobra.Command{
		Use: "list", Short: "List resources in Azure that claim to belong to a cluster which does not exist",
		Long: `List resources in Azure that claim to belong to a cluster which does not exist. Cluster Service searches each subscription about
every 6 hours, and reports what two searches at least an hour apart found. PROOF is the record of the cluster's deletion.`,
	}, adminv1.ReadAzureOrphans, noQuery, func(list *adminv1.AzureOrphanList) error {
		return printList(e, list.Items, func(o adminv1.Message[*csv1.AzureOrphan]) display.Row {
			return display.Row{{"ID", o.Of.GetUid()}, {"KIND", o.Of.GetKind()}, {"AZURE ID", o.Of.GetAzureId()}, {"FIRST SEEN", formatAge(o.Of.GetFirstTime().AsTime())}, {"EVIDENCE", o.Of.GetEvidence()}, {"PROOF", cmp.Or(o.Of.GetProof(), "none")}}
		})
	})
}

package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/gather"
	"github.com/spf13/cobra"
)

func (e *environment) explain() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "explain [CLUSTER]", Short: "Explain what a cluster or the region waits for and who must act",
		Long: `Explain what a cluster, its node pools, external authentications and credentials wait for, since when, who must act (the
customer, an SRE, Azure or nobody), what happens next, and which command helps.

Without CLUSTER explain the region: which components are away since when, how many clusters are affected, what clusters that are
not in their desired state wait for, and what they have in common.

Admin computes the explanation; with -o json or yaml it has stable codes for programs.`,
		RunE: with(e.adminClient, func(ctx context.Context, client *adminclient.Client, args []string) error {
			if len(args) == 0 {
				explained, err := adminclient.Get(ctx, client, adminv1.ReadRegionExplanation, nil)
				if err != nil {
					return err
				}
				return e.printExplanation(explained, output)
			}
			return e.showExplanation(ctx, client, args[0], output)
		}),
	}
	c.Flags().StringVarP(&output, "output", "o", "text", "output `format`: text, json or yaml")
	oneOf(c, "output", "text", "json", "yaml")
	return e.addAdminFlags(c)
}

// showExplanation prints the explanation of a cluster from admin.
func (e *environment) showExplanation(ctx context.Context, client *adminclient.Client, name, output string) error {
	explained, err := adminclient.Get(ctx, client, adminv1.ReadExplanation, nil, name)
	if err != nil {
		return err
	}
	return e.printExplanation(explained, output)
}

// printExplanation prints an explanation as text, JSON or YAML.
func (e *environment) printExplanation(explained interface{ Text() string }, output string) error {
	if output != "text" {
		return display.Object(e.out, output, explained)
	}
	_, err := fmt.Fprint(e.out, explained.Text())
	return err
}

func (e *environment) mustGather() *cobra.Command {
	var file, kubeconfig string
	c := &cobra.Command{
		Use: "must-gather CLUSTER", Short: "Collect the state of a cluster from all layers in an archive",
		Long: `Collect the state of a cluster in an archive (tar.gz): its explanation, its timeline, the dump of every layer, the objects of its namespaces on
the management cluster with their events, the log lines of the region's processes that name it, and the versions of all
processes. The last file, index.json, lists the contents and what could not be collected, with the reason.

The archive contains no secrets: of Secrets only the metadata is read, and private keys, kubeconfigs, tokens and passwords are
removed from everything else.`,
		RunE: with(e.adminClient, func(ctx context.Context, client *adminclient.Client, args []string) error {
			from, err := e.endpoints()
			if err != nil {
				return err
			}
			dir, err := e.stateFolder()
			if err != nil {
				return err
			}
			return e.gather(ctx, client, args[0], file, gatherSource{kubeconfig: kubeconfig, logDir: local.LogDir(dir), Endpoints: from})
		}),
	}
	c.Flags().StringVarP(&file, "file", "f", "", "output `file` (default must-gather-NAME-TIME.tar.gz)")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file` of the management cluster (default: the local region)")
	return e.addAdminFlags(c)
}

// gatherSource locates the sources of an archive besides admin.
type gatherSource struct {
	local.Endpoints
	// kubeconfig overrides the one of the local region; may be empty.
	kubeconfig, logDir string
}

// gather writes the archive of a cluster and prints its size and what is missing.
func (e *environment) gather(ctx context.Context, client *adminclient.Client, name, file string, from gatherSource) error {
	dump, err := adminclient.Get(ctx, client, adminv1.ReadDump, nil, name)
	if err != nil {
		return err
	}
	var text string
	if explained, err := adminclient.Get(ctx, client, adminv1.ReadExplanation, nil, dump.Cluster.UID); err == nil {
		text = explained.Text()
	} else {
		text = "The cluster could not be explained: " + err.Error() + "\n"
	}
	layers, err := gather.Layers(dump)
	if err != nil {
		return err
	}
	unavailable := maps.Clone(dump.Unavailable)
	if timeline, err := adminclient.Get(ctx, client, adminv1.ReadTimeline, nil, dump.Cluster.UID); err == nil {
		layers["timeline.yaml"] = timeline
	} else {
		unavailable = map[string]string{"timeline": err.Error()}
		maps.Copy(unavailable, dump.Unavailable)
	}
	cluster := dump.Cluster
	options := gather.Options{
		Name: cluster.Name, TakenAt: dump.TakenAt, Layers: layers, Explanation: text, Unavailable: unavailable,
		Shard: cluster.ProvisionShard, Kubeconfig: cmp.Or(from.kubeconfig, from.Kubeconfigs[cluster.ProvisionShard]), Namespace: cluster.Namespace,
		ClusterID: cluster.ClusterID, LogDir: from.logDir, Needles: gather.Needles(dump),
		Versions: func(ctx context.Context) (any, []error) { return gather.Versions(ctx, from.Ops) },
	}
	file = cmp.Or(file, options.FileName())
	index, err := writeArchive(ctx, options, file)
	if err != nil {
		return err
	}
	files, size := 0, 0
	for _, entry := range index.Entries {
		if entry.Path != "" {
			files, size = files+1, size+entry.Bytes
		}
		if entry.Error != "" {
			fmt.Fprintf(e.err, "warning: %s is missing: %s\n", entry.From, entry.Error)
		}
	}
	_, err = fmt.Fprintf(e.out, "%s: %d files, %d KiB\n", file, files, size>>10)
	return err
}

// writeArchive writes the archive, readable by its owner only: it has no secrets, but data of a customer.
func writeArchive(ctx context.Context, options gather.Options, name string) (gather.Index, error) {
	part, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return gather.Index{}, err
	}
	defer func() { _ = os.Remove(part.Name()) }()
	index, err := gather.Run(ctx, options, part)
	if closed := part.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return index, fmt.Errorf("writing %s: %w", name, err)
	}
	return index, os.Rename(part.Name(), name)
}

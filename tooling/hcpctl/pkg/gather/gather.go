// Package gather collects the state of one cluster in an archive: the dump of every layer, the explanation, the objects of its
// namespaces with their events, the log lines that name it, and the versions of all processes. An item that cannot be collected is
// listed in the index and does not stop the rest. The archive never contains secrets: only the metadata of Secrets is read, and
// all content passes clean.go.
package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/management"
)

// Options selects the content of an archive and its sources. Empty sources are left out.
type Options struct {
	// Name is the name of the cluster and TakenAt the time of the dump; both are part of the folder name.
	Name    string
	TakenAt time.Time
	// Layers maps file names to the content of the layers.
	Layers map[string]any
	// Explanation is the output of `hcpctl explain`.
	Explanation string
	// Unavailable maps the layers that could not be read to the reason.
	Unavailable map[string]string

	// Kubeconfig is a kubeconfig file of the management cluster Shard. Namespace is the namespace of the HostedCluster; the name of
	// the control plane's namespace begins with it.
	Shard, Kubeconfig, Namespace string
	// ClusterID identifies cluster-scoped objects.
	ClusterID string

	// LogDir holds the logs of processes. Needles are the identifiers by which log lines name the cluster.
	LogDir  string
	Needles []string
	// Versions reads the versions of all processes.
	Versions func(ctx context.Context) (versions any, failures []error)
}

func (o Options) folder() string {
	return fileName(fmt.Sprintf("must-gather-%s-%s", o.Name, o.TakenAt.UTC().Format("20060102T150405Z")))
}

// FileName returns the default name of the archive.
func (o Options) FileName() string { return o.folder() + ".tar.gz" }

// Run writes the archive.
func Run(ctx context.Context, o Options, out io.Writer) (Index, error) {
	a := newArchive(out, o.folder(), Index{Cluster: o.Name, TakenAt: o.TakenAt.UTC(),
		Removed: "data of Secrets, private keys, kubeconfigs, tokens, passwords"})
	if o.Explanation != "" {
		a.text("explanation.txt", "explanation", o.Explanation)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Layers)) {
		a.add(name, "dump", o.Layers[name])
	}
	for _, layer := range slices.Sorted(maps.Keys(o.Unavailable)) {
		a.missing(layer, errors.New(o.Unavailable[layer]))
	}
	switch {
	case o.Namespace == "":
		a.missing("management cluster", errors.New("the cluster is not placed yet"))
	case o.Kubeconfig == "":
		a.missing("management cluster", fmt.Errorf("no kubeconfig for %s", o.Shard))
	default:
		a.management(ctx, o)
	}
	if o.LogDir != "" {
		a.logs(o.LogDir, o.Needles)
	}
	if o.Versions != nil {
		versions, failures := o.Versions(ctx)
		a.add("versions.yaml", "versions", versions)
		for _, failure := range failures {
			a.missing("versions", failure)
		}
	}
	return a.close()
}

// management adds the objects of the cluster's namespaces, one file for each kind and namespace.
func (a *archive) management(ctx context.Context, o Options) {
	from := "management cluster " + o.Shard
	err := management.Objects(ctx, o.Kubeconfig, o.Namespace, o.ClusterID, func(list management.List) {
		folder := "management/" + cmp.Or(list.Namespace, "cluster-scoped")
		if list.Err != nil {
			a.missing(from, fmt.Errorf("%s in %s: %w", list.Resource, cmp.Or(list.Namespace, "no namespace"), list.Err))
		}
		if len(list.Items) > 0 {
			a.add(folder+"/"+list.Resource+".yaml", from, list.Items)
		}
	})
	if err != nil {
		a.missing(from, err)
	}
}

// fileName returns a name that is valid for a file.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r) {
			return r
		}
		return '-'
	}, name)
}

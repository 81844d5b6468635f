// Package gather puts everything of one cluster into one archive, for somebody who looks at it later or elsewhere: what
// every layer knows of it, its explanation, the objects of its namespaces on the management cluster with their events, the
// lines of our processes' logs that name it, and which versions of what run. What cannot be had does not stop the rest: the
// index names it. No secret is ever in an archive: Secrets are asked for by their metadata only, and all that goes in passes
// through one cleaning (clean.go).
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

// Options say what is gathered, and where it is found. What is empty is left out.
type Options struct {
	// Name of the cluster, for the archive's folder, and TakenAt the time.
	Name    string
	TakenAt time.Time
	// Layers are what the layers say, by the name of the file.
	Layers map[string]any
	// Explanation is the answer of `hcpctl explain`.
	Explanation string
	// Unavailable are the layers that did not answer.
	Unavailable map[string]string

	// Kubeconfig is a file for the management cluster Shard, and Namespace that of the HostedCluster; the control plane's
	// begins with it.
	Shard, Kubeconfig, Namespace string
	// ClusterID finds what is in no namespace.
	ClusterID string

	// LogDir holds a log per process, and Needles are what a line names the cluster by.
	LogDir  string
	Needles []string
	// Versions asks every process for its version.
	Versions func(ctx context.Context) (versions any, failures []error)
}

func (o Options) folder() string {
	return fileName(fmt.Sprintf("must-gather-%s-%s", o.Name, o.TakenAt.UTC().Format("20060102T150405Z")))
}

// FileName is what the archive may be called.
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
		a.missing("management cluster", errors.New("the cluster has no place yet"))
	case o.Kubeconfig == "":
		a.missing("management cluster", fmt.Errorf("there is no kubeconfig for %s here", o.Shard))
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

// management adds the objects of the cluster's namespaces, a file for each kind and namespace.
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

// fileName makes of a name what a file can be called.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._", r) {
			return r
		}
		return '-'
	}, name)
}

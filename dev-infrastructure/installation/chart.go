package installation

import (
	"context"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/install"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
)

// Installer installs charts of the repository with the values of a target.
type Installer struct {
	// Root is the root of the repository.
	Root    string
	Cluster *rest.Config
	Target  values.Target
	// ReadyWithin is the time for each hook and for all objects of a chart to become ready.
	ReadyWithin time.Duration
	// Log receives progress; nil discards it.
	Log io.Writer
}

// Install installs or upgrades the chart with a name and waits until it is ready. The namespaces are those of the chart `cluster`, which
// is installed before all others.
func (i *Installer) Install(ctx context.Context, name string) (install.Result, error) {
	found, err := values.Find(name, i.Target)
	if err != nil {
		return install.Result{}, err
	}
	computed, err := found.Values()
	if err != nil {
		return install.Result{}, err
	}
	loaded, err := chart.Load(filepath.Join(i.Root, filepath.FromSlash(found.Folder)))
	if err != nil {
		return install.Result{}, err
	}
	return install.Install(ctx, install.Release{Chart: loaded, Namespace: found.Namespace, Values: computed},
		install.Options{Cluster: i.Cluster, ReadyWithin: i.ReadyWithin, Log: i.Log})
}

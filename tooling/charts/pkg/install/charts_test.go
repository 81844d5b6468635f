package install

import (
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// TestChartsOfTheRepository installs all charts of a region and expects a second installation to change nothing.
func TestChartsOfTheRepository(t *testing.T) {
	c := clustertest.Start(t)
	clustertest.InstallDefinitions(t, c.Config)
	addOn := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "aks-istio-system"}}
	must.Get(c.Client.CoreV1().Namespaces().Create(t.Context(), addOn, metav1.CreateOptions{}))(t)
	installed := 0
	for _, target := range charttest.Targets(t) {
		if target.Name != "public/prod/uksouth" {
			continue
		}
		for _, changed := range []bool{true, false} {
			for _, r := range releasesOf(t, target) {
				log := &lockedLog{}
				result, err := Install(t.Context(), r, Options{Cluster: c.Config, ReadyWithin: 2 * time.Minute, Log: log})
				if err != nil {
					t.Fatalf("%v\n%s", err, log)
				}
				if result.Changed != changed {
					t.Errorf("chart %s: %+v; expected a change: %t", r.Chart.Name(), result, changed)
				}
				installed++
			}
		}
	}
	t.Logf("%d installations", installed)
}

// releasesOf returns the releases of all charts of a target, in the order of their installation.
func releasesOf(t *testing.T, target values.Target) []Release {
	t.Helper()
	var releases []Release
	add := func(folder, namespace string, values any, err error) {
		if err != nil {
			t.Fatal(err)
		}
		loaded, err := chart.Load(filepath.Join(charttest.Root(t), filepath.FromSlash(folder)))
		if err != nil {
			t.Fatal(err)
		}
		// The API server of tests is built without its version.
		loaded.Helm().Metadata.KubeVersion = ""
		releases = append(releases, Release{Chart: loaded, Namespace: namespace, Values: values})
	}
	for _, p := range charttest.Platforms(target) {
		v, err := p.Values(target)
		add(p.Folder(), p.Namespace, v, err)
	}
	for _, w := range workload.All() {
		if values.Applies(w, target) {
			v, err := values.Of(w, target)
			add(w.Folder, string(w.Peer), v, err)
		}
	}
	return releases
}

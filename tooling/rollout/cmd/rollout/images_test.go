package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
)

// mirrored returns the components that a step mirrors.
func mirrored(s *definition.Step) []string {
	var components []string
	if s.Action == "ImageMirror" {
		listed, _ := s.With["components"].([]any)
		for _, item := range listed {
			key, _ := item.(string)
			components = append(components, key)
		}
	}
	return components
}

// ofRehearsals reports whether a component belongs to a program of rehearsals. Whoever rehearses pushes its images to the registry.
func ofRehearsals(component string) bool {
	return slices.ContainsFunc(workload.All(), func(w workload.Workload) bool {
		key := strings.Join(w.Key, ".")
		return w.Rehearsal && (component == key || strings.HasPrefix(component, key+"."))
	})
}

// TestChartsWaitForTheirImages checks that a step which installs a chart with an image runs after the step that mirrors the image, and that
// each image of the configuration is mirrored.
func TestChartsWaitForTheirImages(t *testing.T) {
	configuration, topology, err := (&environment{}).open()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, g := range topology.Groups {
		for _, s := range g.Steps {
			all = append(all, mirrored(s)...)
		}
	}
	images := 0
	configuration.Schema.Walk(func(path []string, p *schema.Property) {
		component := strings.Join(path[:len(path)-1], ".")
		if !p.Image() || ofRehearsals(component) {
			return
		}
		images++
		if !slices.Contains(all, component) {
			t.Errorf("no step mirrors the image of %s", component)
		}
	})
	if images != len(all) {
		t.Errorf("steps mirror %d components, and the configuration has %d images", len(all), images)
	}
	// These are not programs of this repository.
	components := map[string]string{"hypershift-operator": "managementCluster.hypershiftOperator", "mise": "mise"}
	for _, w := range workload.All() {
		if component := strings.Join(w.Key, "."); !ofRehearsals(component) {
			components[string(w.Peer)] = component
		}
	}
	waiting := 0
	for _, g := range topology.Groups {
		for _, s := range g.Steps {
			chart, _ := s.With["chart"].(string)
			component, needed := components[chart]
			if s.Action != "Helm" || !needed {
				continue
			}
			waiting++
			if !slices.ContainsFunc(topology.Before(s), func(before *definition.Step) bool { return slices.Contains(mirrored(before), component) }) {
				t.Errorf("%s does not wait for the step that mirrors the image of %s", s.ID(), component)
			}
		}
	}
	if waiting != len(components) {
		t.Errorf("%d steps install charts with an image, and %d components have one", waiting, len(components))
	}
}

// TestImagesComeFromAnEnvironment checks that each environment copies images from itself or from another environment, and that every
// image reaches it from an environment that people push to.
func TestImagesComeFromAnEnvironment(t *testing.T) {
	configuration, _, err := (&environment{}).open()
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, target := range configuration.Targets(nil) {
		if target.Level() != layer.Region {
			continue
		}
		values := must.Get(configuration.Render(target))(t)
		text := func(path ...string) string { return values.Get(path...).Value.(string) }
		sources[text("registry", "services")+"."+text("endpoints", "registrySuffix")] = text("registry", "source")
	}
	for registry := range sources {
		at := []string{registry}
		for sources[at[len(at)-1]] != at[len(at)-1] {
			next, known := sources[at[len(at)-1]]
			if !known || slices.Contains(at, next) {
				t.Errorf("images of %s come from no registry of an environment that is its own source: %s", registry, strings.Join(append(at, next), " from "))
				break
			}
			at = append(at, next)
		}
	}
	if len(sources) < 2 {
		t.Errorf("the registries are %v", sources)
	}
}

// TestReleasesAreCopiedToTheirMirrors checks that the step which copies releases has the repositories from which clusters pull them.
func TestReleasesAreCopiedToTheirMirrors(t *testing.T) {
	configuration, topology, err := (&environment{}).open()
	if err != nil {
		t.Fatal(err)
	}
	var step *definition.Step
	for _, g := range topology.Groups {
		for _, s := range g.Steps {
			if s.Action == "ImageMirror" && s.With["releaseList"] != nil {
				step = s
			}
		}
	}
	if step == nil || step.With["target"] != "${registry}.${suffix}" || step.Inputs["registry"].Configuration != "registry.openshift" {
		t.Fatalf("no step copies releases to the registry for OpenShift: %v", step)
	}
	for _, target := range configuration.Targets(nil) {
		if target.Level() != layer.Region {
			continue
		}
		values := must.Get(configuration.Render(target))(t)
		registry := values.Get("registry", "openshift").Value.(string) + "." + values.Get("endpoints", "registrySuffix").Value.(string)
		var want []any
		for _, source := range values.Get("clusterService", "config", "imageContentSources").Items {
			if repository, ours := strings.CutPrefix(source.Get("mirrors", "0").Value.(string), registry+"/"); ours {
				want = append(want, map[string]any{"source": source.Get("source").Value, "target": repository})
			}
		}
		if diff := cmp.Diff(want, step.With["mirrors"]); diff != "" {
			t.Errorf("%s: clusters pull from other repositories (-pulled +copied):\n%s", target, diff)
		}
	}
}

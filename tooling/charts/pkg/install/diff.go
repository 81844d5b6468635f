package install

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
)

// contextLines is the number of equal lines around a difference.
const contextLines = 3

// Diff returns the difference between the manifests of the revision that is deployed and those that Install would apply, in the unified
// format, with one part for each object. The cluster validates the new manifests, and nothing is changed. The data of Secrets are replaced by
// marks. Definitions in the folder crds that the cluster lacks, and objects of their kinds, are new objects. The cluster cannot validate these
// objects. The result is empty if there is no difference.
func Diff(ctx context.Context, r Release, o Options) (string, error) {
	i, err := start(ctx, r.Chart.Name(), r.Namespace, o)
	if err != nil {
		return "", err
	}
	text, err := i.diff(r)
	if err != nil {
		return "", fmt.Errorf("release %s: %w", i.name, i.ended(err))
	}
	return text, nil
}

func (i *installation) diff(r Release) (string, error) {
	values, err := r.Chart.PlainValues(r.Values)
	if err != nil {
		return "", err
	}
	definitions, err := i.undefined(r.Chart.Helm())
	if err != nil {
		return "", err
	}
	i.client.undefined = kindsOf(definitions)
	run := action.NewInstall(i.config)
	// As an upgrade, so that Helm does not refuse objects that exist.
	run.ReleaseName, run.Namespace, run.DryRun, run.DryRunOption, run.IsUpgrade = i.name, i.namespace, true, "server", true
	rendered, err := run.Run(r.Chart.Helm(), values)
	if err != nil {
		return "", fmt.Errorf("rendering: %w", err)
	}
	after, err := objectsOf(rendered)
	if err != nil {
		return "", err
	}
	for _, definition := range definitions {
		after[chart.ID(definition)] = definition
	}
	before := map[string]*unstructured.Unstructured{}
	history, err := i.config.Releases.History(i.name)
	if err == nil {
		if current := deployed(history); current != nil {
			before, err = objectsOf(current)
		}
	} else if isNotInstalled(err) {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the deployed revision: %w", err)
	}
	return compare(before, after)
}

// objectsOf returns the objects of a revision with those of its hooks.
func objectsOf(revision *release.Release) (map[string]*unstructured.Unstructured, error) {
	manifests := []string{revision.Manifest}
	for _, hook := range revision.Hooks {
		manifests = append(manifests, hook.Manifest)
	}
	parsed, err := chart.Parse(strings.Join(manifests, "\n---\n"))
	if err != nil {
		return nil, err
	}
	objects := map[string]*unstructured.Unstructured{}
	for _, object := range parsed {
		objects[chart.ID(object)] = object
	}
	return objects, nil
}

func compare(before, after map[string]*unstructured.Unstructured) (string, error) {
	ids := map[string]bool{}
	for id := range before {
		ids[id] = true
	}
	for id := range after {
		ids[id] = true
	}
	var text strings.Builder
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		old, wanted := before[id], after[id]
		hideSecrets(old, wanted)
		lines := [2][]string{}
		for n, object := range []*unstructured.Unstructured{old, wanted} {
			if object == nil {
				continue
			}
			encoded, err := yaml.Marshal(object.Object)
			if err != nil {
				return "", err
			}
			lines[n] = difflib.SplitLines(strings.TrimSuffix(string(encoded), "\n"))
		}
		part, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: lines[0], B: lines[1], FromFile: nameOf(id, old), ToFile: nameOf(id, wanted), Context: contextLines})
		if err != nil {
			return "", err
		}
		text.WriteString(part)
	}
	return text.String(), nil
}

// nameOf returns the name of one side of a difference.
func nameOf(id string, object *unstructured.Unstructured) string {
	if object == nil {
		return "/dev/null"
	}
	return id
}

// hideSecrets replaces the values of a Secret. A value that changes gets another mark on the new side.
func hideSecrets(old, wanted *unstructured.Unstructured) {
	for _, field := range []string{"data", "stringData"} {
		before, after := secretValues(old, field), secretValues(wanted, field)
		for name, value := range after {
			after[name] = "(hidden)"
			if existing, exists := before[name]; exists && existing != value {
				after[name] = "(hidden, changed)"
			}
		}
		for name := range before {
			before[name] = "(hidden)"
		}
	}
}

// secretValues returns the values in a field of a Secret; nil if the object is none.
func secretValues(object *unstructured.Unstructured, field string) map[string]any {
	if object == nil || object.GetKind() != "Secret" {
		return nil
	}
	values, _ := object.Object[field].(map[string]any)
	return values
}

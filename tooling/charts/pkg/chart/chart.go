// Package chart loads charts of the repository and renders them with Helm, without a cluster.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Chart is a chart with its dependencies.
type Chart struct{ loaded *helmchart.Chart }

// Load reads the chart in a folder. Its dependencies are in the folder charts, as links to other folders.
func Load(folder string) (*Chart, error) {
	loaded, err := loader.LoadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("reading the chart in %s: %w", folder, err)
	}
	for _, needed := range loaded.Metadata.Dependencies {
		if !slices.ContainsFunc(loaded.Dependencies(), func(have *helmchart.Chart) bool {
			return have.Name() == needed.Name && have.Metadata.Version == needed.Version
		}) {
			return nil, fmt.Errorf("reading the chart in %s: the folder charts does not have %s %s", folder, needed.Name, needed.Version)
		}
	}
	return &Chart{loaded}, nil
}

// Name is the name of the chart.
func (c *Chart) Name() string { return c.loaded.Name() }

// Helm returns the chart for Helm's library.
func (c *Chart) Helm() *helmchart.Chart { return c.loaded }

// Files returns all files of the chart and of its dependencies.
func (c *Chart) Files() []*helmchart.File { return c.loaded.Raw }

// KubernetesVersion is the version for which charts are rendered. It is the oldest of the configuration's clusters.
const KubernetesVersion = "v1.35.0"

// Render returns the objects of a release with the name and the namespace of the chart, unless namespace is given. values is a struct or a
// map. It returns an error for values that the chart's schema refuses.
func (c *Chart) Render(namespace string, values any) (Objects, error) {
	manifest, err := c.manifest(namespace, values)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name(), err)
	}
	objects, err := Parse(manifest)
	if err != nil {
		return nil, fmt.Errorf("chart %s: %w", c.Name(), err)
	}
	return objects, nil
}

func (c *Chart) manifest(namespace string, values any) (string, error) {
	plain, err := c.PlainValues(values)
	if err != nil {
		return "", err
	}
	version, err := chartutil.ParseKubeVersion(KubernetesVersion)
	if err != nil {
		return "", err
	}
	if c.loaded.Metadata.KubeVersion != "" && !chartutil.IsCompatibleRange(c.loaded.Metadata.KubeVersion, version.String()) {
		return "", fmt.Errorf("needs Kubernetes %s and is rendered for %s", c.loaded.Metadata.KubeVersion, version)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	if err := chartutil.ProcessDependencies(c.loaded, plain); err != nil {
		return "", err
	}
	release := chartutil.ReleaseOptions{Name: c.Name(), Namespace: namespace, Revision: 1, IsInstall: true}
	ready, err := chartutil.ToRenderValues(c.loaded, plain, release, capabilities)
	if err != nil {
		return "", err
	}
	strict := engine.Engine{Strict: true}
	files, err := strict.Render(c.loaded, ready)
	if err != nil {
		return "", err
	}
	var names []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		text.WriteString("---\n" + files[name] + "\n")
	}
	return text.String(), nil
}

// PlainValues returns values as Helm reads them from a file.
func (c *Chart) PlainValues(values any) (chartutil.Values, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return chartutil.ReadValues(text)
}

// Objects are rendered objects.
type Objects []*unstructured.Unstructured

// Parse reads a stream of YAML documents. It refuses documents without a kind or a name, and two objects with the same name.
func Parse(manifest string) (Objects, error) {
	var objects Objects
	seen := map[string]bool{}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifest)), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading a rendered object: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if object.GetKind() == "" || object.GetAPIVersion() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("a rendered object has no kind, apiVersion or name: %v", object.Object)
		}
		if id := ID(object); seen[id] {
			return nil, fmt.Errorf("the object %s is rendered twice", id)
		} else {
			seen[id] = true
		}
		objects = append(objects, object)
	}
}

// ID identifies an object in errors: KIND NAMESPACE/NAME.
func ID(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + strings.TrimPrefix(filepath.ToSlash(object.GetNamespace()+"/"+object.GetName()), "/")
}

// Root returns the root of the repository: the folder above dir that contains go.mod.
func Root(dir string) (string, error) {
	for at := dir; ; at = filepath.Dir(at) {
		if matches, _ := filepath.Glob(filepath.Join(at, "go.mod")); len(matches) > 0 {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in a checkout of the repository: no go.mod above it", dir)
		}
	}
}

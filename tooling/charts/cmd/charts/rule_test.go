package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// TestChartsKeepTheRules checks every chart for every region and stamp.
func TestChartsKeepTheRules(t *testing.T) {
	for _, target := range charttest.Targets(t) {
		for name, objects := range charttest.RenderAll(t, target) {
			for _, broken := range checkObjects(objects) {
				t.Errorf("%s: chart %s: %s", target.Name, name, broken)
			}
		}
	}
}

// frontend returns the objects of the frontend in one region.
func frontend(t *testing.T) chart.Objects {
	t.Helper()
	w, _ := workload.Find("frontend")
	for _, target := range charttest.Targets(t) {
		if values.Applies(w, target) {
			return charttest.Render(t, w, target)
		}
	}
	t.Fatal("no region has a frontend")
	return nil
}

const pod = "spec.template.spec."

// TestBrokenRulesAreFound changes one field of the frontend's Deployment at a time.
func TestBrokenRulesAreFound(t *testing.T) {
	original := frontend(t)
	for name, c := range map[string]struct {
		field string
		value any
		want  string
	}{
		"a tag":                          {pod + "containers.0.image", "registry.example/frontend:latest", "containers[0].image: \"registry.example/frontend:latest\" does not name"},
		"an empty image":                 {pod + "containers.0.image", "", "containers[0].image"},
		"no CPU request":                 {pod + "containers.0.resources.requests.cpu", nil, "resources.requests.cpu: is required"},
		"no memory request":              {pod + "containers.0.resources.requests.memory", nil, "resources.requests.memory: is required"},
		"no memory limit":                {pod + "containers.0.resources.limits.memory", nil, "resources.limits.memory: is required"},
		"no readiness probe":             {pod + "containers.0.readinessProbe", nil, "Deployment frontend/frontend: spec.template.spec.containers[0].readinessProbe: is required"},
		"no liveness probe":              {pod + "containers.0.livenessProbe", nil, "livenessProbe: is required"},
		"no start-up probe":              {pod + "containers.0.startupProbe", nil, "startupProbe: is required"},
		"liveness of dependencies":       {pod + "containers.0.livenessProbe.httpGet.path", "/readyz?exclude=authentication&exclude=cosmos-db", "livenessProbe: is the readiness probe"},
		"no preStop":                     {pod + "containers.0.lifecycle", nil, "lifecycle.preStop.sleep: is required"},
		"no drain":                       {pod + "containers.0.args", []any{"--listen=0.0.0.0:8443"}, "--drain is required"},
		"a flag without value":           {pod + "containers.0.args", []any{"--drain=10s", "--listen="}, "args[1]: --listen has no value"},
		"a flag twice":                   {pod + "containers.0.args", []any{"--drain=10s", "--drain=11s"}, "--drain is set twice"},
		"a short grace period":           {pod + "terminationGracePeriodSeconds", int64(15), "must be longer than preStop and --drain, 15 seconds"},
		"a default token":                {pod + "automountServiceAccountToken", true, "automountServiceAccountToken: must be false"},
		"the default account":            {pod + "serviceAccountName", "default", "serviceAccountName: must be an account"},
		"no priority":                    {pod + "priorityClassName", nil, "priorityClassName: is required"},
		"a writable root":                {pod + "containers.0.securityContext.readOnlyRootFilesystem", false, "readOnlyRootFilesystem: must be true"},
		"root":                           {pod + "securityContext.runAsNonRoot", false, "runAsNonRoot"},
		"no seccomp profile":             {pod + "securityContext.seccompProfile", nil, "seccompProfile"},
		"capabilities":                   {pod + "containers.0.securityContext.capabilities.drop", []any{}, "capabilities"},
		"the network of the node":        {pod + "hostNetwork", true, "namespaces of the node are not allowed"},
		"no spread over zones and nodes": {pod + "topologySpreadConstraints", []any{}, "not spread over topology.kubernetes.io/zone"},
		"pods out of service":            {"spec.strategy.rollingUpdate.maxUnavailable", int64(1), "must not take pods out of service"},
		"no time to be ready":            {"spec.minReadySeconds", nil, "minReadySeconds: is required"},
		"a field that does not exist":    {pod + "terminationGracePeriod", int64(5), `unknown field "spec.template.spec.terminationGracePeriod"`},
		"a label that nothing selects":   {"spec.template.metadata.labels", map[string]any{"app": "other"}, "no PodDisruptionBudget"},
		"no name of the product":         {"metadata.labels", map[string]any{}, "the label app.kubernetes.io/part-of is missing"},
	} {
		objects := chart.Objects{}
		for _, object := range original {
			object = object.DeepCopy()
			if object.GetKind() == "Deployment" {
				charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
			}
			objects = append(objects, object)
		}
		expect(t, name, objects, c.want)
	}
}

// TestBrokenRulesOfGatewaysAreFound changes one field of a gateway's Deployment at a time. Istio sets its image, and only that.
func TestBrokenRulesOfGatewaysAreFound(t *testing.T) {
	original := platform(t, "ingress")
	for name, c := range map[string]struct {
		field string
		value any
		want  string
	}{
		"an image of our own":  {pod + "containers.0.image", "registry.example/proxy:latest", "containers[0].image: \"registry.example/proxy:latest\" does not name"},
		"another container":    {pod + "containers.0.name", "proxy", "containers[0].image: \"auto\" does not name"},
		"a sidecar":            {"spec.template.metadata.annotations", map[string]any{}, "containers[0].image: \"auto\" does not name"},
		"no injection":         {"spec.template.metadata.labels", map[string]any{"istio": "ingress-admin"}, "containers[0].image: \"auto\" does not name"},
		"no drain":             {"spec.template.metadata.annotations", map[string]any{"inject.istio.io/templates": "gateway"}, "proxy.istio.io/config has no terminationDrainDuration"},
		"a short grace period": {pod + "terminationGracePeriodSeconds", int64(75), "must be longer than preStop and --drain, 75 seconds"},
		"a writable root":      {pod + "containers.0.securityContext.readOnlyRootFilesystem", false, "readOnlyRootFilesystem: must be true"},
		"root":                 {pod + "securityContext.runAsNonRoot", false, "runAsNonRoot"},
	} {
		objects := chart.Objects{}
		for _, object := range original {
			object = object.DeepCopy()
			if object.GetKind() == "Deployment" && object.GetName() == "admin" {
				charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
				if c.field == pod+"securityContext.runAsNonRoot" {
					charttest.Set(t, object.Object, strings.Split(pod+"containers.0.securityContext.runAsNonRoot", "."), c.value)
				}
			}
			objects = append(objects, object)
		}
		expect(t, name, objects, c.want)
	}
}

// TestBrokenRulesOfForeignProgramsAreFound changes one field of MISE's Deployment at a time. MISE has no flag --drain.
func TestBrokenRulesOfForeignProgramsAreFound(t *testing.T) {
	original := platform(t, "mise")
	for name, c := range map[string]struct {
		field string
		value any
		want  string
	}{
		"a tag":                    {pod + "containers.0.image", "registry.example/mise:latest", "does not name its registry and its digest"},
		"no time for requests":     {"spec.template.metadata.annotations", map[string]any{}, "--drain is required"},
		"an unknown time":          {"spec.template.metadata.annotations", map[string]any{"hcpmesh.io/shutdown": "long"}, "hcpmesh.io/shutdown is no duration"},
		"a short pause":            {pod + "containers.0.lifecycle.preStop.sleep.seconds", int64(5), "lifecycle.preStop.sleep: is shorter than 15 seconds"},
		"no pause":                 {pod + "containers.0.lifecycle", nil, "lifecycle.preStop.sleep: is required"},
		"a short grace period":     {pod + "terminationGracePeriodSeconds", int64(45), "must be longer than preStop and --drain, 45 seconds"},
		"a writable root":          {pod + "containers.0.securityContext.readOnlyRootFilesystem", false, "readOnlyRootFilesystem: must be true"},
		"root":                     {pod + "securityContext.runAsNonRoot", false, "runAsNonRoot"},
		"a default token":          {pod + "automountServiceAccountToken", true, "automountServiceAccountToken: must be false"},
		"liveness of Entra's keys": {pod + "containers.0.livenessProbe.httpGet.path", "/readyz", "livenessProbe: is the readiness probe"},
	} {
		objects := chart.Objects{}
		for _, object := range original {
			object = object.DeepCopy()
			if object.GetKind() == "Deployment" {
				charttest.Set(t, object.Object, strings.Split(c.field, "."), c.value)
			}
			objects = append(objects, object)
		}
		expect(t, name, objects, c.want)
	}
}

// platform returns the objects of a chart of clusters in one region.
func platform(t *testing.T, name string) chart.Objects {
	t.Helper()
	for _, target := range charttest.Targets(t) {
		for _, p := range charttest.Platforms(target) {
			if p.Name == name {
				return charttest.RenderPlatform(t, p, target)
			}
		}
	}
	t.Fatalf("no region has the chart %s", name)
	return nil
}

// TestMissingObjectsAreFound leaves out one object at a time.
func TestMissingObjectsAreFound(t *testing.T) {
	original := frontend(t)
	for kind, want := range map[string]string{"PodDisruptionBudget": "no PodDisruptionBudget", "NetworkPolicy": "denies all connections by default"} {
		objects := chart.Objects{}
		for _, object := range original {
			if object.GetKind() != kind {
				objects = append(objects, object)
			}
		}
		expect(t, "without "+kind, objects, want)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"name": "s"}}}
	expect(t, "with a Secret", append(chart.Objects{secret}, original...), "must not contain secrets")
}

func expect(t *testing.T, name string, objects chart.Objects, want string) {
	t.Helper()
	var found []string
	for _, broken := range checkObjects(objects) {
		found = append(found, broken.String())
	}
	if text := strings.Join(found, "\n"); !strings.Contains(text, want) {
		t.Errorf("%s: got %q, want %q", name, text, want)
	}
}

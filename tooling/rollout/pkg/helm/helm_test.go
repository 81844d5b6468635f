package helm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/clustertest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/install"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Check(m.Run())) }

const (
	region      = "public/dev/westus3"
	clusterName = "hcpm-dev-usw3-svc"
	regionLayer = "config/clouds/public/dev/westus3.yaml"
)

const leftOut = `group: service-cluster
steps:
- {name: mise, action: Helm, timeout: 8m, inputs: {cluster: {configuration: serviceCluster.name}}, with: {cluster: "${cluster}", chart: mise, readyWithin: 2m}}
`

// digest returns a digest that consists of one digit.
func digest(digit string) string { return "sha256:" + strings.Repeat(digit, 64) }

// checkout is a copy of the configuration and of the charts cluster and frontend, with a pipeline for them.
type checkout struct {
	dir     string
	cluster *clustertest.Cluster
	store   *state.Store
}

// topology has the group service-cluster because the configuration of the region leaves out its step mise.
const topology = `groups:
- name: service-cluster
  scope: region
  purpose: A step that the region leaves out.
  pipeline: service-cluster/pipeline.yaml
- name: services
  scope: region
  purpose: Two charts of a service cluster.
  pipeline: services/pipeline.yaml
`

const pipeline = `group: services
steps:
- name: namespaces
  action: Helm
  timeout: 8m
  inputs: {cluster: {configuration: serviceCluster.name}}
  outputs: [content]
  with: {cluster: "${cluster}", chart: cluster, readyWithin: 2m}
  rollback: true
- name: frontend
  action: Helm
  dependsOn: [namespaces]
  timeout: 8m
  inputs:
    cluster: {configuration: serviceCluster.name}
    clientIds: {value: '{"frontend-dev-usw3": "00000000-0000-4000-8000-000000000001"}'}
  outputs: [content]
  with: {cluster: "${cluster}", chart: frontend, readyWithin: 2m, clientIds: "${clientIds}"}
  gates: [{name: healthy, timeout: 1s, command: [test, -e, healthy]}]
  rollback: true
`

func newCheckout(t *testing.T) *checkout {
	t.Helper()
	root, dir := charttest.Root(t), t.TempDir()
	for _, folder := range []string{"config", "frontend/deploy", "dev-infrastructure/charts"} {
		must.Do(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))))
	}
	c := &checkout{dir: dir, cluster: clustertest.Start(t)}
	clustertest.InstallDefinitions(t, c.cluster.Config)
	// The API server of tests is built without its version.
	for _, name := range []string{"frontend/deploy/Chart.yaml", "dev-infrastructure/charts/cluster/Chart.yaml", "dev-infrastructure/charts/service/Chart.yaml"} {
		var kept []string
		for line := range strings.Lines(c.read(t, name)) {
			if !strings.HasPrefix(line, "kubeVersion:") {
				kept = append(kept, line)
			}
		}
		c.write(t, name, strings.Join(kept, ""))
	}
	c.write(t, definition.TopologyFile, topology)
	c.write(t, "services/pipeline.yaml", pipeline)
	c.write(t, "service-cluster/pipeline.yaml", leftOut)
	kubeconfig, err := clientcmd.LoadFromFile(c.cluster.Kubeconfig)
	if err == nil {
		err = clientcmdapi.FlattenConfig(kubeconfig) // its certificates are files beside it
	}
	if err == nil {
		err = clientcmd.WriteToFile(*kubeconfig, filepath.Join(dir, "kubeconfigs", clusterName+".kubeconfig"))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.release(t, "1")
	return c
}

func (c *checkout) read(t *testing.T, name string) string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join(c.dir, filepath.FromSlash(name))))(t)
	return string(text)
}

func (c *checkout) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(c.dir, filepath.FromSlash(name))
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, []byte(text), 0o644))
}

// release sets the image of the frontend.
func (c *checkout) release(t *testing.T, digit string) {
	t.Helper()
	root := charttest.Root(t)
	text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(regionLayer))))(t)
	c.write(t, regionLayer, string(text)+"\nfrontend: {image: {digest: \""+digest(digit)+"\"}}\n")
}

// runner returns the runner and the instances of a rollout.
func (c *checkout) runner(t *testing.T) (*runner.Runner, []*plan.Instance) {
	t.Helper()
	configuration := must.Get(deployment.Open(filepath.Join(c.dir, "config")))(t)
	read := must.Get(definition.Open(c.dir, configuration.Schema))(t)
	target := must.Get(layer.ParseTarget(region))(t)
	instances := must.Get(plan.Instances(read, configuration, target))(t)
	store := must.Get(state.Open(filepath.Join(c.dir, "state"), target))(t)
	c.store = store
	actions := map[string]action.Action{"Helm": Helm{configuration, Kubeconfigs{filepath.Join(c.dir, "kubeconfigs")}, values.CSI}}
	record := func(i *plan.Instance) (state.Record, bool) { return store.Step(i.ID) }
	return &runner.Runner{
		Planner: plan.Planner{Root: c.dir, Actions: actions, Record: record}, StoreOf: func(*plan.Instance) runner.Store { return store },
		LogsDir: filepath.Join(c.dir, "logs"), Parallel: 2, Report: func(e runner.Event) { t.Log(e.Step, e.Text) }, Now: time.Now,
	}, instances
}

// rollout runs all steps.
func (c *checkout) rollout(t *testing.T) (runner.Result, error) {
	t.Helper()
	r, instances := c.runner(t)
	return r.Run(t.Context(), instances)
}

// mustRun checks the image of the frontend.
func (c *checkout) mustRun(t *testing.T, digit string) {
	t.Helper()
	found := must.Get(c.cluster.Client.AppsV1().Deployments("frontend").Get(t.Context(), "frontend", metav1.GetOptions{}))(t)
	if image := found.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(image, "@"+digest(digit)) || found.Status.UnavailableReplicas > 0 {
		t.Errorf("the frontend runs %s: %+v", image, found.Status)
	}
}

// TestRollout deploys two charts of the repository with a pipeline, skips them, upgrades one, rolls an upgrade back whose gate fails, and
// continues.
func TestRollout(t *testing.T) {
	c := newCheckout(t)
	c.write(t, "healthy", "")
	result, err := c.rollout(t)
	if err != nil || len(result.Succeeded) != 2 {
		t.Fatalf("%+v: %v", result, err)
	}
	c.mustRun(t, "1")
	if result, err = c.rollout(t); err != nil || len(result.Skipped) != 2 {
		t.Errorf("without a change: %+v: %v", result, err)
	}

	c.release(t, "2")
	r, instances := c.runner(t)
	decisions := must.Get(r.Planner.All(instances))(t)
	decisions = slices.DeleteFunc(decisions, func(d plan.Decision) bool { return d.Verdict == plan.LeftOut })
	if d := decisions[1]; decisions[0].Verdict != plan.Skip || d.Verdict != plan.Run || strings.Join(d.Reasons, ";") != "the content of the release frontend has changed" {
		t.Errorf("the plan is %v and %v", decisions[0], d)
	}
	request := must.Get(r.Planner.Request(decisions[1]))(t)
	var preview bytes.Buffer
	must.Do(t, r.Planner.Actions["Helm"].(action.Previewer).Preview(t.Context(), request, &preview))
	if text := preview.String(); !strings.Contains(text, "+++ Deployment frontend/frontend") || !strings.Contains(text, "@"+digest("2")+"\n") || strings.Contains(text, "ConfigMap") {
		t.Errorf("the preview is\n%s", text)
	}

	must.Do(t, os.Remove(filepath.Join(c.dir, "healthy")))
	if _, err = c.rollout(t); !errors.Is(err, runner.ErrFailed) {
		t.Fatalf("an unhealthy release: %v", err)
	}
	if record, _ := c.store.Step("services/frontend"); record.Status != state.RolledBack {
		t.Errorf("the step is %s: %s", record.Status, record.Error)
	}
	c.mustRun(t, "1")
	c.write(t, "healthy", "")
	if result, err = c.rollout(t); err != nil || len(result.Succeeded) != 1 || len(result.Skipped) != 1 {
		t.Errorf("after the cause was removed: %+v: %v", result, err)
	}
	c.mustRun(t, "2")
}

// TestMissingParts expects a step to be blocked, or to fail with the name of what is missing.
func TestMissingParts(t *testing.T) {
	configuration := charttest.Configuration(t)
	target := must.Get(layer.ParseTarget(region))(t)
	h := Helm{configuration, Kubeconfigs{t.TempDir()}, values.CSI}
	request := func(with map[string]any) action.Request {
		return action.Request{Step: "a/b", Target: target, With: with, Root: charttest.Root(t), Log: io.Discard}
	}
	for reason, c := range map[string]struct{ chart, want string }{
		"a chart of stamps":       {"maestro-agent", "the chart maestro-agent needs a stamp"},
		"no chart":                {"other", `unknown chart "other"`},
		"a chart without a image": {"frontend", "frontend.image.digest: is required for a deployment"},
	} {
		if _, err := h.Content(request(map[string]any{"chart": c.chart})); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", reason, err)
		}
	}
	with := map[string]any{"chart": "cluster", "cluster": "c1", "readyWithin": "1m"}
	if _, err := h.Run(t.Context(), request(with)); err == nil || !strings.Contains(err.Error(), "cluster c1: --kubeconfig-dir") {
		t.Errorf("no kubeconfig: %v", err)
	}
	for _, input := range []string{"clientIds", "objectIds"} {
		wrong := maps.Clone(with)
		wrong[input] = "[]"
		if _, err := h.Run(t.Context(), request(wrong)); err == nil || !strings.Contains(err.Error(), input+": is not a JSON object") {
			t.Errorf("wrong %s: %v", input, err)
		}
	}
}

// TestPipelinesSupplyIDs computes the values of each chart with those IDs of identities that its pipeline passes. Without an ID that the
// chart needs, the step would fail after the infrastructure exists.
func TestPipelinesSupplyIDs(t *testing.T) {
	read := must.Get(definition.Open(charttest.Root(t), charttest.Configuration(t).Schema))(t)
	checked := map[string]bool{}
	for _, target := range charttest.Targets(t) {
		for _, group := range read.Groups {
			for _, step := range group.Steps {
				given := target
				if step.With["clientIds"] == nil {
					given.ClientIDs = nil
				}
				if step.With["objectIds"] == nil {
					given.ObjectIDs = nil
				}
				if step.With["egressAddresses"] == nil {
					given.EgressAddresses = nil
				}
				name, _ := step.With["chart"].(string)
				found, err := values.Find(name, given)
				if err != nil {
					continue // not a chart of this target
				}
				computed, err := found.Values()
				if err != nil {
					t.Errorf("%s: %v", step.ID(), err)
				}
				if v, isService := computed.(*values.Values); isService && name == "monitor" && v.Flags["egress-addresses"] != strings.Join(target.EgressAddresses, ",") {
					t.Errorf("%s: monitor gets the addresses %q, not %q", step.ID(), v.Flags["egress-addresses"], target.EgressAddresses)
				}
				checked[name] = true
			}
		}
	}
	if !checked["cluster-service"] || !checked["maestro-server"] || !checked["maestro-agent"] || !checked["monitor"] {
		t.Errorf("only the charts %v were checked", checked)
	}
}

// TestErrorsHaveClasses checks the classes of errors that a rollout may repeat.
func TestErrorsHaveClasses(t *testing.T) {
	resource := schema.GroupResource{Resource: "deployments"}
	for want, err := range map[action.Class]error{
		action.Conflict:    apierrors.NewConflict(resource, "a", errors.New("changed")),
		action.Throttled:   apierrors.NewTooManyRequests("later", 1),
		action.Unavailable: apierrors.NewServiceUnavailable("starting"),
		action.Timeout:     &install.NotReadyError{Within: time.Minute},
		action.ClassFailed: &install.NotReadyError{},
	} {
		if class := action.ClassOf(classified(fmt.Errorf("upgrading: %w", err))); class != want {
			t.Errorf("%v has the class %s, not %s", err, class, want)
		}
	}
}

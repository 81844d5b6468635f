package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// decide plans a checkout with the records of earlier runs.
func decide(t *testing.T, dir string, records map[string]state.Record, actions map[string]action.Action, secretsDir string) map[string]plan.Decision {
	t.Helper()
	instances, _, err := rollouttest.Instances(dir, rollouttest.Region)
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Planner{Root: dir, Actions: actions, SecretsDir: secretsDir, Record: func(i *plan.Instance) (state.Record, bool) {
		r, found := records[i.ID]
		return r, found
	}}
	decisions := must.Get(p.All(instances))(t)
	byID := map[string]plan.Decision{}
	for _, d := range decisions {
		byID[d.ID] = d
	}
	return byID
}

var shellOnly = map[string]action.Action{"Shell": action.Shell{}}

// succeeded returns records as if all steps of a checkout had succeeded.
func succeeded(t *testing.T, dir string) map[string]state.Record {
	t.Helper()
	records := map[string]state.Record{}
	outputs := map[string]string{"address": "registry-s"}
	for range 2 { // the second pass has the inputs from outputs
		for id, d := range decide(t, dir, records, shellOnly, "") {
			content := d.Content
			records[id] = state.Record{Status: state.Succeeded, Content: &content}
			if id == "global/registry" {
				records[id] = state.Record{Status: state.Succeeded, Content: &content, Outputs: outputs}
			}
		}
	}
	return records
}

func TestVerdicts(t *testing.T) {
	unchanged := func(map[string]state.Record) {}
	for reason, c := range map[string]struct {
		change map[string]string
		edit   func(map[string]state.Record)
		step   string
		want   plan.Verdict
		reason string
	}{
		"nothing changed":           {nil, unchanged, "region/deploy", plan.Skip, ""},
		"never run":                 {nil, func(r map[string]state.Record) { delete(r, "region/deploy") }, "region/deploy", plan.Run, "it has not run yet"},
		"interrupted":               {nil, func(r map[string]state.Record) { r["region/deploy"] = state.Record{Status: state.Running} }, "region/deploy", plan.Run, "the last run was interrupted"},
		"interrupted in a rollback": {nil, func(r map[string]state.Record) { r["region/deploy"] = state.Record{Status: state.RollingBack} }, "region/deploy", plan.Run, "its rollback was interrupted"},
		"failed": {nil, func(r map[string]state.Record) {
			r["region/deploy"] = state.Record{Status: state.Failed, Error: "no space"}
		}, "region/deploy", plan.Run, "the last run failed: no space"},
		"rolled back": {nil, func(r map[string]state.Record) {
			r["region/deploy"] = state.Record{Status: state.RolledBack, Error: "gate"}
		}, "region/deploy", plan.Run, "the last run failed: gate"},
		"an input changed":           {map[string]string{rollouttest.RegionLayer: "frontend: {release: \"3\"}"}, unchanged, "region/deploy", plan.Run, "the input release changes from 1 to 3"},
		"another input changed":      {map[string]string{rollouttest.RegionLayer: "frontend: {release: \"3\"}"}, unchanged, "region/stores", plan.Skip, ""},
		"a file changed":             {map[string]string{"templates/stores": "x"}, unchanged, "region/stores", plan.Run, "templates has changed"},
		"a file appeared":            {map[string]string{"templates/other": ""}, unchanged, "region/stores", plan.Run, "templates has changed"},
		"the producer runs":          {map[string]string{"config/clouds/public/dev.yaml": "shared: x"}, unchanged, "region/deploy", plan.MayRun, "the input registry is an output of global/registry, which runs first"},
		"a stamp changed":            {map[string]string{rollouttest.SecondStamp: "managementCluster: {name: x}"}, unchanged, "stamp@2/agent", plan.Run, "the input name changes from m-west-2 to x"},
		"another stamp changed":      {map[string]string{rollouttest.SecondStamp: "managementCluster: {name: x}"}, unchanged, "stamp@1/agent", plan.Skip, ""},
		"the configuration lacks it": {map[string]string{rollouttest.RegionLayer: "frontend: {release: null}"}, unchanged, "region/deploy", plan.Blocked, "the input release needs the key frontend.release, which public/dev/west does not set"},
	} {
		t.Run(reason, func(t *testing.T) {
			dir := rollouttest.Write(t, nil)
			records := succeeded(t, dir)
			c.edit(records)
			for name, text := range c.change {
				rollouttest.Change(t, dir, name, text)
			}
			got := decide(t, dir, records, shellOnly, "")[c.step]
			if got.Verdict != c.want || !strings.Contains(strings.Join(got.Reasons, "; "), c.reason) {
				t.Errorf("%s: %q, want %s: %s", got.Verdict, got.Reasons, c.want, c.reason)
			}
		})
	}
}

func TestChangedDefinitionRunsTheStep(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	records := succeeded(t, dir)
	const text = `group: stamp
steps:
- name: agent
  action: Shell
  timeout: TIMEOUT
  inputs: {name: {configuration: managementCluster.name}}
  with: {command: [cp, SOURCE, "world/agent-${name}"], deletionCommand: [rm, -f, "world/agent-${name}"]}
  deletionGates: [{name: other, timeout: 1s, command: ["true"]}]
`
	for reason, c := range map[string]struct {
		timeout, source string
		want            plan.Verdict
	}{
		"other timeouts":     {"2m", "releases/1", plan.Skip},
		"another parameters": {"1m", "releases/3", plan.Run},
	} {
		rollouttest.Change(t, dir, rollouttest.StampPipeline, strings.NewReplacer("TIMEOUT", c.timeout, "SOURCE", c.source).Replace(text))
		if got := decide(t, dir, records, shellOnly, "")["stamp@1/agent"]; got.Verdict != c.want {
			t.Errorf("%s: %s", reason, got.Verdict)
		}
	}
}

func TestUnknownActionIsBlocked(t *testing.T) {
	for id, d := range decide(t, rollouttest.Write(t, nil), nil, nil, "") {
		if d.Verdict != plan.Blocked || !strings.Contains(d.Reasons[0], "the action Shell does not exist in this program yet") {
			t.Errorf("%s: %s %v", id, d.Verdict, d.Reasons)
		}
	}
}

// TestSecretsArePaths expects the path of a file in the arguments, and the reference in the content.
func TestSecretsArePaths(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{rollouttest.StampPipeline: `group: stamp
steps:
- name: agent
  action: Shell
  timeout: 1m
  inputs: {key: {secret: frontend.key}}
  with: {command: [cat, "${key}"]}
`})
	if d := decide(t, dir, nil, shellOnly, "")["stamp@1/agent"]; d.Verdict != plan.Blocked {
		t.Errorf("without a folder: %s", d.Verdict)
	}
	secrets := t.TempDir()
	if d := decide(t, dir, nil, shellOnly, secrets)["stamp@1/agent"]; d.Verdict != plan.Blocked || !strings.Contains(d.Reasons[0], "the input key needs the secret service/frontend-key, which has no file") {
		t.Errorf("without the file: %s %v", d.Verdict, d.Reasons)
	}
	rollouttest.Change(t, secrets, "service/frontend-key", "hunter2")
	d := decide(t, dir, nil, shellOnly, secrets)["stamp@1/agent"]
	with, _, err := d.Arguments(d.Content.Inputs, secrets)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]any{"command": []any{"cat", secrets + "/service/frontend-key"}}, with); diff != "" || d.Content.Inputs["key"] != "service/frontend-key" || d.Verdict != plan.Run {
		t.Errorf("%s: inputs %v, arguments (-want +got):\n%s", d.Verdict, d.Content.Inputs, diff)
	}
}

// TestEnvironmentsHaveOneValue sets a key, which the schema allows for environments, to a text that depends on the region.
func TestEnvironmentsHaveOneValue(t *testing.T) {
	dir := rollouttest.Write(t, map[string]string{"config/clouds/public/dev.yaml": "shared: \"s-${region}\"\n"})
	_, _, err := rollouttest.Instances(dir, rollouttest.Region)
	if err == nil || !strings.Contains(err.Error(), "global/registry: the input shared needs one value for the environment, and the key shared differs between public/dev/west and public/dev/east") {
		t.Errorf("got %v", err)
	}
}

func TestLosses(t *testing.T) {
	dir := rollouttest.Write(t, nil)
	instances, configuration, err := rollouttest.Instances(dir, rollouttest.Region)
	if err != nil {
		t.Fatal(err)
	}
	before := plan.Stores(configuration, instances)
	want := map[string]map[string]string{"public/dev/west": {"account": "a-west"}, "public/dev/west/1": {"managementCluster.name": "m-west-1"}, "public/dev/west/2": {"managementCluster.name": "m-west-2"}}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Errorf("stores (-want +got):\n%s", diff)
	}
	after := map[string]map[string]string{"public/dev/west": {"account": "b"}, "public/dev/west/1": {}, "public/dev/west/3": {"managementCluster.name": "new"}}
	got := plan.Losses(before, after)
	if diff := cmp.Diff([]plan.Loss{{"public/dev/west", "account", "a-west", "b"}, {"public/dev/west/1", "managementCluster.name", "m-west-1", "nothing"}, {Target: "public/dev/west/2"}}, got); diff != "" {
		t.Errorf("losses (-want +got):\n%s", diff)
	}
}

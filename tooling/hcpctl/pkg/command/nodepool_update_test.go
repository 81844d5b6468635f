package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestNodePoolUpdate changes a node pool with flags. A list in the request is the whole list, and the autoscaler and a number of nodes exclude each
// other.
func TestNodePoolUpdate(t *testing.T) {
	label := func(key, value string) any { return map[string]any{"key": key, "value": value} }
	taint := func(key, value, effect string) any {
		return map[string]any{"key": key, "value": value, "effect": effect}
	}
	for name, tc := range map[string]struct {
		args string
		want map[string]any
	}{
		"a number of nodes":       {"--replicas 5", map[string]any{"replicas": 5.0}},
		"the autoscaler":          {"--min 3 --max 10", map[string]any{"autoScaling": map[string]any{"min": 3.0, "max": 10.0}, "replicas": nil}},
		"a version":               {"--version 4.20.9", map[string]any{"version": map[string]any{"id": "4.20.9"}}},
		"repair and drain":        {"--auto-repair=false --drain-minutes 30", map[string]any{"autoRepair": false, "nodeDrainTimeoutMinutes": 30.0}},
		"a new label":             {"--label tier=gold", map[string]any{"labels": []any{label("stage", "test"), label("team", "x"), label("tier", "gold")}}},
		"another value":           {"--label stage=prod", map[string]any{"labels": []any{label("stage", "prod"), label("team", "x")}}},
		"labels have a case":      {"--label Stage=prod", map[string]any{"labels": []any{label("stage", "test"), label("team", "x"), label("Stage", "prod")}}},
		"a removed label":         {"--label stage- --label absent-", map[string]any{"labels": []any{label("team", "x")}}},
		"no label":                {"--label stage- --label team-", map[string]any{"labels": []any{}}},
		"a taint":                 {"--taint dedicated=cpu:NoSchedule", map[string]any{"taints": []any{taint("dedicated", "cpu", "NoSchedule")}}},
		"a taint with the effect": {"--taint dedicated=gpu:NoExecute", map[string]any{"taints": []any{taint("dedicated", "gpu", "NoSchedule"), taint("dedicated", "gpu", "NoExecute")}}},
		"a taint without a value": {"--taint a.b/c:NoExecute", map[string]any{"taints": []any{taint("dedicated", "gpu", "NoSchedule"), map[string]any{"key": "a.b/c", "effect": "NoExecute"}}}},
		"a removed taint":         {"--taint dedicated:NoSchedule-", map[string]any{"taints": []any{}}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAzure(t)
			mustRun(t, a, "cluster", "create", "c", "--no-wait")
			mustRun(t, a, "nodepool", "create", "c", "workers", "--no-wait")
			properties := a.stored(t, "/workers")["properties"].(map[string]any)
			properties["labels"] = []any{label("stage", "test"), label("team", "x")}
			properties["taints"] = []any{taint("dedicated", "gpu", "NoSchedule")}
			mustRun(t, a, append([]string{"nodepool", "update", "c", "workers"}, strings.Fields(tc.args)...)...)
			if diff := cmp.Diff([]map[string]any{{"properties": tc.want}}, a.patches); diff != "" {
				t.Errorf("the request (-want +got):\n%s", diff)
			}
		})
	}
	for args, want := range map[string]string{
		"":                                  "at least one of the flags",
		"--replicas 1 -f x.yaml":            "none of the others can be",
		"--replicas 1 --min 1 --max 2":      "none of the others can be",
		"--min 1":                           "missing [max]",
		"--label a":                         `invalid label "a"`,
		"--label a=1 --label a-":            "more than once",
		"--taint a=b":                       `invalid taint "a=b"`,
		"--taint a=b:NoSchedule-":           "invalid taint",
		"--taint a=b:X --taint a=c:X":       "more than once",
		"--taint :NoSchedule":               "invalid taint",
		"--drain-minutes soon --replicas 1": "invalid argument",
	} {
		_, _, err := newAzure(t).run(t, append([]string{"nodepool", "update", "c", "workers"}, strings.Fields(args)...)...)
		if ExitCode(err) != exitUsage || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}

// TestScaleEndsAutoscaling checks that both commands that set the number of nodes send the same request for a node pool with the autoscaler.
func TestScaleEndsAutoscaling(t *testing.T) {
	for _, verb := range []string{"scale", "update"} {
		a := newAzure(t)
		mustRun(t, a, "cluster", "create", "c", "--no-wait")
		mustRun(t, a, "nodepool", "create", "c", "workers", "--no-wait")
		properties := a.stored(t, "/workers")["properties"].(map[string]any)
		delete(properties, "replicas")
		properties["autoScaling"] = map[string]any{"min": 3, "max": 10}
		mustRun(t, a, "nodepool", verb, "c", "workers", "--replicas", "5")
		if diff := cmp.Diff([]map[string]any{{"properties": map[string]any{"replicas": 5.0, "autoScaling": nil}}}, a.patches); diff != "" {
			t.Errorf("%s: the request (-want +got):\n%s", verb, diff)
		}
	}
}

// TestEveryPropertyIsReachable changes all writable properties of each kind with --file.
func TestEveryPropertyIsReachable(t *testing.T) {
	for _, k := range []kind{clusters(), nodePools(), externalAuths()} {
		t.Run(k.command, func(t *testing.T) {
			patch := map[string]any{}
			for _, entry := range k.fields() {
				value, isLeaf := map[string]any{"string": "value", "integer": 1.0, "boolean": true, "strings": []any{"value"}, "string map": map[string]any{"name": "value"}}[entry.Type]
				if isLeaf && !entry.ReadOnly && !entry.Implied {
					set(patch, strings.Split(entry.Path, "."), value)
				}
			}
			content := must.Get(json.Marshal(patch))(t)
			file := filepath.Join(t.TempDir(), "change.yaml")
			must.Do(t, os.WriteFile(file, content, 0o600))
			a, names := newAzure(t), []string{"a", "b"}[:len(k.names)]
			mustRun(t, a, "cluster", "create", "a", "--no-wait")
			mustRun(t, a, "nodepool", "create", "a", "b", "--no-wait")
			mustRun(t, a, "externalauth", "create", "a", "b", "--issuer", "https://login.example.com", "--audience", "api", "--no-wait")
			mustRun(t, a, append(append([]string{k.command, "update"}, names...), "-f", file)...)
			if diff := cmp.Diff([]map[string]any{patch}, a.patches); diff != "" || len(patch) == 0 {
				t.Errorf("the request (-want +got):\n%s", diff)
			}
		})
	}
}

// set sets a value in an object by its path, with [] after lists and [*] after maps, which get one element.
func set(object map[string]any, path []string, value any) {
	name, isList := strings.CutSuffix(path[0], "[]")
	name, isMap := strings.CutSuffix(name, "[*]")
	if len(path) == 1 {
		object[name] = value
		return
	}
	child := map[string]any{}
	switch existing := object[name].(type) {
	case nil:
		object[name] = child
		if isList {
			object[name] = []any{child}
		}
	case []any:
		child = existing[0].(map[string]any)
	case map[string]any:
		child = existing
	}
	if isMap {
		path = append([]string{"name"}, path[1:]...)
		set(child, path, value)
		return
	}
	set(child, path[1:], value)
}

package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

const configurationSchema = `{
  "type": "object", "additionalProperties": false,
  "properties": {
    "environment": {"type": "string", "x-computed": true},
    "zone": {"type": "string"},
    "registry": {"type": "string", "x-layer": "environment"},
    "frontend": {"type": "object", "additionalProperties": false, "properties": {
      "key": {"$ref": "#/$defs/secretReference"}, "image": {"type": "string", "x-deploy": true}}},
    "managementCluster": {"type": "object", "additionalProperties": false, "x-layer": "stamp", "properties": {
      "name": {"type": "string"}, "agent": {"type": "object", "properties": {"image": {"$ref": "#/$defs/image"}}}}},
    "admin": {"type": "object", "properties": {"image": {"$ref": "#/$defs/image"}}}
  },
  "$defs": {"image": {"type": "object", "properties": {"repository": {"type": "string"}}}, "secretReference": {"type": "object", "additionalProperties": false, "properties": {"vault": {"type": "string"}, "secret": {"type": "string"}}}}
}`

const topologyText = `groups:
- name: global
  scope: environment
  purpose: What all regions share.
  pipeline: global/pipeline.yaml
  children:
  - {name: region, scope: region, purpose: One region and its services., pipeline: region/pipeline.yaml, dependsOn: []}
  - {name: stamp, scope: stamp, purpose: One management cluster., pipeline: stamp/pipeline.yaml, dependsOn: [region]}
`

const globalText = `group: global
steps:
- name: registry
  action: Shell
  timeout: 1m
  inputs: {registry: {configuration: registry}}
  outputs: [address]
  with: {command: [create, "${registry}"]}
`

const regionText = `group: region
steps:
- name: stores
  action: Shell
  timeout: 1m
  inputs: {key: {secret: frontend.key}, zone: {configuration: zone}}
  files: [region]
  with: {command: [create, "--key=${key}", "${zone}"]}
- name: deploy
  action: Shell
  dependsOn: [stores]
  timeout: 1m
  inputs: {registry: {output: {step: global/registry, name: address}}}
  with: {command: [deploy, "${registry}"], rollbackCommand: [deploy, "${registry}"]}
  gates: [{name: ready, timeout: 1m, http: {url: "https://${registry}/readyz", status: 200}}]
  rollback: true
`

const stampText = `group: stamp
steps:
- name: agent
  action: Shell
  timeout: 1m
  inputs: {name: {configuration: managementCluster.name}}
  with: {command: [deploy, "${name}"]}
`

// stampStep is the step of the pipeline stamp without its name.
var stampStep = stampText[strings.Index(stampText, "  action"):]

// helmStep returns a step that can stand in its place.
func helmStep(timeout, rollback string) string {
	return "  action: Helm\n  timeout: " + timeout + "\n  with: {cluster: c, chart: frontend, readyWithin: 4m}\n  " + rollback + "\n"
}

// mirrorStep returns a step that mirrors images and can stand in its place.
func mirrorStep(with string) string {
	return "  action: ImageMirror\n  timeout: 1m\n  inputs: {name: {configuration: managementCluster.name}}\n  with: {target: \"${name}\", " + with + "}\n"
}

// checkout writes the files of a small checkout. Each edit replaces a text in one of them, or removes the file.
func checkout(t *testing.T, edits ...[3]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{TopologyFile: topologyText, "global/pipeline.yaml": globalText, "region/pipeline.yaml": regionText, "stamp/pipeline.yaml": stampText}
	for _, edit := range edits {
		if !strings.Contains(files[edit[0]], edit[1]) {
			t.Fatalf("%s does not contain %q", edit[0], edit[1])
		}
		files[edit[0]] = strings.Replace(files[edit[0]], edit[1], edit[2], 1)
	}
	for name, text := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	}
	return dir
}

func open(t *testing.T, dir string) (*Topology, error) {
	t.Helper()
	s := must.Get(schema.Parse([]byte(configurationSchema)))(t)
	return Open(dir, s)
}

func TestOpen(t *testing.T) {
	topology := must.Get(open(t, checkout(t)))(t)
	got := map[string][]string{}
	for _, g := range topology.Groups {
		for _, s := range g.Steps {
			got[s.ID()] = nil
			for _, before := range topology.Before(s) {
				got[s.ID()] = append(got[s.ID()], before.ID())
			}
		}
	}
	want := map[string][]string{
		"global/registry": nil,
		"region/stores":   {"global/registry"},
		"region/deploy":   {"global/registry", "region/stores"},
		"stamp/agent":     {"global/registry", "region/stores", "region/deploy"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("dependencies (-want +got):\n%s", diff)
	}
}

// TestMistakesAreReported makes one mistake at a time and expects an error with the file, the line and the path.
func TestMistakesAreReported(t *testing.T) {
	const topologyYAML, global, region, stamp = TopologyFile, "global/pipeline.yaml", "region/pipeline.yaml", "stamp/pipeline.yaml"
	for reason, c := range map[string]struct {
		edit [3]string
		want string
	}{
		"an unknown key":                 {[3]string{topologyYAML, "purpose: What", "porpose: What"}, topologyYAML + ":4: groups.0.porpose: unknown key; did you mean purpose?"},
		"a missing key":                  {[3]string{region, "  timeout: 1m\n  inputs: {key", "  inputs: {key"}, "region/pipeline.yaml:3: steps.0.timeout: is required"},
		"an unknown scope":               {[3]string{topologyYAML, "scope: stamp", "scope: cell"}, topologyYAML + ":8: groups.0.children.1.scope: value must be one of"},
		"a group twice":                  {[3]string{topologyYAML, "name: stamp", "name: region"}, topologyYAML + ":8: groups.0.children.1.name: the group region exists already"},
		"a missing pipeline":             {[3]string{topologyYAML, "stamp/pipeline.yaml", "cell/pipeline.yaml"}, topologyYAML + ":8: groups.0.children.1.pipeline: there is no file cell/pipeline.yaml"},
		"a pipeline of another group":    {[3]string{stamp, "group: stamp", "group: cell"}, "stamp/pipeline.yaml:1: group: is cell"},
		"an unknown group":               {[3]string{topologyYAML, "dependsOn: [region]", "dependsOn: [cell]"}, topologyYAML + ":8: groups.0.children.1.dependsOn.0: there is no group cell"},
		"a wide group after narrow ones": {[3]string{topologyYAML, "pipeline: global/pipeline.yaml", "pipeline: global/pipeline.yaml\n  dependsOn: [region]"}, "groups.0.dependsOn.0: a group of an environment cannot depend on region"},
		"a parent with a narrower scope": {[3]string{topologyYAML, "scope: environment", "scope: stamp"}, "groups.0.children.0.scope: is region; the parent global has the narrower scope stamp"},
		"an unknown step":                {[3]string{region, "dependsOn: [stores]", "dependsOn: [shops]"}, "region/pipeline.yaml:11: steps.1.dependsOn.0: there is no step shops"},
		"a step twice":                   {[3]string{region, "name: deploy", "name: stores"}, "region/pipeline.yaml:9: steps.1.name: the step stores exists already"},
		"an unknown action":              {[3]string{stamp, "action: Shell", "action: Bash"}, "stamp/pipeline.yaml:4: steps.0.action: value must be one of"},
		"a shell string":                 {[3]string{stamp, "command: [deploy, \"${name}\"]", "command: \"deploy ${name}\""}, "stamp/pipeline.yaml:7: steps.0.with.command: is a string; it must be a list"},
		"an unknown parameter":           {[3]string{stamp, "command: [", "shell: sh, command: ["}, "stamp/pipeline.yaml:7: steps.0.with.shell: unknown key"},
		"an unknown error class":         {[3]string{stamp, "  with:", "  retry: {errors: [invalid], attempts: 3, pause: 1s}\n  with:"}, "steps.0.retry.errors.0: value must be one of"},
		"an unknown configuration key":   {[3]string{region, "configuration: zone", "configuration: zones"}, "region/pipeline.yaml:6: steps.0.inputs.zone.configuration: the configuration has no key zones"},
		"a secret as a value":            {[3]string{region, "secret: frontend.key", "configuration: frontend.key"}, "steps.0.inputs.key.configuration: frontend.key is a secret; use secret instead of configuration"},
		"a part of a secret":             {[3]string{region, "secret: frontend.key", "configuration: frontend.key.secret"}, "is a part of a secret; use the key frontend.key as secret"},
		"a map with a secret":            {[3]string{region, "configuration: zone", "configuration: frontend"}, "frontend contains secrets; use single keys"},
		"a value as a secret":            {[3]string{region, "secret: frontend.key", "secret: zone"}, "zone is not a secret; use configuration instead of secret"},
		"a secret in the file":           {[3]string{region, "configuration: zone", "value: \"postgres://admin:hunter2@host/db\""}, "region/pipeline.yaml:6: steps.0.inputs.zone.value: has the form of a secret"},
		"a key of a region for all":      {[3]string{global, "configuration: registry", "configuration: zone"}, "steps.0.inputs.registry.configuration: zone can differ within the scope of the group, which is environment"},
		"a key of a stamp for a region":  {[3]string{region, "configuration: zone", "configuration: managementCluster.name"}, "managementCluster.name can differ within the scope of the group, which is region"},
		"an unknown output":              {[3]string{region, "name: address", "name: addresses"}, "region/pipeline.yaml:13: steps.1.inputs.registry.output.name: the step global/registry has no output addresses; it has address"},
		"an output of a narrower scope":  {[3]string{region, "step: global/registry, name: address", "step: stamp/agent, name: address"}, "the step stamp/agent has no output address; it has none"},
		"an unknown input":               {[3]string{stamp, "\"${name}\"", "\"${nome}\""}, "stamp/pipeline.yaml:7: steps.0.with.command.1: there is no input nome; inputs are name"},
		"an input without use":           {[3]string{stamp, ", \"${name}\"", ""}, "stamp/pipeline.yaml:6: steps.0.inputs.name: is not used in with, gates or deletionGates"},
		"an input with two sources":      {[3]string{stamp, "{configuration: managementCluster.name}", "{configuration: managementCluster.name, value: a}"}, "steps.0.inputs.name: maxProperties"},
		"a missing file":                 {[3]string{region, "files: [region]", "files: [regions]"}, "region/pipeline.yaml:7: steps.0.files.0: there is no file regions in the checkout"},
		"a file outside":                 {[3]string{region, "files: [region]", "files: [region/../../etc]"}, "steps.0.files.0: there is no file region/../../etc in the checkout"},
		"a rollback without a command":   {[3]string{region, ", rollbackCommand: [deploy, \"${registry}\"]", ""}, "steps.1.rollback: needs with.rollbackCommand"},
		"a chart without a rollback":     {[3]string{stamp, stampStep, helmStep("15m", "rollback: true")}, "steps.0.rollback: needs the output content"},
		"too little time for a rollback": {[3]string{stamp, stampStep, helmStep("15m", "rollback: false")}, "with.readyWithin: two hooks, an upgrade and its rollback need four times 4m0s; the timeout is 15m0s"},
		"images from nowhere":            {[3]string{stamp, stampStep, mirrorStep(`source: a.example`)}, "steps.0.with.components: is required"},
		"components without a source":    {[3]string{stamp, stampStep, mirrorStep(`components: [managementCluster.agent]`)}, "steps.0.with: properties 'source' required, if 'components' exists"},
		"a list without mirrors":         {[3]string{stamp, stampStep, mirrorStep(`releaseList: "[]"`)}, "steps.0.with: properties 'mirrors' required, if 'releaseList' exists"},
		"mirrors of no release":          {[3]string{stamp, stampStep, mirrorStep(`images: [{image: x, target: y}], mirrors: [{source: a.example/b, target: c}]`)}, "steps.0.with.releases: is required"},
		"a component without an image":   {[3]string{stamp, stampStep, mirrorStep(`source: a.example, components: [managementCluster]`)}, "stamp/pipeline.yaml:7: steps.0.with.components.0: the configuration has no image managementCluster.image"},
		"a component of another scope":   {[3]string{stamp, stampStep, mirrorStep(`source: a.example, components: [admin]`)}, "admin belongs to regions, and the scope of the group is stamp"},
		"a value as credentials":         {[3]string{stamp, stampStep, mirrorStep(`images: [{image: x, target: y}], targetCredentials: "${name}"`)}, "steps.0.with.targetCredentials: must be one input with a secret"},
		"a file as credentials":          {[3]string{stamp, stampStep, mirrorStep(`images: [{image: x, target: y}], sourceCredentials: /config.json`)}, "steps.0.with.sourceCredentials: must be one input with a secret"},
		"outputs of mirrored images":     {[3]string{stamp, stampStep, mirrorStep("images: [{image: x, target: y}]") + "  outputs: [content]\n"}, "steps.0.outputs: is not allowed"},
		"an unknown input of a deletion": {[3]string{stamp, stampStep, stampStep + "  deletionGates: [{name: empty, timeout: 1s, command: [\"${nome}\"]}]\n"}, "steps.0.deletionGates.0.command.0: there is no input nome"},
		"a deletion of an environment":   {[3]string{global, "\"${registry}\"]}\n", "\"${registry}\"]}\n  deletionGates: [{name: empty, timeout: 1s, command: [\"true\"]}]\n"}, "steps.0.deletionGates: only regions and stamps are deleted; the scope of the group is environment"},
		"a gate without a check":         {[3]string{region, ", http: {url: \"https://${registry}/readyz\", status: 200}", ""}, "steps.1.gates.0: minProperties"},
		"a cycle in a pipeline":          {[3]string{region, "  files: [region]", "  dependsOn: [deploy]\n  files: [region]"}, "steps wait for each other: region/"},
		"a cycle of groups":              {[3]string{topologyYAML, "dependsOn: []", "dependsOn: [stamp]"}, "steps wait for each other: "},
		"an alias":                       {[3]string{stamp, "name: agent", "name: &a agent"}, "anchors and aliases are not allowed"},
	} {
		t.Run(reason, func(t *testing.T) {
			_, err := open(t, checkout(t, c.edit))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes a secret: %v", err)
			}
		})
	}
}

// Package rollouttest writes a small checkout with a configuration, a topology and pipelines for tests.
package rollouttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
)

// Region is the region of the checkout. It has the stamps 1 and 2.
const Region = "public/dev/west"

// The files that tests change.
const (
	DevLayer       = "config/clouds/public/dev.yaml"
	RegionLayer    = "config/clouds/public/dev/west.yaml"
	SecondStamp    = "config/clouds/public/dev/west/2.yaml"
	GlobalPipeline = "global/pipeline.yaml"
	RegionPipeline = "region/pipeline.yaml"
	StampPipeline  = "stamp/pipeline.yaml"
)

// files is the checkout. The steps copy files into the folder world, which is the external state. A release is healthy if its file
// contains that word.
var files = map[string]string{
	"config/config.schema.json": `{"type": "object", "additionalProperties": false, "required": ["account", "shared", "frontend"], "properties": {
		"cloud": {"type": "string", "x-computed": true}, "environment": {"type": "string", "x-computed": true},
		"region": {"type": "string", "x-computed": true}, "stamp": {"type": "string", "x-computed": true},
		"account": {"type": "string", "x-data-store": true},
		"shared": {"type": "string", "x-layer": "environment"},
		"production": {"type": "boolean", "x-layer": "environment"},
		"pipelines": {"type": "object", "additionalProperties": false, "properties": {"without": {"type": "array", "items": {"type": "string"}, "x-layer": "environment"}}},
		"frontend": {"type": "object", "additionalProperties": false, "properties": {
			"release": {"type": "string", "x-deploy": true}, "key": {"$ref": "#/$defs/secretReference"}}},
		"managementCluster": {"type": "object", "additionalProperties": false, "properties": {"name": {"type": "string", "x-data-store": true}}, "x-layer": "stamp"},
		"managementClusters": {"type": "array", "items": {"type": "object"}, "x-computed": true}},
		"$defs": {"secretReference": {"type": "object", "additionalProperties": false, "required": ["vault", "secret"],
			"properties": {"vault": {"type": "string"}, "secret": {"type": "string"}}}}}`,
	"config/rules.yaml":                    "rules: []\n",
	"config/defaults.yaml":                 "account: \"a-${region}\"\nshared: s\nfrontend: {release: \"1\", key: {vault: service, secret: frontend-key}}\nmanagementCluster: {name: \"m-${region}-${stamp}\"}\n",
	"config/clouds/public.yaml":            "",
	DevLayer:                               "",
	RegionLayer:                            "",
	"config/clouds/public/dev/west/1.yaml": "",
	SecondStamp:                            "",
	"config/clouds/public/dev/east.yaml":   "",
	"config/clouds/public/dev/east/1.yaml": "",
	definition.TopologyFile: `groups:
- name: global
  scope: environment
  purpose: What all regions share.
  pipeline: global/pipeline.yaml
  children:
  - name: stamp
    scope: stamp
    purpose: A management cluster.
    pipeline: stamp/pipeline.yaml
  - name: region
    scope: region
    purpose: The services of a region.
    pipeline: region/pipeline.yaml
    dependsOn: [stamp]
`,
	GlobalPipeline: `group: global
steps:
- name: registry
  action: Shell
  timeout: 1m
  inputs: {shared: {configuration: shared}}
  outputs: [address]
  with: {command: [printf, '{"address": "registry-%s"}', "${shared}"]}
`,
	StampPipeline: `group: stamp
steps:
- name: agent
  action: Shell
  timeout: 1m
  inputs: {name: {configuration: managementCluster.name}}
  with: {command: [cp, releases/1, "world/agent-${name}"], deletionCommand: [rm, -f, "world/agent-${name}"]}
  deletionGates: [{name: empty, timeout: 1s, command: [test, "!", -e, "world/clusters-${name}"]}]
`,
	RegionPipeline: `group: region
steps:
- name: stores
  action: Shell
  timeout: 1m
  inputs: {account: {configuration: account}}
  files: [templates]
  with: {command: [cp, templates/stores, "world/${account}"], deletionCommand: [rm, -f, "world/${account}"]}
- name: deploy
  action: Shell
  dependsOn: [stores]
  timeout: 1m
  inputs: {release: {configuration: frontend.release}, registry: {output: {step: global/registry, name: address}}}
  with: {command: [cp, "releases/${release}", world/frontend], environment: {REGISTRY: "${registry}"}, rollbackCommand: [cp, "releases/${release}", world/frontend], deletionCommand: [rm, -f, world/frontend]}
  gates: [{name: healthy, timeout: 1s, command: [grep, -q, healthy, world/frontend]}]
  rollback: true
`,
	"templates/stores": "tables\n",
	"releases/1":       "healthy 1\n",
	"releases/2":       "broken 2\n",
	"releases/3":       "healthy 3\n",
	"world/README":     "the external state\n",
}

// Write writes the checkout into a new folder, with some files replaced, and returns the folder.
func Write(t *testing.T, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []map[string]string{files, changed} {
		for name, text := range part {
			Change(t, dir, name, text)
		}
	}
	return dir
}

// Change writes one file of a checkout.
func Change(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// World returns the external state: the content of each file in the folder world.
func World(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "world"))
	if err != nil {
		t.Fatal(err)
	}
	world := map[string]string{}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(dir, "world", entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		world[entry.Name()] = string(text)
	}
	return world
}

// Instances returns the instances of the steps for a region of a checkout.
func Instances(dir, region string) ([]*plan.Instance, *deployment.Configuration, error) {
	configuration, err := deployment.Open(filepath.Join(dir, "config"))
	if err != nil {
		return nil, nil, err
	}
	topology, err := definition.Open(dir, configuration.Schema)
	if err != nil {
		return nil, nil, err
	}
	target, err := layer.ParseTarget(region)
	if err != nil {
		return nil, nil, err
	}
	instances, err := plan.Instances(topology, configuration, target)
	return instances, configuration, err
}

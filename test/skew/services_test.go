package skew

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// step is what a rollout replaces together: the processes of a service group of the topology.
type step struct {
	group string
	// processes are those of the region, and programs their programs.
	processes, programs []string
	// migrates reports whether the group migrates its database before its processes are replaced.
	migrates bool
}

// rollout is the order in which a rollout replaces the services. A rollback has the opposite order.
var rollout = []step{
	{group: "hypershift", processes: []string{"mgmt-1-egress-proxy", "mgmt-1-hypershift-runtime"}, programs: []string{"egress-proxy", "hypershift-runtime"}},
	{group: "maestro-agent", processes: []string{"mgmt-1-maestro-agent"}, programs: []string{"maestro-agent"}},
	{group: "maestro-server", processes: []string{"maestro-server"}, programs: []string{"maestro-server"}, migrates: true},
	{group: "cluster-service", processes: []string{"cluster-service"}, programs: []string{"cluster-service"}, migrates: true},
	{group: "admin", processes: []string{"admin"}, programs: []string{"admin"}},
	{group: "backend", processes: []string{"backend"}, programs: []string{"backend"}},
	{group: "frontend", processes: []string{"frontend"}, programs: []string{"frontend"}},
	{group: "management-audit", processes: []string{"mgmt-1-management-audit"}, programs: []string{"management-audit"}},
}

// programs returns the programs of all steps.
func programs() []string {
	var all []string
	for _, s := range rollout {
		all = append(all, s.programs...)
	}
	return all
}

// with returns the programs of all processes that a rollout replaces, for a region that starts with the programs in dir.
func with(dir string) map[string]string {
	all := map[string]string{}
	for _, s := range rollout {
		for _, process := range s.processes {
			all[process] = dir
		}
	}
	return all
}

// notInTopology are groups without a pipeline.
var notInTopology = []string{"management-audit"}

// TestOrderIsThatOfTheTopology checks that the steps contain every service group with programs of ours, in an order that the topology allows.
func TestOrderIsThatOfTheTopology(t *testing.T) {
	source := must.Get(local.FindSource())(t)
	text := must.Get(os.ReadFile(filepath.Join(source, "dev-infrastructure", "topology.yaml")))(t)
	type group struct {
		Name      string   `json:"name"`
		DependsOn []string `json:"dependsOn"`
		Children  []group  `json:"children"`
	}
	var topology struct {
		Groups []group `json:"groups"`
	}
	must.Do(t, yaml.Unmarshal(text, &topology))
	needs := map[string][]string{}
	var read func(groups []group)
	read = func(groups []group) {
		for _, g := range groups {
			needs[g.Name] = g.DependsOn
			read(g.Children)
		}
	}
	read(topology.Groups)
	// Groups between two of the steps, such as registration, pass on the order.
	var before func(name string) []string
	before = func(name string) []string {
		var all []string
		for _, need := range needs[name] {
			all = append(append(all, need), before(need)...)
		}
		return all
	}
	var done []string
	for _, s := range rollout {
		if _, ok := needs[s.group]; !ok && !slices.Contains(notInTopology, s.group) {
			t.Errorf("the topology has no group %s", s.group)
		}
		for _, need := range before(s.group) {
			if slices.ContainsFunc(rollout, func(s step) bool { return s.group == need }) && !slices.Contains(done, need) {
				t.Errorf("%s is replaced before %s", s.group, need)
			}
		}
		done = append(done, s.group)
	}
	for _, name := range []string{"hypershift", "maestro-agent", "maestro-server", "cluster-service", "admin", "backend", "frontend"} {
		if !slices.Contains(done, name) {
			t.Errorf("no step replaces %s", name)
		}
	}
}

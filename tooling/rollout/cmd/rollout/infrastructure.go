package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/infrastructure"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
)

// infrastructure returns the action Infrastructure with the values of the flags.
func (e *environment) infrastructure(root string, configuration *deployment.Configuration, instances []*plan.Instance) (action.Action, error) {
	a := infrastructure.Infrastructure{Configuration: configuration, Adopt: e.adopt, Allowed: map[string][]string{}, Options: tofu.ScopeOptions{
		Templates: filepath.Join(root, "dev-infrastructure", "azure"),
		Programs:  cmp.Or(e.openTofu, filepath.Join(root, ".build", "third-party", "opentofu")),
		Dir:       cmp.Or(e.infrastructureDir, filepath.Join(e.stateDir, "infrastructure")),
	}}
	for _, name := range slices.Sorted(maps.Keys(e.mqttAuthorities)) {
		text, err := os.ReadFile(e.mqttAuthorities[name])
		if err != nil {
			return nil, fmt.Errorf("--mqtt-authority %s: %w", name, err)
		}
		if !strings.Contains(string(text), "-----BEGIN CERTIFICATE-----") {
			return nil, fmt.Errorf("--mqtt-authority %s: %s has no certificate", name, e.mqttAuthorities[name])
		}
		if a.Authorities == nil {
			a.Authorities = map[string]string{}
		}
		a.Authorities[name] = string(text)
	}
	for _, allowed := range e.allowDeletion {
		step, address, found := strings.Cut(allowed, ":")
		known := slices.ContainsFunc(instances, func(i *plan.Instance) bool { return i.ID == step && i.Step.Action == "Infrastructure" })
		if !found || address == "" || !known {
			return nil, fmt.Errorf("--allow-deletion %s: use STEP:ADDRESS with a step that applies infrastructure", allowed)
		}
		a.Allowed[step] = append(a.Allowed[step], address)
	}
	return a, nil
}

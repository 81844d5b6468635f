package plan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
)

func TestStepsAreLeftOut(t *testing.T) {
	for without, want := range map[string][]string{
		"[]":                     nil,
		"[region/stores]":        {"region/stores"},
		"[stamp]":                {"stamp@1/agent", "stamp@2/agent"},
		"[stamp, region/stores]": {"region/stores", "stamp@1/agent", "stamp@2/agent"},
		"[global, region]":       {"global/registry", "region/deploy", "region/stores"},
	} {
		dir := rollouttest.Write(t, map[string]string{rollouttest.DevLayer: "pipelines: {without: " + without + "}\n"})
		var got []string
		for id, d := range decide(t, dir, nil, shellOnly, "") {
			if d.Verdict == plan.LeftOut {
				got = append(got, id)
			}
			if (d.Verdict == plan.LeftOut) != slices.Contains(d.Reasons, "the key pipelines.without names it") {
				t.Errorf("%s: %s is %s: %v", without, id, d.Verdict, d.Reasons)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s leaves out %v, not %v", without, got, want)
		}
	}
}

func TestEntriesWithMistakes(t *testing.T) {
	for without, want := range map[string]string{
		"[region, cell]":    "config/clouds/public/dev.yaml:1: pipelines.without.1: there is no group and no step cell",
		"[region/store]":    "pipelines.without.0: there is no group and no step region/store",
		"[global]":          "config/clouds/public/dev.yaml:1: pipelines.without: leaves out global/registry, whose output is the input registry of region/deploy",
		"[global/registry]": "pipelines.without: leaves out global/registry, whose output is the input registry of region/deploy",
	} {
		dir := rollouttest.Write(t, map[string]string{rollouttest.DevLayer: "pipelines: {without: " + without + "}\n"})
		if _, _, err := rollouttest.Instances(dir, rollouttest.Region); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v\nwant %s", without, err, want)
		}
	}
}

// TestStoresOfStepsThatAreLeftOutAreNotLost leaves out all steps of a target.
func TestStoresOfStepsThatAreLeftOutAreNotLost(t *testing.T) {
	stores := func(layer string) map[string]map[string]string {
		instances, configuration, err := rollouttest.Instances(rollouttest.Write(t, map[string]string{rollouttest.DevLayer: layer}), rollouttest.Region)
		if err != nil {
			t.Fatal(err)
		}
		return plan.Stores(configuration, instances)
	}
	if losses := plan.Losses(stores(""), stores("pipelines: {without: [stamp]}\n")); len(losses) > 0 {
		t.Errorf("losses: %v", losses)
	}
}

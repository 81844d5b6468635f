package plan_test

import (
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/rollouttest"
)

func TestSelect(t *testing.T) {
	instances, _, err := rollouttest.Instances(rollouttest.Write(t, nil), rollouttest.Region)
	if err != nil {
		t.Fatal(err)
	}
	for reason, c := range map[string]struct{ names, want []string }{
		"a group with its children":  {[]string{"global"}, []string{"global/registry", "region/deploy", "region/stores", "stamp@1/agent", "stamp@2/agent"}},
		"a group without children":   {[]string{"region"}, []string{"region/deploy", "region/stores"}},
		"a group of all stamps":      {[]string{"stamp"}, []string{"stamp@1/agent", "stamp@2/agent"}},
		"a group of one stamp":       {[]string{"stamp@2"}, []string{"stamp@2/agent"}},
		"a step":                     {[]string{"region/stores"}, []string{"region/stores"}},
		"a step of all stamps":       {[]string{"stamp/agent"}, []string{"stamp@1/agent", "stamp@2/agent"}},
		"a step of one stamp":        {[]string{"stamp@1/agent"}, []string{"stamp@1/agent"}},
		"names with a common step":   {[]string{"region/stores", "region"}, []string{"region/deploy", "region/stores"}},
		"an unknown group":           {[]string{"region", "cell"}, nil},
		"an unknown stamp":           {[]string{"stamp@3"}, nil},
		"an unknown step":            {[]string{"region/store"}, nil},
		"a stamp of a group without": {[]string{"region@1"}, nil},
	} {
		var have []string
		selected, err := plan.Select(instances, c.names)
		for _, instance := range selected {
			have = append(have, instance.ID)
		}
		if slices.Sort(have); !slices.Equal(have, c.want) || (err != nil) != (c.want == nil) {
			t.Errorf("%s: %v selects %v, %v, want %v", reason, c.names, have, err, c.want)
		}
	}
}

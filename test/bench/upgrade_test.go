package main

import (
	"testing"
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestSummarizeUpgrades(t *testing.T) {
	at := func(second int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(second, 0)) }
	upgrade := func(policy string, began, ended int64) *csv1.Upgrade {
		return &csv1.Upgrade{CreateTime: at(began), Spec: &csv1.UpgradeSpec{Policy: policy}, Status: &csv1.UpgradeStatus{CompletionTime: at(ended)}}
	}
	for name, tc := range map[string]struct {
		reason string
		list   []*csv1.Upgrade
		took   time.Duration
		most   int
	}{
		"None":       {"upgrades of other policies do not count", []*csv1.Upgrade{upgrade("another", 1, 9)}, 0, 0},
		"One by one": {"one ends when the next one starts", []*csv1.Upgrade{upgrade(policyName, 3, 5), upgrade(policyName, 1, 3)}, 4 * time.Second, 1},
		"At once":    {"two run during a third one", []*csv1.Upgrade{upgrade(policyName, 1, 9), upgrade(policyName, 2, 4), upgrade(policyName, 3, 5)}, 8 * time.Second, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if took, most := summarize(tc.list); took != tc.took || most != tc.most {
				t.Errorf("%s: %s, %d at once; want %s, %d", tc.reason, took, most, tc.took, tc.most)
			}
		})
	}
}

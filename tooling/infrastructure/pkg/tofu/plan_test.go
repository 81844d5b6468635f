package tofu_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
)

const plan = `{"resource_changes": [
	{"address": "azapi_resource.cosmos", "change": {"actions": ["delete", "create"], "before": {"type": "Microsoft.DocumentDB/databaseAccounts@2024-05-15"}}},
	{"address": "azapi_resource.vault", "change": {"actions": ["update"], "before": {"type": "Microsoft.KeyVault/vaults@2023-07-01"}}},
	{"address": "azapi_resource.cluster", "change": {"actions": ["delete"], "before": {"type": "microsoft.containerservice/managedclusters@2024-05-01"}}},
	{"address": "azapi_update_resource.cluster", "type": "azapi_update_resource", "change": {"actions": ["delete", "create"], "before": {"type": "Microsoft.ContainerService/managedClusters@2026-02-01"}}},
	{"address": "azapi_resource.record", "change": {"actions": ["delete"], "before": {"type": "Microsoft.Network/dnsZones/A@2018-05-01"}}},
	{"address": "azapi_resource.new", "change": {"actions": ["create"], "after": {"type": "Microsoft.KeyVault/vaults@2023-07-01"}}},
	{"address": "azapi_resource.same", "change": {"actions": ["no-op"], "before": {"type": "Microsoft.KeyVault/vaults@2023-07-01"}}}
]}`

func TestCheck(t *testing.T) {
	read := must.Get(tofu.ReadPlan(strings.NewReader(plan)))(t)
	if pending := read.Pending(); len(pending) != 6 {
		t.Errorf("pending are %v", pending)
	}
	const cosmos, cluster = "azapi_resource.cosmos", "azapi_resource.cluster"
	for _, c := range []struct {
		reason        string
		allowed, lost []string
	}{
		{"nothing is allowed", nil, []string{cosmos, cluster}},
		{"one of two is allowed", []string{cosmos}, []string{cluster}},
		{"both are allowed", []string{cluster, cosmos}, nil},
	} {
		err := read.Check(c.allowed)
		var loss *tofu.LossError
		if errors.As(err, &loss) != (c.lost != nil) || loss != nil && !slices.Equal(loss.Addresses, c.lost) {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	if err := read.Check([]string{"azapi_resource.vault"}); err == nil || !strings.Contains(err.Error(), "does not delete") {
		t.Errorf("allowing what the plan does not delete: %v", err)
	}
}

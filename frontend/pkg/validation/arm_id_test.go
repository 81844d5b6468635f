package validation_test

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const subnet = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/group/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes"

func TestParse(t *testing.T) {
	got := must.Get(validation.ParseID(subnet))(t)
	if got.SubscriptionID != "11111111-1111-1111-1111-111111111111" || got.ResourceGroup != "group" ||
		got.Type != "Microsoft.Network/virtualNetworks/subnets" || got.Parent+"/subnets/nodes" != subnet || got.Name != "nodes" {
		t.Errorf("parsed %+v", got)
	}
	for reason, invalid := range map[string]string{
		"empty": "", "not absolute": subnet[1:], "empty segment": strings.Replace(subnet, "/vnet", "/", 1), "odd": subnet + "/more",
		"no group": "/subscriptions/11111111-1111-1111-1111-111111111111/providers/a/b/c/d", "subscription": strings.Replace(subnet, "1111-1111", "x", 1),
		"ambiguous letter": strings.Replace(subnet, "resourceGroups", "re\u017fourceGroups", 1), "ambiguous name": strings.Replace(subnet, "nodes", "node\u017f", 1),
		"ambiguous group": strings.Replace(subnet, "/group", "/\u212aind", 1), "space": strings.Replace(subnet, "vnet", "vnet ", 1), "group": strings.Replace(subnet, "/group", "/gr?up", 1), "control": strings.Replace(subnet, "vnet", "v\x00net", 1),
		"escape": strings.Replace(subnet, "vnet", "v%2fnet", 1), "long": subnet + strings.Repeat("/a", 2000),
		"extension": subnet + "/providers/Microsoft.Network/networkSecurityGroups/nsg", "child of group": strings.Replace(subnet, "/providers/", "/other/", 1),
	} {
		if id, err := validation.ParseID(invalid); err == nil {
			t.Errorf("%s: parsed %+v", reason, id)
		}
	}
}

// FuzzParse checks that the Azure SDK parses an accepted ID into the same parts.
func FuzzParse(f *testing.F) {
	f.Add(subnet)
	f.Add("/subscriptions/")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := validation.ParseID(text)
		if err != nil {
			return
		}
		want := must.Get(arm.ParseResourceID(text))(t)
		if kind := strings.ToLower(id.Type); strings.HasPrefix(kind, "microsoft.resources/") || strings.Contains(kind, "/resourcegroups") {
			t.Skip("the SDK takes the resource for a resource group or a subscription")
		}
		if id.SubscriptionID != want.SubscriptionID || id.ResourceGroup != want.ResourceGroupName || id.Type != want.ResourceType.String() || id.Name != want.Name ||
			len(want.ResourceType.Types) > 1 && !strings.EqualFold(id.Parent, want.Parent.String()) {
			t.Fatalf("%q was parsed as %+v", text, id)
		}
	})
}

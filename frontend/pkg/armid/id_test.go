package armid_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/armid"
)

const subnet = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/group/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes"

func TestParse(t *testing.T) {
	got, err := armid.Parse(subnet)
	want := armid.ID{
		SubscriptionID: "11111111-1111-1111-1111-111111111111", ResourceGroup: "group",
		Type: "Microsoft.Network/virtualNetworks/subnets", Names: []string{"vnet", "nodes"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for reason, bad := range map[string]string{
		"empty": "", "not absolute": subnet[1:], "empty segment": strings.Replace(subnet, "/vnet", "/", 1), "odd": subnet + "/more",
		"no group": "/subscriptions/11111111-1111-1111-1111-111111111111/providers/a/b/c/d", "subscription": strings.Replace(subnet, "1111-1111", "x", 1),
		"space": strings.Replace(subnet, "vnet", "vnet ", 1), "group": strings.Replace(subnet, "/group", "/gr?up", 1), "control": strings.Replace(subnet, "vnet", "v\x00net", 1),
		"escape": strings.Replace(subnet, "vnet", "v%2fnet", 1), "long": subnet + strings.Repeat("/a", 2000),
	} {
		if id, err := armid.Parse(bad); err == nil {
			t.Errorf("%s: parsed %+v", reason, id)
		}
	}
}

func TestParent(t *testing.T) {
	if got, want := armid.Parent(strings.ToUpper(subnet)), strings.ToLower(strings.TrimSuffix(subnet, "/subnets/nodes")); got != want {
		t.Errorf("the parent is %s, want %s", got, want)
	}
}

// FuzzParse: what parses has parts that lead back to it.
func FuzzParse(f *testing.F) {
	f.Add(subnet)
	f.Add("/subscriptions/")
	f.Fuzz(func(t *testing.T, text string) {
		id, err := armid.Parse(text)
		if err != nil {
			return
		}
		types := strings.Split(id.Type, "/")
		if len(types) != len(id.Names)+1 {
			t.Fatalf("%q has the type %q and the names %q", text, id.Type, id.Names)
		}
		back := "/subscriptions/" + id.SubscriptionID + "/resourceGroups/" + id.ResourceGroup + "/providers/" + types[0]
		for i, name := range id.Names {
			back += "/" + types[i+1] + "/" + name
		}
		if !strings.EqualFold(back, text) {
			t.Fatalf("%q leads back to %q", text, back)
		}
		_ = armid.Parent(text)
	})
}

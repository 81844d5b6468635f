package command

import "testing"

func TestResourceIDsAreShortened(t *testing.T) {
	const cluster = "/subscriptions/Sub/resourceGroups/RG/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/Mine"
	for id, want := range map[string]struct{ short, group string }{
		cluster:                        {"Sub/RG/Mine", "RG"},
		cluster + "/nodePools/Workers": {"Sub/RG/Mine/Workers", "RG"},
		"/subscriptions/Sub/resourcegroups/RG/providers/microsoft.redhatopenshift/hcpopenshiftclusters/Mine": {"Sub/RG/Mine", "RG"},
		"/subscriptions/Sub": {"/subscriptions/Sub", ""},
		"Mine":               {"Mine", ""},
		"":                   {"", ""},
	} {
		if short, group := shortID(id), groupOf(id); short != want.short || group != want.group {
			t.Errorf("%q: short ID %q and resource group %q, want %q and %q", id, short, group, want.short, want.group)
		}
	}
}

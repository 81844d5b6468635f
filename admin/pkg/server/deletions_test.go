package server

import "testing"

func TestClusterIDOf(t *testing.T) {
	const cluster = "/subscriptions/Sub/resourceGroups/RG/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/Mine"
	for id, want := range map[string]string{
		cluster:                        cluster,
		cluster + "/nodePools/Workers": cluster,
		"/subscriptions/Sub/resourceGroups/RG/providers/microsoft.redhatopenshift/HCPOPENSHIFTCLUSTERS/Mine/externalAuths/entra": "/subscriptions/Sub/resourceGroups/RG/providers/microsoft.redhatopenshift/HCPOPENSHIFTCLUSTERS/Mine",
		"/subscriptions/Sub/resourceGroups/RG/providers/Microsoft.Network/virtualNetworks/v/subnets/s":                           "",
		"/subscriptions/Sub/resourceGroups/RG": "",
		"":                                     "",
		"Mine":                                 "",
	} {
		if got := clusterIDOf(id); got != want {
			t.Errorf("clusterIDOf(%q) = %q, want %q", id, got, want)
		}
	}
}

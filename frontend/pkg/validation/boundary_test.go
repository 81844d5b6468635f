package validation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
)

// edge is a limit of a rule: a value that just complies with it, and a value that just violates it at a field.
type edge[R any] struct {
	reason    string
	keep, bad func(*R)
	field     string
}

// edges tests both sides of every limit. A stored violation stays allowed while another field changes.
func edges[R any](t *testing.T, valid func() *R, other func(*R), judge func(now, old *R) []apierror.Violation, all map[string]edge[R]) {
	rules := book(t)
	for name, e := range all {
		t.Run(name, func(t *testing.T) {
			if e.keep != nil {
				kept := valid()
				e.keep(kept)
				if found := judge(kept, nil); len(found) > 0 {
					t.Errorf("%s: a valid value is rejected: %v", e.reason, found)
				}
			}
			broken := valid()
			e.bad(broken)
			found := judge(broken, nil)
			documented(t, rules, found)
			if len(found) != 1 || found[0].Field != e.field {
				t.Errorf("%s: want a violation at %s only, got: %v", e.reason, e.field, found)
			}
			stored := valid()
			e.bad(stored)
			other(broken)
			if found := judge(broken, stored); len(found) > 0 {
				t.Errorf("%s: a stored violation blocks another change: %v", e.reason, found)
			}
		})
	}
}

func TestClusterEdges(t *testing.T) {
	mirrors := func(count, names int) func(*hub.Cluster) {
		return func(c *hub.Cluster) {
			for i := range count {
				mirror := hub.ImageDigestMirror{Source: fmt.Sprintf("quay.io/a-%d", i)}
				for j := range names {
					mirror.Mirrors = append(mirror.Mirrors, fmt.Sprintf("mirror.example/a-%d", j))
				}
				c.Properties.ImageDigestMirrors = append(c.Properties.ImageDigestMirrors, mirror)
			}
		}
	}
	source := func(name string) func(*hub.Cluster) {
		return func(c *hub.Cluster) {
			c.Properties.ImageDigestMirrors = []hub.ImageDigestMirror{{Source: name, Mirrors: []string{"mirror.example/a"}}}
		}
	}
	pod := func(cidr string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.Network.PodCIDR = cidr }
	}
	service := func(cidr string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.Network.ServiceCIDR = cidr }
	}
	authorized := func(cidrs ...string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.API.AuthorizedCIDRs = cidrs }
	}
	subnet := func(id string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.Platform.SubnetID = id }
	}
	integration := func(id string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.Platform.VnetIntegrationSubnetID = id }
	}
	managed := func(name string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.Platform.ManagedResourceGroup = name }
	}
	prefix := func(name string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Properties.DNS.BaseDomainPrefix = name }
	}
	tag := func(key, value string) func(*hub.Cluster) {
		return func(c *hub.Cluster) { c.Tags = map[string]string{key: value} }
	}
	tags := func(count int) func(*hub.Cluster) {
		return func(c *hub.Cluster) {
			c.Tags = map[string]string{}
			for i := range count {
				c.Tags[fmt.Sprintf("tag-%d", i)] = "a"
			}
		}
	}
	operator := func(plane func(*hub.OperatorIdentities) map[string]string, name, id string) func(*hub.Cluster) {
		return func(c *hub.Cluster) {
			plane(&c.Properties.Platform.OperatorsAuthentication.UserAssignedIdentities)[name] = id
		}
	}
	control := func(o *hub.OperatorIdentities) map[string]string { return o.ControlPlaneOperators }
	data := func(o *hub.OperatorIdentities) map[string]string { return o.DataPlaneOperators }
	assigned := func(id string, further func(*hub.Cluster)) func(*hub.Cluster) {
		return func(c *hub.Cluster) {
			c.Identity.UserAssigned[id] = hub.UserAssignedIdentity{}
			further(c)
		}
	}
	const network, subnetField, integrationField = "properties.network.", "properties.platform.subnetId", "properties.platform.vnetIntegrationSubnetId"
	elsewhere := strings.Replace(vnet, "11111111-1111", "22222222-1111", 1)
	location := func(name string) func(*hub.Cluster) { return func(c *hub.Cluster) { c.Location = name } }
	all := map[string]edge[hub.Cluster]{
		"location":                 {"a region may be written as it is displayed", location("West US 3"), location("West US"), "location"},
		"pod beside service":       {"ranges may touch", pod("172.29.0.0/16"), pod("172.30.254.0/23"), "properties.network"},
		"pod within machine":       {"a part is an overlap", pod("10.1.0.0/16"), pod("10.0.254.0/23"), "properties.network"},
		"pod around machine":       {"so is the other way round", pod("11.0.0.0/8"), pod("10.0.0.0/8"), "properties.network"},
		"service beside machine":   {"ranges may touch", service("10.1.0.0/16"), service("10.0.255.0/24"), "properties.network"},
		"pod size":                 {"a node has a subnet", pod("11.0.0.0/23"), pod("11.0.0.0/24"), network + "podCidr"},
		"service size":             {"the address of the DNS is the tenth one", service("11.0.0.0/28"), service("11.0.0.0/29"), network + "serviceCidr"},
		"host bits":                {"a range is named by its first address", pod("10.128.0.0/14"), pod("10.128.0.1/14"), network + "podCidr"},
		"CIDR octet zero":          {"numbers have no leading zeros", pod("11.0.0.0/8"), pod("011.0.0.0/8"), network + "podCidr"},
		"CIDR length zero":         {"nor has the length", pod("11.0.0.0/8"), pod("11.0.0.0/08"), network + "podCidr"},
		"CIDR length":              {"32 bits", authorized("11.0.0.0/32"), authorized("11.0.0.0/33"), "properties.api.authorizedCidrs[0]"},
		"CIDR space":               {"nothing around it", pod("11.0.0.0/8"), pod(" 11.0.0.0/8"), network + "podCidr"},
		"CIDR mapped":              {"an IPv4 range in IPv6 is IPv6", pod("11.0.0.0/8"), pod("::ffff:11.0.0.0/104"), network + "podCidr"},
		"CIDR zone":                {"a range has no zone", nil, pod("fe80::%eth0/64"), network + "podCidr"},
		"CIDR digits":              {"ASCII digits", nil, pod("１１.0.0.0/8"), network + "podCidr"},
		"authorized everything":    {"all addresses may be said", authorized("0.0.0.0/0"), authorized("0.0.0.0/00"), "properties.api.authorizedCidrs[0]"},
		"authorized one":           {"so may one", authorized("192.0.2.1/32"), authorized("192.0.2.1/31"), "properties.api.authorizedCidrs[0]"},
		"prefix length":            {"15", prefix(strings.Repeat("a", 15)), prefix(strings.Repeat("a", 16)), "properties.dns.baseDomainPrefix"},
		"prefix end":               {"no hyphen last", prefix("a-1"), prefix("a1-"), "properties.dns.baseDomainPrefix"},
		"prefix letters":           {"in punycode", prefix("xn--mnchen-3ya"), prefix("münchen"), "properties.dns.baseDomainPrefix"},
		"prefix upper":             {"lower case", prefix("a"), prefix("A"), "properties.dns.baseDomainPrefix"},
		"subnet casing":            {"ids have no casing", subnet(strings.ToUpper(vnet) + "/subnets/nodes"), subnet(strings.ToUpper(vnet) + "/SUBNETS/NODES/"), subnetField},
		"subnet elsewhere":         {"in the cluster's subscription", nil, subnet(elsewhere + "/subnets/nodes"), subnetField},
		"subnet type":              {"a subnet", nil, subnet(vnet + "/virtualNetworkPeerings/nodes"), subnetField},
		"subnet query":             {"an id is no URL", nil, subnet(vnet + "/subnets/nodes?api-version=1"), subnetField},
		"subnet encoded":           {"nor encoded", nil, subnet(vnet + "/subnets/no%64es"), subnetField},
		"integration network":      {"in the same network, in any casing", integration(strings.ToUpper(vnet) + "/subnets/integration"), integration(vnet + "2/subnets/integration"), integrationField},
		"integration equal":        {"and another subnet", integration(vnet + "/subnets/nodes2"), integration(vnet + "/SUBNETS/Nodes"), integrationField},
		"managed group length":     {"90", managed(strings.Repeat("a", 90)), managed(strings.Repeat("a", 91)), "properties.platform.managedResourceGroup"},
		"managed group short":      {"2", managed("a1"), managed("a"), "properties.platform.managedResourceGroup"},
		"managed group period":     {"none last", managed("a.b"), managed("a."), "properties.platform.managedResourceGroup"},
		"managed group letters":    {"ASCII", managed("(a_b-c)"), managed("ä1"), "properties.platform.managedResourceGroup"},
		"tags":                     {"50", tags(50), tags(51), "tags"},
		"tag name":                 {"512", tag(strings.Repeat("ä", 512), ""), tag(strings.Repeat("ä", 513), ""), "tags[" + strings.Repeat("ä", 513) + "]"},
		"tag value":                {"256", tag("a", strings.Repeat("ä", 256)), tag("a", strings.Repeat("ä", 257)), "tags[a]"},
		"tag name control":         {"no control characters", tag("a b", ""), tag("a\x00b", ""), `tags[a\x00b]`},
		"tag name newline":         {"nor the end of a line", nil, tag("a\u0085", ""), `tags[a\u0085]`},
		"tag value control":        {"no control characters", tag("a", "b c"), tag("a", "b\x00c"), "tags[a]"},
		"tag value delete":         {"nor DEL", nil, tag("a", "b\x7f"), "tags[a]"},
		"mirrors":                  {"240", mirrors(240, 1), mirrors(241, 1), "properties.imageDigestMirrors"},
		"mirrors of one":           {"255", mirrors(1, 255), mirrors(1, 256), "properties.imageDigestMirrors[0].mirrors"},
		"repository length":        {"255", source("quay.io/" + strings.Repeat("a", 247)), source("quay.io/" + strings.Repeat("a", 248)), "properties.imageDigestMirrors[0].source"},
		"repository port":          {"65535", source("quay.io:65535/a"), source("quay.io:65536/a"), "properties.imageDigestMirrors[0].source"},
		"repository port zero":     {"from 1, without leading zeros", source("quay.io:1"), source("quay.io:0443/a"), "properties.imageDigestMirrors[0].source"},
		"repository tag":           {"none", source("quay.io/a/b"), source("quay.io/a/b:v1"), "properties.imageDigestMirrors[0].source"},
		"repository host":          {"a name", source("10.0.0.1:5000/a"), source("[::1]:5000/a"), "properties.imageDigestMirrors[0].source"},
		"repository path":          {"no empty part", source("quay.io/a"), source("quay.io/a/"), "properties.imageDigestMirrors[0].source"},
		"operator name":            {"63", operator(data, strings.Repeat("a", 63), identities+"x"), operator(data, strings.Repeat("a", 64), identities+"x"), operators + "dataPlaneOperators[" + strings.Repeat("a", 64) + "]"},
		"operator assigned":        {"what operators use is assigned", assigned(identities+"x", operator(control, "x", identities+"X")), operator(control, "x", identities+"x"), operators + "controlPlaneOperators[x]"},
		"identity unused":          {"what is assigned is used", assigned(identities+"x", operator(control, "x", identities+"x")), assigned(identities+"x", func(*hub.Cluster) {}), "identity.userAssignedIdentities[" + identities + "x]"},
		"identity of another kind": {"an identity", nil, operator(data, "x", vnet), operators + "dataPlaneOperators[x]"},
	}
	edges(t, validCluster, func(c *hub.Cluster) { c.Properties.NodeDrainTimeoutMinutes++ }, func(now, old *hub.Cluster) []apierror.Violation {
		return rules(t).Cluster(validation.ClusterChange{New: now, Old: old, Subscription: &hub.Subscription{}})
	}, all)
}

// TestClusterVersionSteps: the versions that a cluster may change to, depending on the versions that its control plane
// runs.
func TestClusterVersionSteps(t *testing.T) {
	for _, tc := range []struct {
		from, runs, to string
		feature, ok    bool
	}{
		{"4.20", "4.20.8", "4.20", false, true}, {"4.20", "4.20.8", "4.21", false, true}, {"4.20", "4.20.8", "4.22", false, false},
		{"4.21", "4.20.8", "4.22", false, false}, {"4.21", "4.21.0", "4.22", false, true}, {"4.21", "4.20.8", "4.21", false, true},
		{"4.21", "", "4.22", false, true}, {"4.21", "4.21.0", "4.20", false, false}, {"4.21", "4.20.8", "4.20", false, false},
		{"4.22", "4.22.0", "4.23", false, true}, {"4.22", "4.22.0", "5.0", false, false}, {"4.22", "4.22.0", "5.0", true, true},
		{"4.22", "4.22.0", "5.1", true, false}, {"4.23", "4.23.0", "5.0", true, false}, {"4.23", "4.23.0", "5.1", true, true},
		{"4.23", "4.23.0", "5.1", false, false}, {"4.24", "4.24.0", "5.2", true, false}, {"4.21", "4.21.0", "5.0", true, false},
		{"5.0", "5.0.0", "5.1", false, false}, {"5.0", "5.0.0", "5.1", true, true}, {"5.0", "5.0.0", "5.2", true, false}, {"5.0", "5.0.0", "4.23", true, false}, {"5.0", "4.22.9", "5.0", false, true},
	} {
		old, now, subscription := validCluster(), validCluster(), &hub.Subscription{}
		old.Properties.Version.ID, now.Properties.Version.ID = tc.from, tc.to
		if tc.feature {
			subscription = experimenting()
		}
		var active []string
		if tc.runs != "" {
			active = []string{tc.runs}
		}
		found := rules(t).Cluster(validation.ClusterChange{New: now, Old: old, ActiveVersions: active, Subscription: subscription})
		if (len(found) == 0) != tc.ok || len(found) > 0 && found[0].Field != "properties.version.id" {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

// TestKeyRotationEdges: the key's version can change only if the control plane runs 4.22, whatever its desired version
// is.
func TestKeyRotationEdges(t *testing.T) {
	for _, tc := range []struct {
		wanted, runs string
		ok           bool
	}{
		{"4.21", "4.21.9", false}, {"4.22", "4.21.9", false}, {"4.22", "4.22.0", true}, {"4.22", "", true}, {"5.0", "5.0.0", true}, {"5.0", "4.22.0", true},
	} {
		old, now := validCluster(), validCluster()
		for _, c := range []*hub.Cluster{old, now} {
			c.Properties.Version.ID, c.Properties.Etcd.DataEncryption = tc.wanted, customerKey()
		}
		now.Properties.Etcd.DataEncryption.CustomerManaged.KMS.ActiveKey.Version = "2"
		var active []string
		if tc.runs != "" {
			active = []string{tc.runs}
		}
		found := rules(t).Cluster(validation.ClusterChange{New: now, Old: old, ActiveVersions: active, Subscription: &hub.Subscription{}})
		if (len(found) == 0) != tc.ok {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

// TestStoredListSizesAreRatcheted: a stored list with too many items may keep its size, and each changed item is validated.
func TestStoredListSizesAreRatcheted(t *testing.T) {
	old, now := validCluster(), validCluster()
	for _, c := range []*hub.Cluster{old, now} {
		c.Tags = map[string]string{}
		for i := range 60 {
			c.Tags[fmt.Sprintf("tag-%02d", i)] = "a"
		}
		c.Properties.API.AuthorizedCIDRs = make([]string, 501)
		for i := range c.Properties.API.AuthorizedCIDRs {
			c.Properties.API.AuthorizedCIDRs[i] = fmt.Sprintf("10.%d.%d.0/24", i/250, i%250)
		}
	}
	now.Tags["tag-59"], now.Properties.API.AuthorizedCIDRs[500] = strings.Repeat("a", 257), "none"
	fields := func(found []apierror.Violation) (fields []string) {
		for _, v := range found {
			fields = append(fields, v.Field)
		}
		return fields
	}
	found := rules(t).Cluster(validation.ClusterChange{New: now, Old: old, Subscription: &hub.Subscription{}})
	if want := []string{"properties.api.authorizedCidrs[500]", "tags[tag-59]"}; !slices.Equal(fields(found), want) {
		t.Errorf("found %v, want a violation at %v", found, want)
	}

	oldPool, pool := validNodePool(), validNodePool()
	for _, p := range []*hub.NodePool{oldPool, pool} {
		for i := range 51 {
			p.Properties.Taints = append(p.Properties.Taints, hub.Taint{Key: fmt.Sprintf("key-%d", i), Effect: "NoSchedule"})
		}
	}
	pool.Properties.Taints[50].Key = "-"
	found = rules(t).NodePool(validation.NodePoolChange{New: pool, Old: oldPool, Cluster: validCluster(), ActiveVersions: []string{"4.21.4"}, Subscription: &hub.Subscription{}})
	if want := []string{"properties.taints[50].key"}; !slices.Equal(fields(found), want) {
		t.Errorf("found %v, want a violation at %v", found, want)
	}

	oldAuth, auth := validExternalAuth(), validExternalAuth()
	for _, a := range []*hub.ExternalAuth{oldAuth, auth} {
		for i := range 11 {
			a.Properties.Issuer.Audiences = append(a.Properties.Issuer.Audiences, fmt.Sprintf("audience-%d", i))
		}
	}
	auth.Properties.Issuer.Audiences[0] = ""
	found = rules(t).ExternalAuth(validation.ExternalAuthChange{New: auth, Old: oldAuth, Cluster: validCluster(), Subscription: &hub.Subscription{}})
	if !slices.Contains(fields(found), "properties.issuer.audiences[0]") {
		t.Errorf("found %v, want a violation at the first audience", found)
	}
}

// TestManyViolationsAreLimited: the rules end after one violation more than an error lists. Violations of the stored resource do
// not count, however many they are.
func TestManyViolationsAreLimited(t *testing.T) {
	with := func(count int, cidr string) *hub.Cluster {
		c := validCluster()
		for range count {
			c.Properties.API.AuthorizedCIDRs = append(c.Properties.API.AuthorizedCIDRs, cidr)
		}
		return c
	}
	if found := rules(t).Cluster(validation.ClusterChange{New: with(400, "none"), Subscription: &hub.Subscription{}}); len(found) != apierror.MaxViolations+1 {
		t.Errorf("a new cluster has %d violations, want %d", len(found), apierror.MaxViolations+1)
	}
	old, now := with(400, "none"), with(400, "none")
	if found := rules(t).Cluster(validation.ClusterChange{New: now, Old: old, Subscription: &hub.Subscription{}}); len(found) != 0 {
		t.Errorf("an unchanged cluster has %d violations", len(found))
	}
	now.Properties.API.AuthorizedCIDRs[399] = "other"
	found := rules(t).Cluster(validation.ClusterChange{New: now, Old: old, Subscription: &hub.Subscription{}})
	if len(found) != 1 || found[0].Field != "properties.api.authorizedCidrs[399]" {
		t.Errorf("found %v, want the violation of the changed address", found)
	}
}

package validation_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

func validNodePool() *hub.NodePool {
	return &hub.NodePool{
		Resource: hub.Resource{ID: clusterID + "/nodePools/pool", Name: "pool", Type: hub.NodePoolResourceType, Location: "westus3"},
		Properties: hub.NodePoolProperties{
			Version: hub.Version{ID: "4.21.1", ChannelGroup: "stable"},
			Platform: hub.NodePoolPlatform{
				SubnetID: vnet + "/subnets/nodes", VMSize: "Standard_D8s_v3",
				OSDisk: hub.OSDisk{SizeGiB: 64, DiskStorageAccountType: "Premium_LRS", DiskType: "Managed"},
			},
			Replicas: 2, AutoRepair: true,
		},
	}
}

func TestNodePoolEdges(t *testing.T) {
	size := func(replicas int32, scaling *hub.NodePoolAutoScaling, zone string) func(*hub.NodePool) {
		return func(p *hub.NodePool) {
			p.Properties.Replicas, p.Properties.AutoScaling, p.Properties.Platform.AvailabilityZone = replicas, scaling, zone
		}
	}
	scaling := func(least, most int32) *hub.NodePoolAutoScaling {
		return &hub.NodePoolAutoScaling{Min: least, Max: most}
	}
	disk := func(kind string, size int32, repair bool) func(*hub.NodePool) {
		return func(p *hub.NodePool) {
			p.Properties.Platform.OSDisk.DiskType, p.Properties.Platform.OSDisk.SizeGiB, p.Properties.AutoRepair = kind, size, repair
		}
	}
	label := func(key, value string) func(*hub.NodePool) {
		return func(p *hub.NodePool) { p.Properties.Labels = []hub.Label{{Key: key, Value: value}} }
	}
	labels := func(count int) func(*hub.NodePool) {
		return func(p *hub.NodePool) {
			for i := range count {
				p.Properties.Labels = append(p.Properties.Labels, hub.Label{Key: fmt.Sprintf("key-%d", i)})
			}
		}
	}
	taint := func(taints ...hub.Taint) func(*hub.NodePool) {
		return func(p *hub.NodePool) { p.Properties.Taints = taints }
	}
	set := func(id string) func(*hub.NodePool) {
		return func(p *hub.NodePool) { p.Properties.Platform.OSDisk.EncryptionSetID = id }
	}
	sets := group + "/providers/Microsoft.Compute/diskEncryptionSets/"
	subdomain := func(length int) string { return strings.Repeat(strings.Repeat("a", 62)+".", 5)[:length-1] + "a" }
	const key, value, sizeField = "properties.labels", "properties.labels[a]", "properties.platform.osDisk.sizeGiB"
	role := "machine.openshift.io/cluster-api-machine-role"
	edges(t, validNodePool, func(p *hub.NodePool) { p.Tags = map[string]string{"a": "b"} }, func(now, old *hub.NodePool) []apierror.Violation {
		cluster := validCluster()
		return rules(t).NodePool(validation.NodePoolChange{New: now, Old: old, Cluster: cluster, ActiveVersions: []string{"4.21.4"}, Subscription: &hub.Subscription{}})
	}, map[string]edge[hub.NodePool]{
		"replicas":                               {"200", size(200, nil, ""), size(201, nil, ""), "properties.replicas"},
		"replicas in a zone":                     {"any number", size(1<<31-1, nil, "3"), size(-1, nil, "3"), "properties.replicas"},
		"replicas and scaling":                   {"one of them", size(0, scaling(0, 0), ""), size(1, scaling(0, 0), ""), "properties.replicas"},
		"scaling most":                           {"200", size(0, scaling(200, 200), ""), size(0, scaling(200, 201), ""), "properties.autoScaling.max"},
		"scaling in a zone":                      {"any numbers", size(0, scaling(201, 1<<31-1), "1"), size(0, scaling(-1, 201), "1"), "properties.autoScaling.min"},
		"scaling order":                          {"min may be max", size(0, scaling(3, 3), ""), size(0, scaling(4, 3), ""), "properties.autoScaling.max"},
		"disk least":                             {"64", disk("Managed", 64, false), disk("Managed", 63, false), sizeField},
		"disk most":                              {"4095", disk("Managed", 4095, true), disk("Managed", 4096, true), sizeField},
		"ephemeral most":                         {"2040", disk("Ephemeral", 2040, true), disk("Ephemeral", 2041, true), sizeField},
		"ephemeral repair":                       {"with repair", disk("Ephemeral", 64, true), disk("Ephemeral", 64, false), "properties.autoRepair"},
		"label name":                             {"63", label("a.b/"+strings.Repeat("a", 63), ""), label("a.b/"+strings.Repeat("a", 64), ""), key},
		"label prefix":                           {"221", label(subdomain(221)+"/a", ""), label(subdomain(222)+"/a", ""), key},
		"label without prefix":                   {"31", label(strings.Repeat("a", 31), ""), label(strings.Repeat("a", 32), ""), key},
		"label of the kubelet":                   {"others may be set", label("node.kubernetes.io/exclude-from-external-load-balancers", ""), label("kubernetes.io/hostname", "a"), "properties.labels[kubernetes.io/hostname]"},
		"label of the cloud":                     {"administrators' labels", label("a.node-restriction.kubernetes.io/b", ""), label("node.kubernetes.io/instance-type", "a"), "properties.labels[node.kubernetes.io/instance-type]"},
		"label of HyperShift":                    {"another domain", label("hypershift.example/nodePool", "a"), label("hypershift.openshift.io/nodePool", "a"), "properties.labels[hypershift.openshift.io/nodePool]"},
		"label of Kubernetes":                    {"a similar domain", label("notk8s.io/a", ""), label("a.b.k8s.io/c", ""), "properties.labels[a.b.k8s.io/c]"},
		"label prefix part":                      {"63", label(strings.Repeat("a", 63)+".b/a", ""), label(strings.Repeat("a", 64)+".b/a", ""), key},
		"label prefix empty":                     {"none, or something", label("a", ""), label("/a", ""), key},
		"label prefix upper":                     {"lower case", label("a.b/C", ""), label("A.b/C", ""), key},
		"label slashes":                          {"one", label("a/b", ""), label("a/b/c", ""), key},
		"label start":                            {"letter or digit first", label("0", ""), label("-0", ""), key},
		"label end":                              {"and last", label("a_b", ""), label("a_", ""), key},
		"label letters":                          {"ASCII", label("a.b/xn--a", ""), label("ä", ""), key},
		"label value":                            {"63", label("a", strings.Repeat("a", 63)), label("a", strings.Repeat("a", 64)), value},
		"label value letters":                    {"no spaces", label("a", "A.b_c-d"), label("a", "a b"), value},
		"label worker":                           {"another role may be said", label("node-role.kubernetes.io/gpu", ""), label("node-role.kubernetes.io/worker", ""), "properties.labels[node-role.kubernetes.io/worker]"},
		"label master":                           {"another role may be said", label("node-role.kubernetes.io/infra", ""), label("node-role.kubernetes.io/master", ""), "properties.labels[node-role.kubernetes.io/master]"},
		"label machine role":                     {"another role may be said", label(role, "worker"), label(role, "infra"), "properties.labels[" + role + "]"},
		"label machine type":                     {"another type may be said", label("machine.openshift.io/cluster-api-machine-type", "worker"), label("machine.openshift.io/cluster-api-machine-type", "master"), "properties.labels[machine.openshift.io/cluster-api-machine-type]"},
		"labels":                                 {"256", labels(256), labels(257), "properties.labels"},
		"taint key":                              {"253", taint(hub.Taint{Key: subdomain(189) + "/" + strings.Repeat("a", 63), Effect: "NoSchedule"}), taint(hub.Taint{Key: subdomain(190) + "/" + strings.Repeat("a", 63), Effect: "NoSchedule"}), "properties.taints[0].key"},
		"taint key within":                       {"a qualified name", taint(hub.Taint{Key: "a.b/c", Effect: "NoSchedule"}), taint(hub.Taint{Key: "a/", Effect: "NoSchedule"}), "properties.taints[0].key"},
		"taint of Kubernetes":                    {"roles are customers'", taint(hub.Taint{Key: "node-role.kubernetes.io/infra", Effect: "NoSchedule"}), taint(hub.Taint{Key: "node.kubernetes.io/not-ready", Effect: "NoSchedule"}), "properties.taints[0].key"},
		"taint of Cluster API":                   {"other domains are customers'", taint(hub.Taint{Key: "example.x-k8s.io/a", Effect: "NoSchedule"}), taint(hub.Taint{Key: "node.cluster.x-k8s.io/uninitialized", Effect: "NoSchedule"}), "properties.taints[0].key"},
		"taint value":                            {"63", taint(hub.Taint{Key: "a", Value: strings.Repeat("a", 63), Effect: "NoSchedule"}), taint(hub.Taint{Key: "a", Value: strings.Repeat("a", 64), Effect: "NoSchedule"}), "properties.taints[0].value"},
		"taints of a key":                        {"one of each effect", taint(hub.Taint{Key: "a", Effect: "NoSchedule"}, hub.Taint{Key: "a", Effect: "NoExecute"}), taint(hub.Taint{Key: "a", Effect: "NoSchedule"}, hub.Taint{Key: "a", Value: "b", Effect: "NoSchedule"}), "properties.taints[1]"},
		"encryption set casing":                  {"ids have no casing", set(strings.ToUpper(sets) + "s"), set(strings.ToUpper(sets) + "s/"), "properties.platform.osDisk.encryptionSetId"},
		"encryption set characters":              {"letters, digits, _ and -", set(sets + "A_b-9"), set(sets + "a.b"), "properties.platform.osDisk.encryptionSetId"},
		"encryption set name":                    {"80", set(sets + strings.Repeat("a", 80)), set(sets + strings.Repeat("a", 81)), "properties.platform.osDisk.encryptionSetId"},
		"encryption set of another subscription": {"it can be used", set(strings.Replace(sets, "1111", "2222", 1) + "s"), set(strings.Replace(sets, "1111", "2222", 1)), "properties.platform.osDisk.encryptionSetId"},
		"encryption set managed":                 {"not in the managed group", set(sets + "s"), set(strings.Replace(sets, "/group/", "/MANAGED/", 1) + "s"), "properties.platform.osDisk.encryptionSetId"},
		"size casing":                            {"sizes have Azure's casing", func(p *hub.NodePool) { p.Properties.Platform.VMSize = "Standard_D8s_v3" }, func(p *hub.NodePool) { p.Properties.Platform.VMSize = "STANDARD_D8S_V3" }, "properties.platform.vmSize"},
		"zone":                                   {"one of the region's", size(2, nil, "3"), size(2, nil, "03"), "properties.platform.availabilityZone"},
		"subnet": {"in the network of the cluster's", func(p *hub.NodePool) { p.Properties.Platform.SubnetID = strings.ToUpper(vnet) + "/subnets/other" },
			func(p *hub.NodePool) { p.Properties.Platform.SubnetID = vnet + "2/subnets/nodes" }, "properties.platform.subnetId"},
	})
}

// TestNodePoolVersionSteps: the versions that a node pool may have, depending on its control plane and its current
// version. Until a control plane runs, the cluster's minor version counts.
func TestNodePoolVersionSteps(t *testing.T) {
	for _, tc := range []struct {
		runs, from, to string
		ok             bool
	}{
		{"", "", "4.22.9", true}, {"", "", "4.23.0", false},
		{"4.20.8", "", "4.20.8", true}, {"4.20.9", "", "4.20.7", false}, {"4.20.8", "", "4.20.9", false}, {"4.21.0", "", "4.20.99", true},
		{"4.22.0", "", "4.20.8", true}, {"4.23.0", "", "4.20.8", false}, {"4.23.0", "", "4.21.0", true},
		{"5.0.0", "", "4.21.0", true}, {"5.0.0", "", "4.20.9", false}, {"5.0.0", "", "4.22.0", true}, {"5.1.0", "", "4.22.0", true}, {"5.1.0", "", "4.21.0", false},
		{"4.22.0", "4.20.8", "4.22.0", true}, {"5.0.0", "4.21.0", "5.0.0", false}, {"5.1.0", "4.21.0", "5.1.0", false}, {"5.1.0", "5.0.0", "5.1.0", true}, {"4.22.0", "4.21.1", "4.21.0", false},
		{"4.22.0", "4.21.1", "", false}, {"4.22.0", "", "", false},
		// A pre-release is lower than its release.
		{"4.22.0-rc.1", "", "4.22.0", false}, {"4.22.0-rc.10", "", "4.22.0-rc.9", true}, {"4.22.0-rc.2", "", "4.22.0-rc.10", false},
		{"4.22.0", "4.22.0-rc.1", "4.22.0", true}, {"4.22.0", "4.22.0", "4.22.0-rc.1", false}, {"4.22.0", "", "4.22.0-0.nightly-2026-03-02-101500", true},
		{"4.22.0-rc.1", "", "4.22.0-1", true}, {"4.22.0-1", "", "4.22.0-rc.1", false}, {"4.22.0-rc", "", "4.22.0-rc.1", false}, {"4.20.8", "", "4.20.8-rc.1", false},
		// Malformed versions.
		{"4.22.0", "", "4.22.0-", false}, {"4.22.0", "", "4.22.0-a..b", false}, {"4.22.0", "", "4.22.0-01", false}, {"4.22.0", "", "4.22.0+1", false},
		{"4.22.0", "", "v4.22.0", false}, {"4.22.0", "", "4.22.00", false}, {"4.22.0", "", "4.22", false}, {"4.22.0", "", "4.22.0.0", false}, {"4.22.0", "", "4.22.0-ä", false},
		{"4.22.0", "", "4.22.0-" + strings.Repeat("a", 200), false}, {"4.22.0", "", "4.22.-1", false}, {"4.22.0", "", "٤.22.0", false},
	} {
		cluster, now := validCluster(), validNodePool()
		cluster.Properties.Version.ID, now.Properties.Version.ID = "4.22", tc.to
		change := validation.NodePoolChange{New: now, Cluster: cluster, Subscription: &hub.Subscription{}}
		if tc.runs != "" {
			change.ActiveVersions = []string{tc.runs}
		}
		if tc.from != "" {
			change.Old = validNodePool()
			change.Old.Properties.Version.ID = tc.from
		}
		found := rules(t).NodePool(change)
		documented(t, book(t), found)
		if (len(found) == 0) != tc.ok || len(found) > 0 && found[0].Field != "properties.version.id" {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

// TestNodePoolVersionsDuringUpgrades checks the version of a node pool while its control plane or its nodes are upgraded:
// the pool must fit to all versions of the control plane, and an upgrade starts at the version that the nodes run.
func TestNodePoolVersionsDuringUpgrades(t *testing.T) {
	for _, tc := range []struct {
		runs              []string
		from, running, to string
		ok                bool
	}{
		{[]string{"4.22.1", "5.0.0"}, "4.20.9", "4.20.9", "4.20.10", false},
		{[]string{"5.0.0", "4.22.1"}, "4.20.9", "4.20.9", "4.21.0", true},
		{[]string{"5.0.0", "4.22.1"}, "4.20.9", "4.20.9", "4.22.2", false},
		{[]string{"4.23.0"}, "4.22.0", "4.20.9", "4.23.0", false},
		{[]string{"4.23.0"}, "4.22.0", "4.20.9", "4.22.1", true},
		{[]string{"4.23.0"}, "4.22.0", "4.21.0", "4.23.0", true},
		{[]string{"4.23.0"}, "4.22.0", "", "4.23.0", true},
		{[]string{"4.23.0"}, "4.23.0", "4.20.9", "4.23.0", true},
		{[]string{"5.0.0"}, "4.21.1", "4.20.8", "4.20.8", true}, // back to the version that the nodes run
	} {
		old, now := validNodePool(), validNodePool()
		old.Properties.Version.ID, now.Properties.Version.ID = tc.from, tc.to
		found := rules(t).NodePool(validation.NodePoolChange{
			New: now, Old: old, Running: tc.running, Cluster: validCluster(), ActiveVersions: tc.runs, Subscription: &hub.Subscription{},
		})
		documented(t, book(t), found)
		if (len(found) == 0) != tc.ok || len(found) > 0 && found[0].Field != "properties.version.id" {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

func validExternalAuth() *hub.ExternalAuth {
	return &hub.ExternalAuth{
		Resource: hub.Resource{ID: clusterID + "/externalAuths/auth", Name: "auth", Type: hub.ExternalAuthResourceType},
		Properties: hub.ExternalAuthProperties{
			Issuer:  hub.TokenIssuer{URL: "https://issuer.example", Audiences: []string{"audience"}},
			Clients: []hub.ExternalAuthClient{{Component: hub.ExternalAuthComponent{Name: "cli", AuthClientNamespace: "a"}, ClientID: "audience", Type: "Public"}},
			Claim:   hub.ExternalAuthClaim{Mappings: hub.TokenClaimMappings{Username: hub.UsernameClaim{Claim: "email"}}},
		},
	}
}

// certificate returns a certificate in PEM.
func certificate(t *testing.T) string {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestExternalAuthEdges(t *testing.T) {
	issuer := func(url string) func(*hub.ExternalAuth) {
		return func(a *hub.ExternalAuth) { a.Properties.Issuer.URL = url }
	}
	ca := func(text string) func(*hub.ExternalAuth) {
		return func(a *hub.ExternalAuth) { a.Properties.Issuer.CA = text }
	}
	audiences := func(names ...string) func(*hub.ExternalAuth) {
		return func(a *hub.ExternalAuth) {
			a.Properties.Issuer.Audiences = append(a.Properties.Issuer.Audiences, names...)
		}
	}
	client := func(name, namespace, id, kind string) func(*hub.ExternalAuth) {
		return func(a *hub.ExternalAuth) {
			a.Properties.Clients = append(a.Properties.Clients, hub.ExternalAuthClient{
				Component: hub.ExternalAuthComponent{Name: name, AuthClientNamespace: namespace}, ClientID: id, Type: kind,
			})
		}
	}
	username := func(policy, prefix string) func(*hub.ExternalAuth) {
		return func(a *hub.ExternalAuth) {
			a.Properties.Claim.Mappings.Username.PrefixPolicy, a.Properties.Claim.Mappings.Username.Prefix = policy, prefix
		}
	}
	many := make([]string, 10)
	for i := range many {
		many[i] = fmt.Sprintf("audience-%d", i)
	}
	one, two := certificate(t), certificate(t)
	withHeader := strings.Replace(one, "CERTIFICATE-----\n", "CERTIFICATE-----\nA: b\n\n", 1)
	const url, prefix, kind = "properties.issuer.url", "properties.claim.mappings.username.prefix", "properties.clients[1].type"
	edges(t, validExternalAuth, func(a *hub.ExternalAuth) { a.Properties.Claim.Mappings.Groups = &hub.GroupClaim{Claim: "groups"} }, func(now, old *hub.ExternalAuth) []apierror.Violation {
		return rules(t).ExternalAuth(validation.ExternalAuthChange{New: now, Old: old, Cluster: validCluster(), Subscription: &hub.Subscription{}})
	}, map[string]edge[hub.ExternalAuth]{
		"issuer scheme":       {"https, in lower case", issuer("https://ISSUER.example"), issuer("HTTPS://issuer.example"), url},
		"issuer length":       {"512", issuer("https://issuer.example/" + strings.Repeat("a", 489)), issuer("https://issuer.example/" + strings.Repeat("a", 490)), url},
		"issuer port":         {"443", issuer("https://issuer.example:443"), issuer("https://issuer.example:444"), url},
		"issuer port large":   {"443", issuer("https://issuer.example:443"), issuer("https://issuer.example:65979"), url},
		"issuer port zero":    {"443", issuer("https://issuer.example:443"), issuer("https://issuer.example:0"), url},
		"issuer loopback":     {"a public address", issuer("https://20.50.2.1"), issuer("https://127.0.0.1"), url},
		"issuer private":      {"a public address", issuer("https://172.32.0.1"), issuer("https://172.31.0.1"), url},
		"issuer link-local":   {"a public address", issuer("https://169.253.169.254"), issuer("https://169.254.169.254"), url},
		"issuer mapped":       {"a public address", issuer("https://[::ffff:20.50.2.1]"), issuer("https://[::ffff:10.0.0.1]"), url},
		"issuer translated":   {"a public address", issuer("https://[2603:1030::1]"), issuer("https://[64:ff9b::a9fe:a9fe]"), url},
		"issuer domain":       {"a name with a domain", issuer("https://issuer.example"), issuer("https://kube-apiserver"), url},
		"issuer dot":          {"a name with a domain", issuer("https://issuer.example."), issuer("https://issuer."), url},
		"issuer localhost":    {"a name with a domain", issuer("https://localhost.example"), issuer("https://a.LocalHost"), url},
		"issuer port empty":   {"a number", issuer("https://issuer.example:443/"), issuer("https://issuer.example:/"), url},
		"issuer host":         {"an address is a host", issuer("https://[2603:1030::1]/a"), issuer("https:///a"), url},
		"issuer user":         {"no user", nil, issuer("https://user@issuer.example"), url},
		"issuer user encoded": {"an encoded @ is a letter", issuer("https://issuer.example/%40"), issuer("https://issuer.example/@"), url},
		"issuer query":        {"no query", issuer("https://issuer.example/%3f"), issuer("https://issuer.example/?"), url},
		"issuer fragment":     {"no fragment", issuer("https://issuer.example/%23"), issuer("https://issuer.example/#"), url},
		"issuer letters":      {"in punycode", issuer("https://xn--mnchen-3ya.example"), issuer("https://münchen.example"), url},
		"issuer space":        {"encoded", issuer("https://issuer.example/a%20b"), issuer("https://issuer.example/a b"), url},
		"issuer encoding":     {"two digits", issuer("https://issuer.example/%aF"), issuer("https://issuer.example/%a"), url},
		"issuer line":         {"nothing after it", nil, issuer("https://issuer.example\n"), url},
		"issuer opaque":       {"a host", nil, issuer("https:issuer.example"), url},
		"CA several":          {"several, with text between them", ca("# one\n" + one + "\n# two\n" + two), ca(one + "and more"), "properties.issuer.ca"},
		"CA lines":            {"with any line ends", ca(strings.ReplaceAll(one, "\n", "\r\n") + "\n \n"), ca(" \n "), "properties.issuer.ca"},
		"CA headers":          {"without headers", ca(one), ca(withHeader), "properties.issuer.ca"},
		"CA key":              {"without keys", ca(one), ca(one + "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), "properties.issuer.ca"},
		"CA second":           {"each of them", ca(one + two), ca(one + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "properties.issuer.ca"},
		"CA cut off":          {"whole", ca(strings.TrimSpace(one)), ca(one[:len(one)-4]), "properties.issuer.ca"},
		"CA length":           {"64 KiB", ca(one + strings.Repeat("\n", 64<<10-len(one))), ca(one + strings.Repeat("\n", 64<<10-len(one)+1)), "properties.issuer.ca"},
		"audiences":           {"10", audiences(many[:9]...), audiences(many...), "properties.issuer.audiences"},
		"audience twice":      {"each once, with its casing", audiences("Audience"), audiences("audience"), "properties.issuer.audiences[1]"},
		"audience length":     {"256", audiences(strings.Repeat("ä", 256)), audiences(strings.Repeat("ä", 257)), "properties.issuer.audiences[1]"},
		"client component":    {"each once", client("cli", "b", "audience", "Public"), client("cli", "a", "audience", "Public"), "properties.clients[1]"},
		"client audience":     {"its id is an audience, with its casing", client("b", "b", "audience", "Public"), client("b", "b", "Audience", "Public"), "properties.clients[1].clientId"},
		"client console":      {"the console must be confidential", client("console", "openshift-console", "audience", "Confidential"), client("console", "openshift-console", "audience", "Public"), kind},
		"client else":         {"other components must be public", client("console", "openshift", "audience", "Public"), client("console", "openshift", "audience", "Confidential"), kind},
		"client casing":       {"components are case-sensitive", client("Console", "openshift-console", "audience", "Public"), client("Console", "openshift-console", "audience", "Confidential"), kind},
		"prefix given":        {"a prefix is required with the policy Prefix only", username("Prefix", "a"), username("Prefix", ""), prefix},
		"prefix none":         {"a prefix is required with the policy Prefix only", username("None", ""), username("None", "a"), prefix},
		"prefix no":           {"a prefix is required with the policy Prefix only", username("NoPrefix", ""), username("NoPrefix", "a"), prefix},
		"prefix alone":        {"a prefix is required with the policy Prefix only", username("", ""), username("", "a"), prefix},
		"prefix length":       {"256", username("Prefix", strings.Repeat("ä", 256)), username("Prefix", strings.Repeat("ä", 257)), prefix},
		"claim length": {"256", func(a *hub.ExternalAuth) { a.Properties.Claim.Mappings.Username.Claim = strings.Repeat("a", 256) },
			func(a *hub.ExternalAuth) { a.Properties.Claim.Mappings.Username.Claim = strings.Repeat("a", 257) }, "properties.claim.mappings.username.claim"},
	})
	found := rules(t).ExternalAuth(validation.ExternalAuthChange{New: func() *hub.ExternalAuth {
		a := validExternalAuth()
		audiences(many...)(a)
		ca("none")(a)
		return a
	}(), Cluster: validCluster(), Subscription: &hub.Subscription{}})
	if fields := []string{"properties.issuer.audiences", "properties.issuer.ca"}; len(found) != 2 || !slices.Equal(fields, []string{found[0].Field, found[1].Field}) {
		t.Errorf("too many audiences and a wrong CA: %v", found)
	}
}

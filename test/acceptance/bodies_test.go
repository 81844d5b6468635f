package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/frontend/pkg/validation"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

// readBody returns a body of the frontend's cases with a merge patch, without the fields that a version does not have.
func readBody(t *testing.T, file, version, patch string, schema *schemamutation.Schema) map[string]any {
	t.Helper()
	content := must.Get(os.ReadFile("../../frontend/testdata/bodies/" + file))(t)
	const group = "/subscriptions/" + sampleSubscription + "/resourceGroups/"
	text := strings.NewReplacer("{{location}}", location, "{{network}}", group+"network/providers/Microsoft.Network",
		"{{identity}}", group+"identities/providers/Microsoft.ManagedIdentity/userAssignedIdentities", "{{subscription}}", sampleSubscription).Replace(string(content))
	body := parse(t, text)
	if version < "2025-12-23" && strings.HasPrefix(file, "cluster") {
		// The first version has the vault's name in the key.
		body = wire.MergePatch(body, parse(t, `{"properties":{"etcd":{"dataEncryption":{"customerManaged":{"kms":{"activeKey":{"vaultName":"vault"}}}}}}}`))
	}
	return schema.Prune(wire.MergePatch(body, parse(t, patch))).(map[string]any)
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	return must.Get(wire.ParseObject([]byte(text)))(t)
}

// mutations returns the mutations of a body that the OpenAPI document defines, and those with the values of interesting.
func mutations(schema *schemamutation.Schema, body map[string]any) []schemamutation.Mutation {
	all := schema.Mutations(body, schemamutation.Samples{Text: sampleText, Item: schemamutation.SampleItem})
	seen := map[string]bool{}
	for _, one := range slices.Clone(all) {
		if one.Kind != schemamutation.WrongType || seen[one.Path] {
			continue
		}
		seen[one.Path] = true
		for i, value := range interesting(one.Place) {
			one.Kind, one.Detail, one.Value = interestingValue, fmt.Sprint(i), value
			all = append(all, one)
		}
	}
	return all
}

// interestingValue is the kind of the mutations with a value of interesting.
const interestingValue schemamutation.Kind = "interesting value"

func isInteresting(change schemamutation.Mutation) bool { return change.Kind == interestingValue }

// combination returns mutations of which none concerns the place of another one.
func combination(random *rand.Rand, from []schemamutation.Mutation, count int) []schemamutation.Mutation {
	var chosen []schemamutation.Mutation
	for range count * 3 {
		next := from[random.IntN(len(from))]
		if !slices.ContainsFunc(chosen, func(c schemamutation.Mutation) bool { return concern(c.Path, next.Path) }) {
			chosen = append(chosen, next)
		}
		if len(chosen) == count {
			break
		}
	}
	return chosen
}

func concern(a, b string) bool { return validation.Covers(a, b) || validation.Covers(b, a) }

// apply returns a body with mutations.
func apply(body map[string]any, changes []schemamutation.Mutation) map[string]any {
	for _, change := range changes {
		body = change.Apply(body)
	}
	return body
}

func describe(changes []schemamutation.Mutation) string {
	var all []string
	for _, change := range changes {
		value, err := json.Marshal(change.Value)
		if err != nil {
			value = []byte(err.Error())
		}
		all = append(all, fmt.Sprintf("%s %s %s %.200s", change.Path, change.Kind, change.Detail, value))
	}
	return strings.Join(all, "; ")
}

// labels returns DNS labels with dots between them that together have a length.
func labels(length int) string {
	text := strings.Repeat(strings.Repeat("a", 61)+".", length/62+1)[:length-1] + "a"
	return strings.ReplaceAll(text, ".a.", "-aa")
}

// sampleText returns a valid string of a length.
func sampleText(place string, length int) (string, bool) {
	switch place {
	case "properties.imageDigestMirrors[].source", "properties.imageDigestMirrors[].mirrors[]":
		return "mirror.example/" + strings.Repeat("a", length-len("mirror.example/")), true
	case "properties.taints[].key", "properties.labels[].key":
		if length < 66 || length > 253+1+63 {
			return strings.Repeat("a", length), true
		}
		return labels(length-64) + "/" + strings.Repeat("k", 63), true
	case "properties.issuer.url":
		return "https://issuer.example/" + strings.Repeat("a", length-len("https://issuer.example/")), true
	}
	return strings.Repeat("a", length), true
}

// interesting returns values of a place that no constraint of a document suggests: other spellings of the same, the limits of the systems behind
// the service, and the names that they own.
func interesting(place string) []any {
	const (
		subscription = "/subscriptions/" + sampleSubscription
		networks     = "/providers/Microsoft.Network/virtualNetworks/"
		groups       = "/providers/Microsoft.Network/networkSecurityGroups/"
		sets         = "/providers/Microsoft.Compute/diskEncryptionSets/"
		vnet         = subscription + "/resourceGroups/network" + networks + "vnet"
	)
	switch place {
	case "location":
		return []any{"West US 3", "WESTUS3", " westus3"}
	case "properties.platform.vmSize":
		return anys(vmsize.Names())
	case "properties.platform.subnetId", "properties.platform.vnetIntegrationSubnetId":
		return []any{strings.ToUpper(vnet) + "/SUBNETS/OTHER", strings.ToLower(vnet) + "/subnets/other", vnet + "/subnets/a_b.c-d_", vnet + "/subnets/" + strings.Repeat("s", 80),
			vnet + "/subnets/0", vnet + "/subnets/_a", vnet + "/subnets/a.", subscription + "/resourceGroups/(a)" + networks + "vn/subnets/a",
			subscription + "/resourceGroups/" + strings.Repeat("g", 90) + networks + strings.Repeat("v", 64) + "/subnets/" + strings.Repeat("s", 80),
			subscription + "/resourceGroups/a.b" + networks + "v_/subnets/a", subscription + "/resourceGroups/ä" + networks + "vn/subnets/a",
			subscription + "/resourceGroups/日本" + networks + "vn/subnets/a", subscription + "/resourceGroups/g" + networks + "v/subnets/a", vnet + "/subnets/subnets"}
	case "properties.platform.networkSecurityGroupId":
		return []any{strings.ToUpper(subscription + "/resourceGroups/network" + groups + "nsg"), subscription + "/resourceGroups/ä" + groups + "ä",
			subscription + "/resourceGroups/" + strings.Repeat("g", 90) + groups + strings.Repeat("n", 64), subscription + "/resourceGroups/g" + groups + strings.Repeat("n", 80),
			subscription + "/resourceGroups/g" + groups + strings.Repeat("n", 200), subscription + "/resourceGroups/g" + groups + "a b"}
	case "properties.platform.osDisk.encryptionSetId":
		return []any{strings.ToLower(subscription + "/resourceGroups/g" + sets + "s"), strings.ToUpper(subscription + "/resourceGroups/g" + sets + "s"),
			subscription + "/resourceGroups/ä" + sets + "s", subscription + "/resourceGroups/g" + sets + "ä", subscription + "/resourceGroups/g" + sets + "日本", subscription + "/resourceGroups/g" + sets + "a b.c",
			"/subscriptions/22222222-2222-2222-2222-222222222222/resourceGroups/" + strings.Repeat("g", 90) + sets + strings.Repeat("s", 80)}
	case "properties.platform.managedResourceGroup":
		return []any{"ab", "a", "(a)_b.c-d", strings.Repeat("m", 90), "a.", "ä", "-a", "_"}
	case "properties.dns.baseDomainPrefix":
		return []any{"a", "a1", "a-b", "a--b", strings.Repeat("p", 15), "A", "1a"}
	case "properties.network.podCidr":
		return []any{"0.0.0.0/1", "10.64.0.0/20", "100.64.0.0/10", "224.0.0.0/4", "192.0.2.1/32", "10.128.0.0/30", "10.128.0.0/23", "10.128.0.0/24", "10.128.0.0/26", "::/64"}
	case "properties.network.serviceCidr":
		return []any{"172.30.0.0/30", "172.30.0.0/29", "172.30.0.0/28", "172.16.0.0/12", "128.0.0.0/2", "192.0.2.2/32", "fd00::/112"}
	case "properties.network.machineCidr":
		return []any{"10.0.0.0/24", "10.0.0.0/30", "192.0.2.3/32", "192.168.0.0/16"}
	case "properties.api.authorizedCidrs[]":
		return []any{"198.51.100.1", "198.51.100.1/32", "0.0.0.0/0", "10.0.0.0/8", "::1", "2001:db8::/32"}
	case "properties.api.authorizedCidrs":
		return []any{[]any{"198.51.100.1", "198.51.100.1/32"}, []any{"0.0.0.0/0", "0.0.0.0/0"}}
	case "properties.autoscaling.maxNodeProvisionTimeSeconds", "properties.autoscaling.maxPodGracePeriodSeconds":
		return numbers(1, 59, 60, 61, 3600, 1<<31-1)
	case "properties.autoscaling.podPriorityThreshold":
		return numbers(-1<<31, -1, 1, 1<<31-1)
	case "properties.imageDigestMirrors[].source", "properties.imageDigestMirrors[].mirrors[]":
		return anys([]string{"*.example.com", "a", "localhost:5000/x", "localhost:65535", "xn--a.b/c__d", "a/b-c--d", "a/b..c", "a/b.c._d", "a/b___c", "a/b_-c", "a/b.-c", "a/b-.c", "a/b/c/d/e",
			"192.0.2.1:443/a", "a-.b/c", "a_b/c", "*.a", "*.a/b", strings.Repeat("a", 255), labels(200) + "/" + strings.Repeat("b", 54), "registry.example:0/x", "quay.io/openshift/release.v1_2"})
	case "properties.imageDigestMirrors":
		pair := func(source string, mirrors ...any) any { return map[string]any{"source": source, "mirrors": mirrors} }
		return []any{[]any{pair("a/b", "c/d", "c/d")}, []any{pair("a/b", "c/d"), pair("a/b", "e/f")}, []any{pair("a/b", "a/b")}, []any{pair("*.a", "c/d"), pair("b.a", "c")}}
	case "properties.etcd.dataEncryption.customerManaged.kms.vaultName", "properties.etcd.dataEncryption.customerManaged.kms.activeKey.vaultName",
		"properties.etcd.dataEncryption.customerManaged.kms.activeKey.name", "properties.etcd.dataEncryption.customerManaged.kms.activeKey.version":
		return anys([]string{"a b", "ä", " ", "-", "a/b", strings.Repeat("ä", 255), "0123456789abcdef0123456789abcdef", "日本"})
	case "properties.version.channelGroup":
		return []any{"fast", "stable"}
	case "properties.labels[].key":
		return anys(slices.Concat(keys(), []string{strings.Repeat("k", 31), strings.Repeat("k", 32), strings.Repeat("k", 63), labels(221) + "/k", labels(222) + "/k", labels(253) + "/k"}))
	case "properties.taints[].key":
		return anys(slices.Concat(keys(), []string{labels(189) + "/" + strings.Repeat("k", 63), labels(190) + "/" + strings.Repeat("k", 63), labels(253) + "/" + strings.Repeat("k", 63), strings.Repeat("k", 63)}))
	case "properties.labels[].value", "properties.taints[].value":
		return anys([]string{"", "a", "A.b_c-d", strings.Repeat("v", 63), "-", "a-", "ä", "a b"})
	case "properties.labels":
		return []any{[]any{map[string]any{"key": "a", "value": "1"}, map[string]any{"key": "a", "value": "2"}}, []any{map[string]any{"key": "A"}, map[string]any{"key": "a"}}}
	case "properties.taints":
		taint := func(key, value, effect string) any {
			return map[string]any{"key": key, "value": value, "effect": effect}
		}
		return []any{[]any{taint("a", "1", "NoSchedule"), taint("a", "2", "NoExecute")}, []any{taint("a", "1", "NoSchedule"), taint("a", "2", "NoSchedule")}, []any{taint("A", "", "NoExecute"), taint("a", "", "NoExecute")}}
	case "properties.autoScaling.min", "properties.autoScaling.max", "properties.replicas":
		return numbers(0, 1, 2, 199, 200, 201, 500, 1<<31-1)
	case "properties.autoScaling":
		scaling := func(least, most int64) any { return map[string]any{"min": number(least), "max": number(most)} }
		return []any{scaling(0, 0), scaling(0, 1), scaling(1, 1), scaling(200, 200), scaling(201, 1<<31-1), scaling(2, 1)}
	case "properties.platform.osDisk.sizeGiB":
		return numbers(64, 2040, 2041, 4095)
	case "properties.platform.availabilityZone":
		return []any{"", "1", "2", "3", "4"}
	case "properties.nodeDrainTimeoutMinutes":
		return numbers(0, 1, 10080)
	case "properties.issuer.url":
		return anys([]string{"https://issuer.example", "https://issuer.example/", "https://issuer.example:443/a", "https://ISSUER.example/A", "https://issuer.example./a", "https://8.8.8.8/a", "https://[2001:4860:4860::8888]/a",
			"https://issuer.example/%20", "https://issuer.example/%2F", "https://issuer.example/a;b=c", "https://issuer.example/a//b/../c", "https://issuer.example/~a!$&'()*+,;=:", "https://issuer.example?",
			"https://issuer.example#", "https://a_b.example/", "https://-a.example/", "https://a..example/", "https://xn--a.example", "https://ä.example", "https://1.2.3/a", "https://issuer.example/" + strings.Repeat("%41", 160),
			"https://" + labels(240) + ".example/", "https://issuer.example/[a]", "https://%69ssuer.example/a", "https://issuer.example:0443/a"})
	case "properties.issuer.audiences[]", "properties.clients[].clientId":
		return anys([]string{"client-1", "client-2", " ", "ä", strings.Repeat("ä", 256), "api://a/b", "A", "a,b"})
	case "properties.claim.mappings.username.claim", "properties.claim.mappings.groups.claim", "properties.claim.mappings.username.prefix", "properties.claim.mappings.groups.prefix",
		"properties.claim.validationRules[].requiredClaim.claim", "properties.claim.validationRules[].requiredClaim.requiredValue":
		return anys([]string{"sub", "email", " ", "ä", strings.Repeat("ä", 256), "https://claims.example/a", "a.b", "claims.email_verified", "system:", "-", "a\"b", "{{a}}"})
	case "properties.claim.validationRules":
		rule := func(claim, value string) any {
			return map[string]any{"type": "RequiredClaim", "requiredClaim": map[string]any{"claim": claim, "requiredValue": value}}
		}
		return []any{[]any{rule("a", "1"), rule("a", "2")}, []any{rule("a", "1"), rule("a", "1")}, []any{rule("a", "1"), rule("A", "1")}, []any{}}
	case "properties.clients[].component.name", "properties.clients[].component.authClientNamespace":
		return anys([]string{"console", "openshift-console", "cli", "A", "ä", " ", "a/b", "openshift-authentication"})
	case "properties.clients":
		client := func(name, namespace string, scopes ...any) any {
			return map[string]any{"component": map[string]any{"name": name, "authClientNamespace": namespace}, "clientId": "client-1", "type": "Public", "extraScopes": scopes}
		}
		return []any{[]any{client("a", "b"), client("b", "a")}, []any{client("a", "b"), client("a", "c"), client("A", "b")}, []any{client("a", "b", "email", "email")}, []any{client("a", "b", "EMAIL", "email")}, []any{}}
	}
	return nil
}

// keys returns keys of labels and taints that Kubernetes, Cluster API, OpenShift and HyperShift own, and keys like them.
func keys() []string {
	return []string{"kubernetes.io/hostname", "kubernetes.io/os", "beta.kubernetes.io/arch", "node.kubernetes.io/instance-type", "node.kubernetes.io/not-ready", "node.kubernetes.io/any",
		"topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "kubelet.kubernetes.io/a", "node-restriction.kubernetes.io/a", "node-role.kubernetes.io/worker",
		"node-role.kubernetes.io/infra", "node-role.kubernetes.io/control-plane", "app.kubernetes.io/name", "a.k8s.io/b", "k8s.io/b", "notk8s.io/b", "node.cluster.x-k8s.io/uninitialized", "cluster.x-k8s.io/a",
		"hypershift.openshift.io/nodePool", "managed.hypershift.openshift.io/a", "machine.openshift.io/cluster-api-machine-role", "node.openshift.io/os_id", "a", "A", "a.b/C_d.e-f", "xn--a/b", "0/0", "a--b/c", "example.com/a"}
}

func anys[T any](values []T) []any {
	all := make([]any, len(values))
	for i, value := range values {
		all[i] = value
	}
	return all
}

func number(n int64) json.Number { return json.Number(fmt.Sprint(n)) }

func numbers(values ...int64) []any {
	var all []any
	for _, n := range values {
		all = append(all, number(n))
	}
	return all
}

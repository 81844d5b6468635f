package render_test

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/yaml"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/clusterstatus"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/vmsize"
)

var update = flag.Bool("update", false, "write the golden files")

const (
	signingKey  = "SIGNING-KEY-OF-THE-TEST"
	uid         = "0b5e7ad4-6d0c-4b0c-9f8f-3c1f6a2d7e10"
	poolUID     = "7d8f8c57-9b7e-4b57-8f3e-1f0f3b0f7a11"
	network     = "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/cust-rg/providers/Microsoft.Network/"
	identity    = "/subscriptions/11111111-1111-1111-1111-111111111111/resourcegroups/cust-rg/providers/microsoft.managedidentity/userassignedidentities/"
	releaseFrom = "quay.io/openshift-release-dev/ocp-release@sha256:"
)

func renderer() *render.Renderer {
	keys, err := config.LoadShardKeys("testdata/shard-keys")
	if err != nil {
		panic(err)
	}
	return &render.Renderer{
		Region:      fleet.Region{BaseDomain: "0ulz.westus3.aroapp-hcp.io", IssuerBase: "https://westus3.oic.aro-hcp.azure.com"},
		Environment: "local", Developer: true, Config: config.Default(), PullSecret: []byte(`{"auths":{}}`),
		Open: func(string, []byte) ([]byte, error) { return []byte(signingKey), nil }, ShardKeys: keys,
	}
}

// aggregate returns a placed cluster with one node pool. Its works are planned by settled.
func aggregate() *fleet.ClusterAggregate {
	c := &fleet.Cluster{
		UID: uid, Generation: 1, Shard: "mgmt-1",
		ResourceID: "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/cust-rg/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/my-cluster",
		Release:    fleet.Release{Version: "4.21.4", Image: releaseFrom + "f508872be9872f1d8eb0c9d0b5b5fba3e99a6ce5c17537bcd0745fe74cdb203d"},
		Status:     &csv1.ClusterStatus{ClusterId: fleet.ClusterID(uid), BaseDomainPrefix: "x8y5p7r4g6j9e3v"},
		Spec: &csv1.ClusterSpec{
			Name: "my-cluster", Location: "westus3", TenantId: "64dc69e4-d083-49fc-9569-ebece1dd1408",
			Version: &csv1.Version{Id: "4.21", ChannelGroup: "stable"},
			Network: &csv1.Network{NetworkType: "OVNKubernetes", PodCidr: "10.128.0.0/14", ServiceCidr: "172.30.0.0/16", MachineCidr: "10.0.0.0/16", HostPrefix: 23},
			Api:     &csv1.Api{Visibility: csv1.Visibility_VISIBILITY_PUBLIC}, ImageRegistryEnabled: true,
			Platform: &csv1.Platform{SubscriptionId: "11111111-1111-1111-1111-111111111111", ResourceGroup: "cust-rg", ManagedResourceGroup: "my-cluster-managed-rg",
				SubnetId: network + "virtualNetworks/cust-vnet/subnets/cust-subnet", NetworkSecurityGroupId: network + "networkSecurityGroups/cust-nsg",
				ControlPlaneOperators: map[string]string{"ingress": strings.ToUpper(identity) + "INGRESS"}},
			Autoscaling: &csv1.ClusterAutoscaling{MaxNodesTotal: 500, MaxPodGracePeriod: durationpb.New(600 * time.Second),
				MaxNodeProvisionTime: durationpb.New(900 * time.Second), PodPriorityThreshold: -10},
			Identities: map[string]*csv1.UserAssignedIdentity{identity + "ingress": {ClientId: "aaaaaaaa-0000-0000-0000-000000000005"}},
		},
	}
	p := &fleet.NodePool{
		UID: poolUID, ClusterUID: uid, Generation: 1, ResourceID: c.ResourceID + "/nodePools/np1", Release: c.Release, Status: &csv1.NodePoolStatus{},
		Spec: &csv1.NodePoolSpec{Name: "np1", Size: &csv1.NodePoolSpec_Replicas{Replicas: 3}, AutoRepair: true,
			Platform: &csv1.NodePoolPlatform{VmSize: "Standard_D8s_v3", OsDisk: &csv1.OsDisk{SizeGib: 64, StorageAccountType: "Premium_LRS"}}},
	}
	return &fleet.ClusterAggregate{Cluster: c, Pools: []*fleet.NodePool{p}}
}

func read(file string) string {
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		panic(err)
	}
	return string(text)
}

// variants change an aggregate in the ways that change its rendering.
var variants = map[string]func(t *fleet.ClusterAggregate){
	"plain": func(*fleet.ClusterAggregate) {},
	"everything": func(t *fleet.ClusterAggregate) {
		s := t.Cluster.Spec
		s.Api.AuthorizedCidrs = []string{"192.0.2.0/24", "198.51.100.0/24"}
		s.Etcd = &csv1.Etcd{KmsKey: &csv1.KmsKey{VaultName: "cust-kv", KeyName: "etcd-key", KeyVersion: "0123456789abcdef0123456789abcdef", VaultVisibility: csv1.Visibility_VISIBILITY_PUBLIC}}
		s.ImageDigestMirrors = []*csv1.ImageDigestMirror{{Source: "registry.example.com/team", Mirrors: []string{"mirror.example.com/team", "mirror2.example.com/team"}}}
		s.NodeDrainTimeout = durationpb.New(10 * time.Minute)
		s.Fips, s.ImageRegistryEnabled = true, false
		s.Autoscaling.MaxNodeProvisionTime = durationpb.New(95 * time.Second)
		s.Experiments = map[string]string{experiment.SingleReplica: experiment.SingleReplicaValue, experiment.SizeOverride: experiment.MinimalSize}
		p := t.Pools[0].Spec
		p.Size = &csv1.NodePoolSpec_Autoscaling{Autoscaling: &csv1.NodePoolAutoscaling{Min: 0, Max: 9}}
		p.Labels = map[string]string{"team": "a", "tier": ""}
		p.Taints = []*csv1.Taint{{Key: "dedicated", Value: "gpu", Effect: "NoSchedule"}, {Key: "bare", Effect: "NoExecute"}}
		p.NodeDrainTimeout = durationpb.New(0)
		p.Platform = &csv1.NodePoolPlatform{VmSize: "Standard_E32pds_v6", SubnetId: network + "virtualNetworks/cust-vnet/subnets/other", EncryptionAtHost: true,
			AvailabilityZone: "2", OsDisk: &csv1.OsDisk{SizeGib: 128, StorageAccountType: "StandardSSD_LRS", Ephemeral: true,
				EncryptionSetId: "/subscriptions/11111111-1111-1111-1111-111111111111/resourceGroups/cust-rg/providers/Microsoft.Compute/diskEncryptionSets/des"}}
	},
	"access": func(t *fleet.ClusterAggregate) {
		t.Cluster.Status.ObservedGeneration = 1 // its control plane was available before
		t.Pools[0].Release.Version = "4.19.20"  // HyperShift does not know the image of its nodes
		t.ExternalAuths = []*fleet.ExternalAuth{{UID: "e", ClusterUID: uid, Generation: 1, Spec: &csv1.ExternalAuthSpec{
			Name: "Entra", Issuer: &csv1.TokenIssuer{Url: "https://login.example.com/tenant/v2.0", Audiences: []string{"console-id", "cli-id"}, CertificateAuthority: read("issuer-ca.pem")},
			Clients: []*csv1.OidcClient{
				{ComponentName: "console", ComponentNamespace: "openshift-console", ClientId: "console-id", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL, ExtraScopes: []string{"profile"}},
				{ComponentName: "cli", ComponentNamespace: "openshift-console", ClientId: "cli-id", Type: csv1.OidcClientType_OIDC_CLIENT_TYPE_PUBLIC}},
			ClaimMappings: &csv1.ClaimMappings{Username: &csv1.UsernameMapping{Claim: "email", PrefixPolicy: csv1.UsernamePrefixPolicy_USERNAME_PREFIX_POLICY_PREFIX, Prefix: "entra:"},
				Groups: &csv1.GroupsMapping{Claim: "groups", Prefix: "entra:"}},
			RequiredClaims: []*csv1.RequiredClaim{{Claim: "tid", RequiredValue: "64dc69e4-d083-49fc-9569-ebece1dd1408"}},
		}}}
		t.Credentials = []*fleet.Credential{{UID: "5d7c0c33-3b9a-4d5c-8f6e-0f8c8a1f3a21", ClusterUID: uid, Spec: &csv1.BreakGlassCredentialSpec{
			Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, CertificateSigningRequest: read("request.pem"), Lifetime: durationpb.New(time.Hour)},
			Status: &csv1.BreakGlassCredentialStatus{State: csv1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_PENDING}}}
		t.Revocations = []*fleet.Revocation{{UID: "9a4b6f0e-7a52-4a0b-8a0d-0d4f0f6f3c42", ClusterUID: uid, Class: csv1.BreakGlassClass_BREAK_GLASS_CLASS_SRE,
			Status: &csv1.BreakGlassRevocationStatus{State: csv1.BreakGlassRevocationState_BREAK_GLASS_REVOCATION_STATE_PENDING}}}
	},
}

// maintenance changes an aggregate in the ways in which engineers and Azure change its rendering, and sets the fields that no variant sets.
func maintenance(t *fleet.ClusterAggregate) {
	variants["access"](t)
	c, actor, now := t.Cluster, &csv1.Actor{Name: "a", Reason: "b", Ticket: "c"}, timestamppb.New(time.Unix(1_799_000_000, 0))
	c.Spec.IdentityUrl, c.Spec.Dns, c.Spec.Ingress = "https://example.com", &csv1.Dns{BaseDomainPrefix: "mine"}, &csv1.Ingress{Visibility: csv1.Visibility_VISIBILITY_PUBLIC}
	platform := c.Spec.Platform
	platform.VnetIntegrationSubnetId, platform.OutboundType = platform.SubnetId, "LoadBalancer"
	platform.DataPlaneOperators, platform.ServiceManagedIdentity = map[string]string{"disk-csi-driver": identity + "disk"}, identity+"service"
	c.Spec.Identities[identity+"disk"] = &csv1.UserAssignedIdentity{ClientId: "aaaaaaaa-0000-0000-0000-000000000006", PrincipalId: "aaaaaaaa-0000-0000-0000-000000000007"}
	t.Pools[0].Spec.Version = &csv1.Version{Id: "4.21.4", ChannelGroup: "stable"}
	t.Pools[0].Spec.Size = &csv1.NodePoolSpec_Autoscaling{Autoscaling: &csv1.NodePoolAutoscaling{Min: 1, Max: 2}}
	credential := t.Credentials[0].Spec
	credential.Requester, credential.Reason, credential.NotAfter, credential.Elevation, credential.Emergency = "a", "b", now, "c", true
	credential.Level = csv1.BreakGlassLevel_BREAK_GLASS_LEVEL_READER
	c.Spec.Experiments = map[string]string{experiment.ControlPlaneOperatorImage: "quay.io/hypershift/hypershift@sha256:" + strings.Repeat("0a", 32)}
	c.Overrides = &csv1.ClusterOverrides{Size: &csv1.ClusterSizeOverride{Size: "large", Actor: actor, Time: now},
		Pause: &csv1.ClusterPause{Until: timestamppb.New(time.Unix(1_800_003_600, 0)), Actor: actor, Time: now}}
	c.Status.ControlPlaneRestartTime = now
	t.Upgrades = []*fleet.Upgrade{{UID: "9a4b6f0e-7a52-4a0b-8a0d-0d4f0f6f3c42", ClusterUID: uid, Spec: &csv1.UpgradeSpec{}, Status: &csv1.UpgradeStatus{
		State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, Gates: []*csv1.UpgradeGate{{Name: fleet.GateUpgradeable, AcknowledgeTime: now}},
		Steps: []*csv1.UpgradeStep{{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE, State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING,
			FromVersion: "4.20.8", ToVersion: "4.21.4", ToImage: c.Release.Image}}}}}
	t.Azure = &fleet.Azure{Steps: []*fleet.AzureStep{{Kind: fleet.AzureCertificate, Facts: map[string]string{fleet.AzureCertificateRenewed: "0123456789abcdef0123456789abcdef"}}}}
}

// configured returns a renderer with all settings of a region that its renderings contain.
func configured() *render.Renderer {
	r := renderer()
	r.Config.ServingCertificates = &config.ServingCertificates{Vault: "hcpmesh-certificates", ClientID: "cccccccc-0000-0000-0000-000000000001",
		TenantID: "64dc69e4-d083-49fc-9569-ebece1dd1408"}
	r.Config.ImageContentSources = []config.ImageContentSource{{Source: strings.TrimSuffix(releaseFrom, "@sha256:"), Mirrors: []string{"mirror.example.com/ocp-release"}}}
	r.Config.InternalAPICIDRs = []string{"10.11.0.0/16"}
	return r
}

// settled returns the aggregate after change, with its works.
func settled(t *testing.T, r *render.Renderer, change func(*fleet.ClusterAggregate)) *fleet.ClusterAggregate {
	t.Helper()
	aggregate := aggregate()
	change(aggregate)
	must.Do(t, r.Region.Settle(time.Unix(1_800_000_000, 0), aggregate, r))
	return aggregate
}

func TestGolden(t *testing.T) {
	for name, change := range variants {
		t.Run(name, func(t *testing.T) { compareGolden(t, renderer(), name, change) })
	}
	t.Run("certificates", func(t *testing.T) {
		compareGolden(t, configured(), "certificates", variants["access"])
	})
}

// compareGolden compares everything that is rendered for a variant with its golden file.
func compareGolden(t *testing.T, r *render.Renderer, name string, change func(*fleet.ClusterAggregate)) {
	aggregate := settled(t, r, change)
	var out strings.Builder
	for _, w := range aggregate.Works {
		bundle := must.Get(r.Bundle(aggregate, w))(t)
		if carriesDigest := w.Kind != fleet.CredentialWork && w.Kind != fleet.RevocationWork; carriesDigest && bundle.Digest != w.Digest {
			t.Errorf("work %s: the bundle's digest is %s, the planned one %s", w.Name, bundle.Digest, w.Digest)
		}
		for i, manifest := range bundle.Manifests {
			text := must.Get(yaml.JSONToYAML(opened(t, manifest)))(t)
			strategy := bundle.Configs[i].UpdateStrategy
			if strategy != nil && strategy.Type == workv1.UpdateStrategyTypeReadOnly {
				out.WriteString("--- # work " + w.Name + ", read only\n" + string(text))
				continue
			}
			if strategy == nil || strategy.ServerSideApply == nil || !strategy.ServerSideApply.Force {
				t.Errorf("work %s, manifest %d is not applied server-side", w.Name, i)
			}
			out.WriteString("--- # work " + w.Name + "\n" + string(text))
		}
	}
	path := filepath.Join("testdata", name+".golden.yaml")
	if *update {
		must.Do(t, os.WriteFile(path, []byte(out.String()), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("the rendering differs from %s (-want +got):\n%s", path, diff)
	}
}

// opened returns a manifest as the agent of the shard applies it: the values of a Secret are opened.
func opened(t *testing.T, manifest json.RawMessage) []byte {
	t.Helper()
	var object map[string]any
	must.Do(t, json.Unmarshal(manifest, &object))
	if object["kind"] != "Secret" {
		return manifest
	}
	keys := must.Get(seal.LoadPrivate("testdata/mgmt-1.private.json"))(t)
	must.Do(t, seal.OpenSecret(object, "mgmt-1", keys))
	return must.Get(json.Marshal(object))(t)
}

func TestDigestFollowsContent(t *testing.T) {
	digests := func(change func(*fleet.ClusterAggregate)) [3]string {
		aggregate := settled(t, renderer(), change)
		return [3]string{aggregate.Work(fleet.Namespaces, "").Digest, aggregate.Work(fleet.HostedCluster, "").Digest, aggregate.Work(fleet.NodePoolWork, poolUID).Digest}
	}
	base := digests(func(*fleet.ClusterAggregate) {})
	tests := map[string]struct {
		reason string
		change func(*fleet.ClusterAggregate)
		want   [3]bool // whether the digests of the namespaces, the HostedCluster and the NodePool change
	}{
		"Nothing":          {"the same input gives the same bytes", func(*fleet.ClusterAggregate) {}, [3]bool{}},
		"AuthorizedCIDRs":  {"the HostedCluster has them", func(t *fleet.ClusterAggregate) { t.Cluster.Spec.Api.AuthorizedCidrs = []string{"192.0.2.0/24"} }, [3]bool{false, true, false}},
		"Replicas":         {"the NodePool has them", func(t *fleet.ClusterAggregate) { t.Pools[0].Spec.Size = &csv1.NodePoolSpec_Replicas{Replicas: 4} }, [3]bool{false, false, true}},
		"ClusterDrain":     {"node pools without a drain timeout use the cluster's", func(t *fleet.ClusterAggregate) { t.Cluster.Spec.NodeDrainTimeout = durationpb.New(time.Minute) }, [3]bool{false, false, true}},
		"SealedSigningKey": {"sealing again changes no content", func(t *fleet.ClusterAggregate) { t.Cluster.SigningKey = []byte("other") }, [3]bool{}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got := digests(tc.change)
			for i := range got {
				if (got[i] != base[i]) != tc.want[i] {
					t.Errorf("%s: work %d changed: %v, want %v", tc.reason, i, got[i] != base[i], tc.want[i])
				}
			}
		})
	}
}

func TestIdentitiesWithoutClientIDAreErrors(t *testing.T) {
	r := renderer()
	r.Developer = false
	err := r.Region.Settle(time.Unix(1_800_000_000, 0), aggregate(), r)
	if err == nil || !strings.Contains(err.Error(), `control plane operator "cloud-controller-manager": the cluster names none`) {
		t.Errorf("an operator without an identity gave %v", err)
	}
}

// TestClientIDsComeFromAzure renders a cluster whose spec has no client IDs. The HostedCluster waits for the client IDs of
// all its identities, and an error of the spec is reported meanwhile.
func TestClientIDsComeFromAzure(t *testing.T) {
	r, cluster := renderer(), aggregate()
	r.Developer, r.Region.AzureKinds = false, fleet.AzureKinds()
	platform := cluster.Cluster.Spec.Platform
	platform.ControlPlaneOperators, platform.DataPlaneOperators = map[string]string{}, map[string]string{}
	for _, operator := range []string{"cluster-api-azure", "control-plane", "cloud-controller-manager", "ingress", "disk-csi-driver", "file-csi-driver", "image-registry", "cloud-network-config", "kms"} {
		platform.ControlPlaneOperators[operator] = identity + "CP-" + operator
	}
	for _, operator := range []string{"disk-csi-driver", "file-csi-driver", "image-registry"} {
		platform.DataPlaneOperators[operator] = identity + "dp-" + operator
	}
	cluster.Cluster.Spec.Identities = map[string]*csv1.UserAssignedIdentity{identity + "cp-ingress": {ClientId: "from-the-customer"}}
	cluster.Cluster.Spec.Etcd = &csv1.Etcd{KmsKey: &csv1.KmsKey{VaultName: "kv", KeyName: "k", KeyVersion: "1", VaultVisibility: csv1.Visibility_VISIBILITY_PUBLIC}}
	now := time.Unix(1_800_000_000, 0)
	settle := func() {
		t.Helper()
		must.Do(t, r.Region.Settle(now, cluster, r))
	}
	settle()
	if w := cluster.Work(fleet.HostedCluster, ""); w != nil {
		t.Fatalf("the HostedCluster is rendered before its client IDs are read: %+v", w)
	}
	step := cluster.Azure.Step(fleet.AzureIdentities)
	if step == nil || !step.Due || len(cluster.Azure.Steps) != 1 {
		t.Fatalf("the planned steps are %+v", cluster.Azure.Steps)
	}
	read := func(armID, clientID string) {
		cluster.Azure.Record(now, fleet.AzureOutcome{Kind: fleet.AzureIdentities, Error: "x", Facts: fleet.IdentityFacts(armID, clientID, "p")})
	}
	for operator, armID := range platform.ControlPlaneOperators {
		if operator != "kms" {
			read(strings.ToUpper(armID), "read-"+operator)
		}
	}
	for operator, armID := range platform.DataPlaneOperators {
		read(armID, "read-dp-"+operator)
	}
	settle()
	if cluster.Work(fleet.HostedCluster, "") != nil {
		t.Fatal("the HostedCluster is rendered although the identity of kms is unread")
	}
	cluster.Cluster.Release.Version = "not a version"
	if err := r.Region.Settle(now, cluster, r); err == nil {
		t.Error("an unread identity hides another error")
	}
	cluster.Cluster.Release.Version = "4.21.4"
	read(platform.ControlPlaneOperators["kms"], "read-kms")
	settle()
	bundle := must.Get(r.Bundle(cluster, cluster.Work(fleet.HostedCluster, "")))(t)
	var all strings.Builder
	for _, manifest := range bundle.Manifests {
		all.Write(manifest)
	}
	for operator := range platform.ControlPlaneOperators {
		if !strings.Contains(all.String(), `"clientID":"read-`+operator+`"`) {
			t.Errorf("the HostedCluster has no client ID of %s", operator)
		}
	}
	for operator := range platform.DataPlaneOperators {
		if !strings.Contains(all.String(), `MSIClientID":"read-dp-`+operator+`"`) {
			t.Errorf("the HostedCluster has no client ID of the data plane's %s", operator)
		}
	}
	if strings.Contains(all.String(), "from-the-customer") {
		t.Error("the HostedCluster has a client ID that the customer sent")
	}
}

// TestNamespaceNamesFit checks the length of the control plane's namespace: the name of the cluster's namespace with the
// name of the HostedCluster appended must not exceed 63 characters.
func TestNamespaceNamesFit(t *testing.T) {
	name := fleet.Namespace("arohcpprod", fleet.ClusterID(uid)) + "-" + fleet.Prefix(uid, 0)
	if len(name) > 63 {
		t.Errorf("%s has %d characters", name, len(name))
	}
}

// TestSecretsAreSealed searches the manifests for the signing key and the pull secret.
func TestSecretsAreSealed(t *testing.T) {
	r := renderer()
	aggregate := settled(t, r, variants["everything"])
	for _, w := range aggregate.Works {
		bundle := must.Get(r.Bundle(aggregate, w))(t)
		for _, manifest := range bundle.Manifests {
			for _, secret := range []string{signingKey, string(r.PullSecret)} {
				for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret))} {
					if strings.Contains(string(manifest), form) {
						t.Errorf("work %s: a manifest contains %q", w.Name, form)
					}
				}
			}
		}
	}
}

// TestMissingShardKey renders a cluster on a shard without a key, which gets one later.
func TestMissingShardKey(t *testing.T) {
	r := renderer()
	keys := r.ShardKeys
	r.ShardKeys = nil
	aggregate := settled(t, r, variants["plain"])
	w := aggregate.Work(fleet.HostedCluster, "")
	if _, err := r.Bundle(aggregate, w); err == nil || !strings.Contains(err.Error(), `"mgmt-1" has no public key`) || !strings.Contains(err.Error(), "mgmt-1.json") {
		t.Errorf("rendered without a key: %v", err)
	}
	r.Change(render.Settings{Config: r.Config, PullSecret: r.PullSecret, ShardKeys: keys})
	if _, err := r.Bundle(aggregate, w); err != nil {
		t.Error(err)
	}
	if outdated, err := fleet.Outdated(aggregate, r); err != nil || !outdated {
		t.Errorf("outdated %t, %v: the key did not change the digest", outdated, err)
	}
}

// TestOmittedRangesAreReported changes the ranges of a customer and of the region. The cluster reports which of the region's do not fit, also if
// the rendered content stays the same.
func TestOmittedRangesAreReported(t *testing.T) {
	r := configured()
	regional := func(ranges ...string) {
		c := *r.Config
		c.InternalAPICIDRs = ranges
		r.Change(render.Settings{Config: &c, PullSecret: r.PullSecret, ShardKeys: r.ShardKeys})
	}
	var customers []string
	for i := range 500 {
		customers = append(customers, fmt.Sprintf("203.0.%d.%d/32", i/256, i%256))
	}
	aggregate := settled(t, r, func(a *fleet.ClusterAggregate) { a.Cluster.Spec.Api.AuthorizedCidrs = customers })
	settle := func(renderer fleet.Renderer) {
		t.Helper()
		must.Do(t, r.Region.Settle(time.Unix(1_800_000_000, 0), aggregate, renderer))
	}
	requireReport := func(step, want string) {
		t.Helper()
		got := ""
		for _, c := range aggregate.Cluster.Status.Conditions {
			if c.GetType() == clusterstatus.InternalRangesAllowed {
				got = c.GetStatus() + " " + c.GetReason() + ": " + c.GetMessage()
			}
		}
		if want != "" {
			want = "False TooManyRanges: " + want + "."
		}
		if got != want {
			t.Errorf("%s: the condition is %q, want %q", step, got, want)
		}
	}
	const cause = " of internalAPICIDRs cannot reach the API, because HyperShift does not allow as many ranges together with properties.api.authorizedCidrs: "
	requireReport("no room", "1"+cause+"10.11.0.0/16")
	settle(nil)
	requireReport("without a rendering", "1"+cause+"10.11.0.0/16")

	digest := aggregate.Work(fleet.HostedCluster, "").Digest
	regional("10.11.0.0/16", "10.12.0.0/16", customers[0])
	if outdated, err := fleet.Outdated(aggregate, r); err != nil || !outdated {
		t.Errorf("with another range of the region: outdated %t, %v", outdated, err)
	}
	settle(r)
	requireReport("another range", "2"+cause+"10.11.0.0/16, 10.12.0.0/16")
	if outdated, err := fleet.Outdated(aggregate, r); err != nil || outdated || aggregate.Work(fleet.HostedCluster, "").Digest != digest {
		t.Errorf("after the report: outdated %t, %v", outdated, err)
	}

	aggregate.Cluster.Spec.Api.AuthorizedCidrs = customers[:499]
	settle(r)
	requireReport("room for one", "1"+cause+"10.12.0.0/16")
	aggregate.Cluster.Spec.Api.AuthorizedCidrs = nil
	settle(r)
	requireReport("all addresses may reach the API", "")
}

// TestControlPlaneNamespaceIsOnlyRead renders the work of a HostedCluster. The agent must report the identity of the control-plane
// namespace from a watch, and must never apply or delete it.
func TestControlPlaneNamespaceIsOnlyRead(t *testing.T) {
	r := renderer()
	aggregate := settled(t, r, func(*fleet.ClusterAggregate) {})
	bundle := must.Get(r.Bundle(aggregate, aggregate.Work(fleet.HostedCluster, "")))(t)
	found := 0
	for i, manifest := range bundle.Manifests {
		var object map[string]any
		must.Do(t, json.Unmarshal(manifest, &object))
		if object["kind"] != "Namespace" {
			continue
		}
		found++
		name := fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster)
		want := map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
		if diff := cmp.Diff(want, object); diff != "" {
			t.Error(diff)
		}
		config := bundle.Configs[i]
		paths := []string{}
		for _, rule := range config.FeedbackRules {
			for _, path := range rule.JsonPaths {
				paths = append(paths, path.Path)
			}
		}
		if config.ResourceIdentifier != (workv1.ResourceIdentifier{Resource: "namespaces", Name: name}) ||
			config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly || config.FeedbackScrapeType != workv1.FeedbackWatchType {
			t.Errorf("config %+v", config)
		}
		if diff := cmp.Diff([]string{".metadata.uid", ".metadata.creationTimestamp", ".metadata.deletionTimestamp"}, paths); diff != "" {
			t.Error(diff)
		}
	}
	if found != 1 {
		t.Errorf("%d control-plane namespaces", found)
	}
}

// TestRestartOfControlPlaneIsRendered checks that a requested restart changes the annotation for which HyperShift restarts a control
// plane, and the digest of the work; and that a control plane without such a request has no annotation.
func TestRestartOfControlPlaneIsRendered(t *testing.T) {
	r := renderer()
	render := func(restart *timestamppb.Timestamp) (annotation, digest string) {
		t.Helper()
		aggregate := settled(t, r, func(t *fleet.ClusterAggregate) { t.Cluster.Status.ControlPlaneRestartTime = restart })
		bundle := must.Get(r.Bundle(aggregate, aggregate.Work(fleet.HostedCluster, "")))(t)
		for _, manifest := range bundle.Manifests {
			var h hyperv1.HostedCluster
			if err := json.Unmarshal(manifest, &h); err == nil && h.Kind == "HostedCluster" {
				return h.Annotations[hyperv1.RestartDateAnnotation], bundle.Digest
			}
		}
		t.Fatal("the work has no HostedCluster")
		return "", ""
	}
	at := time.Date(2026, 3, 14, 15, 9, 26, 535e6, time.UTC)
	digests := map[string]bool{}
	for want, restart := range map[string]*timestamppb.Timestamp{
		"": nil, "2026-03-14T15:09:26.535Z": timestamppb.New(at), "2026-03-14T15:09:26.536Z": timestamppb.New(at.Add(time.Millisecond)),
	} {
		got, digest := render(restart)
		if got != want || digests[digest] {
			t.Errorf("the annotation is %q, want %q; the digest is that of another one: %t", got, want, digests[digest])
		}
		digests[digest] = true
	}
}

// TestRolloutReadsComponents checks that a rollout reads all components of a control plane and applies nothing.
func TestRolloutReadsComponents(t *testing.T) {
	r := renderer()
	aggregate := settled(t, r, func(aggregate *fleet.ClusterAggregate) {
		aggregate.Upgrades = []*fleet.Upgrade{{UID: "9a4b6f0e-7a52-4a0b-8a0d-0d4f0f6f3c42", ClusterUID: uid, Spec: &csv1.UpgradeSpec{}, Status: &csv1.UpgradeStatus{
			State: csv1.UpgradeState_UPGRADE_STATE_CONTROL_PLANE, Steps: []*csv1.UpgradeStep{{Kind: csv1.UpgradeStepKind_UPGRADE_STEP_KIND_CONTROL_PLANE,
				State: csv1.UpgradeStepState_UPGRADE_STEP_STATE_RUNNING, ToVersion: "4.21.4"}}}}}
	})
	i := slices.IndexFunc(aggregate.Works, func(w *fleet.Work) bool { return w.Kind == fleet.RolloutWork })
	if i < 0 {
		t.Fatalf("no rollout work among %v", aggregate.Works)
	}
	bundle := must.Get(r.Bundle(aggregate, aggregate.Works[i]))(t)
	var names []string
	for i, manifest := range bundle.Manifests {
		want := workv1.ResourceIdentifier{Group: "hypershift.openshift.io", Resource: "controlplanecomponents", Namespace: fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster)}
		var object struct {
			APIVersion, Kind string
			Metadata         struct{ Name, Namespace string }
		}
		must.Do(t, json.Unmarshal(manifest, &object))
		want.Name = object.Metadata.Name
		names = append(names, object.Metadata.Name)
		config := bundle.Configs[i]
		if object.APIVersion != "hypershift.openshift.io/v1beta1" || object.Kind != "ControlPlaneComponent" || object.Metadata.Namespace != want.Namespace ||
			config.ResourceIdentifier != want || config.UpdateStrategy.Type != workv1.UpdateStrategyTypeReadOnly || len(config.FeedbackRules) != 1 {
			t.Errorf("%s with %+v", manifest, config)
		}
	}
	if diff := cmp.Diff(release.ControlPlaneComponents(), names); diff != "" {
		t.Error(diff)
	}
	// A bundle must fit a message of Maestro, which may have 500 KiB.
	if text, err := json.Marshal(bundle); err != nil || len(text) > 64<<10 {
		t.Errorf("the bundle has %d bytes, %v", len(text), err)
	}
}

// TestSizesMatchDefinition checks that HyperShift's NodePool can have each size that the region can offer. A size that it cannot have would be
// accepted from customers, and then refused by management clusters.
func TestSizesMatchDefinition(t *testing.T) {
	schema := publishedSchema(t, "nodepools-Default")
	for _, field := range []string{"spec", "platform", "azure", "vmSize"} {
		property, ok := schema.Properties[field]
		if !ok {
			t.Fatalf("NodePool has no %s", field)
		}
		schema = &property
	}
	if schema.Pattern == "" || schema.MaxLength == nil {
		t.Fatal("the size of a NodePool has no pattern or no limit")
	}
	pattern := regexp.MustCompile(schema.Pattern)
	for _, name := range vmsize.Names() {
		if !pattern.MatchString(name) || int64(len(name)) > *schema.MaxLength {
			t.Errorf("HyperShift refuses the size %s: remove it from sizes.txt", name)
		}
	}
}

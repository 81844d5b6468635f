package render

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	configv1 "github.com/openshift/api/config/v1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"github.com/openshift/hypershift/api/util/ipnet"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/api/experiment"
	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Names of the Secrets in a HostedCluster's namespace that it refers to.
const (
	pullSecretName = "pull-secret"
	signingKeyName = "sa-signing-key"
)

func (r *Renderer) hostedCluster(t *fleet.ClusterAggregate) (*hyperv1.HostedCluster, error) {
	c := t.Cluster
	spec, prefix := c.Spec, c.Status.GetBaseDomainPrefix()
	version, err := release.ParseVersion(c.Release.Version)
	if err != nil {
		return nil, err
	}
	networking, err := r.networking(spec)
	if err != nil {
		return nil, err
	}
	etcdSize, err := resource.ParseQuantity(r.Config.Etcd.Size)
	if err != nil {
		return nil, fmt.Errorf("etcd.size of the configuration: %w", err)
	}
	configuration, err := r.configuration(c, t.RenderedExternalAuth())
	if err != nil {
		return nil, err
	}
	// What needs identities comes last, so that an unread identity does not hide another error.
	platform, err := r.azurePlatform(t)
	if err != nil && !errors.Is(err, fleet.ErrIdentityUnread) {
		return nil, err
	}
	encryption, encryptionErr := r.secretEncryption(t, spec.GetEtcd().GetKmsKey())
	if encryptionErr != nil {
		return nil, encryptionErr
	}
	if err != nil {
		return nil, err
	}
	availability := hyperv1.HighlyAvailable
	if spec.GetExperiments()[experiment.SingleReplica] == experiment.SingleReplicaValue {
		availability = hyperv1.SingleReplica
	}
	h := &hyperv1.HostedCluster{
		TypeMeta:   typeMeta(hyperv1.GroupVersion, "HostedCluster"),
		ObjectMeta: r.metadata(c, fleet.HostedClusterName(c), r.namespaceOf(c)),
		Spec: hyperv1.HostedClusterSpec{
			ClusterID:                        ClusterUUID(c).String(),
			InfraID:                          prefix,
			Channel:                          release.Channel(spec.GetVersion().GetChannelGroup(), version.MinorID()),
			Release:                          hyperv1.Release{Image: c.Release.Image},
			IssuerURL:                        r.Region.Issuer(c),
			ServiceAccountSigningKey:         &corev1.LocalObjectReference{Name: signingKeyName},
			KubeAPIServerDNSName:             r.Region.APIHost(prefix),
			ControllerAvailabilityPolicy:     availability,
			InfrastructureAvailabilityPolicy: availability,
			FIPS:                             spec.GetFips(),
			OLMCatalogPlacement:              hyperv1.GuestOLMCatalogPlacement,
			DNS:                              hyperv1.DNSSpec{BaseDomain: r.Region.ClusterDomain(prefix), BaseDomainPrefix: new("")},
			Networking:                       networking,
			Etcd: hyperv1.EtcdSpec{ManagementType: hyperv1.Managed, Managed: &hyperv1.ManagedEtcdSpec{Storage: hyperv1.ManagedEtcdStorageSpec{
				Type:             hyperv1.PersistentVolumeEtcdStorage,
				PersistentVolume: &hyperv1.PersistentVolumeEtcdStorageSpec{Size: &etcdSize, StorageClassName: &r.Config.Etcd.StorageClass}}}},
			PullSecret:          corev1.LocalObjectReference{Name: pullSecretName},
			Platform:            hyperv1.PlatformSpec{Type: hyperv1.AzurePlatform, Azure: platform},
			Autoscaling:         autoscaling(spec.GetAutoscaling()),
			ImageContentSources: r.imageContentSources(spec),
			Configuration:       configuration,
			SecretEncryption:    encryption,
			PausedUntil:         pausedUntil(c),
		},
	}
	for _, service := range fleet.Services() {
		h.Spec.Services = append(h.Spec.Services, hyperv1.ServicePublishingStrategyMapping{Service: hyperv1.ServiceType(service),
			ServicePublishingStrategy: hyperv1.ServicePublishingStrategy{Type: hyperv1.Route,
				Route: &hyperv1.RoutePublishingStrategy{Hostname: r.Region.ServiceHost(service, prefix)}}})
	}
	if !spec.GetImageRegistryEnabled() {
		h.Spec.Capabilities = &hyperv1.Capabilities{Disabled: []hyperv1.OptionalCapability{hyperv1.ImageRegistryCapability}}
	}
	h.Annotations = map[string]string{
		managementcluster.AnnotationClusterResourceID: c.ResourceID,
		hyperv1.CleanupCloudResourcesAnnotation:       "true",
	}
	for annotation, value := range map[string]string{
		hyperv1.ClusterSizeOverrideAnnotation:       c.Size(),
		hyperv1.ControlPlaneOperatorImageAnnotation: spec.GetExperiments()[experiment.ControlPlaneOperatorImage],
		// HyperShift upgrades to exactly this image although the cluster reports that it is not ready for it.
		hyperv1.ForceUpgradeToAnnotation: t.ForceUpgradeTo(),
		// HyperShift restarts all components of the control plane when the value changes.
		hyperv1.RestartDateAnnotation: restartDate(c),
	} {
		if value != "" {
			h.Annotations[annotation] = value
		}
	}
	return h, nil
}

// restartDate returns the value that changes with each requested restart of the control plane; empty if none was requested.
func restartDate(c *fleet.Cluster) string {
	if restart := c.RestartTime(); !restart.IsZero() {
		return restart.Format(time.RFC3339Nano)
	}
	return ""
}

// ClusterUUID returns the OpenShift cluster ID. It is derived from the UID, so that every rendering gives the same.
func ClusterUUID(c *fleet.Cluster) uuid.UUID {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("hcpmesh openshift cluster id\n"+c.UID))
}

func (r *Renderer) azurePlatform(t *fleet.ClusterAggregate) (*hyperv1.AzurePlatformSpec, error) {
	c := t.Cluster
	identities, err := r.managedIdentities(t)
	platform := c.Spec.GetPlatform()
	return &hyperv1.AzurePlatformSpec{
		Cloud:             r.Config.Azure.Cloud,
		Location:          c.Spec.GetLocation(),
		SubscriptionID:    platform.GetSubscriptionId(),
		TenantID:          c.Spec.GetTenantId(),
		ResourceGroupName: platform.GetManagedResourceGroup(),
		VnetID:            vnetOf(platform.GetSubnetId()),
		SubnetID:          platform.GetSubnetId(),
		SecurityGroupID:   platform.GetNetworkSecurityGroupId(),
		AzureAuthenticationConfig: hyperv1.AzureAuthenticationConfiguration{
			AzureAuthenticationConfigType: hyperv1.AzureAuthenticationTypeManagedIdentities,
			ManagedIdentities:             identities,
		},
	}, err
}

func (r *Renderer) networking(spec *csv1.ClusterSpec) (hyperv1.ClusterNetworking, error) {
	n := spec.GetNetwork()
	var wrong []error
	parse := func(field, cidr string) ipnet.IPNet {
		parsed, err := ipnet.ParseCIDR(cidr)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("spec.network.%s: %w", field, err))
			return ipnet.IPNet{}
		}
		return *parsed
	}
	networking := hyperv1.ClusterNetworking{
		NetworkType:    hyperv1.NetworkType(n.GetNetworkType()),
		MachineNetwork: []hyperv1.MachineNetworkEntry{{CIDR: parse("machine_cidr", n.GetMachineCidr())}},
		ClusterNetwork: []hyperv1.ClusterNetworkEntry{{CIDR: parse("pod_cidr", n.GetPodCidr()), HostPrefix: n.GetHostPrefix()}},
		ServiceNetwork: []hyperv1.ServiceNetworkEntry{{CIDR: parse("service_cidr", n.GetServiceCidr())}},
	}
	if allowed, _ := r.ranges(spec); len(allowed) > 0 {
		networking.APIServer = &hyperv1.APIServerNetworking{AllowedCIDRBlocks: allowed}
	}
	return networking, errors.Join(wrong...)
}

// ranges returns the ranges that may reach the API of a cluster, and those of the region that it leaves out. The CRD accepts as many ranges as the
// frontend accepts of a customer, so that the region gets what the customer's list leaves. Without such a list, every address may reach the API, and
// both results are empty.
func (r *Renderer) ranges(spec *csv1.ClusterSpec) (allowed []hyperv1.CIDRBlock, omitted []string) {
	customers := spec.GetApi().GetAuthorizedCidrs()
	if len(customers) == 0 {
		return nil, nil
	}
	for _, cidr := range slices.Concat(customers, r.Config.InternalAPICIDRs) {
		switch block := hyperv1.CIDRBlock(cidr); {
		case slices.Contains(allowed, block): // the CRD rejects duplicates
		case len(allowed) < maxAllowedCIDRBlocks:
			allowed = append(allowed, block)
		default:
			omitted = append(omitted, cidr)
		}
	}
	return allowed, omitted
}

// OmittedRanges implements fleet.Renderer.
func (r *Renderer) OmittedRanges(c *fleet.Cluster) []string {
	_, omitted := r.snapshot().ranges(c.Spec)
	return omitted
}

// maxAllowedCIDRBlocks is the most ranges that the CRD accepts.
const maxAllowedCIDRBlocks = 500

func autoscaling(a *csv1.ClusterAutoscaling) hyperv1.ClusterAutoscaling {
	var out hyperv1.ClusterAutoscaling
	if a == nil {
		return out
	}
	if n := a.GetMaxNodesTotal(); n > 0 {
		out.MaxNodesTotal = &n
	}
	if a.GetMaxPodGracePeriod() != nil {
		out.MaxPodGracePeriod = new(int32(a.GetMaxPodGracePeriod().AsDuration() / time.Second))
	}
	if a.GetMaxNodeProvisionTime() != nil {
		out.MaxNodeProvisionTime = minutesSeconds(a.GetMaxNodeProvisionTime().AsDuration())
	}
	out.PodPriorityThreshold = new(a.GetPodPriorityThreshold())
	return out
}

// minutesSeconds formats a duration as HyperShift's pattern for maxNodeProvisionTime requires: no fraction, no zero units.
func minutesSeconds(d time.Duration) string {
	d = d.Round(time.Second)
	minutes, seconds := d/time.Minute, d%time.Minute/time.Second
	switch {
	case seconds == 0:
		return fmt.Sprintf("%dm", minutes)
	case minutes == 0:
		return fmt.Sprintf("%ds", seconds)
	}
	return fmt.Sprintf("%dm%ds", minutes, seconds)
}

func (r *Renderer) imageContentSources(spec *csv1.ClusterSpec) []hyperv1.ImageContentSource {
	var sources []hyperv1.ImageContentSource
	for _, s := range r.Config.ImageContentSources {
		sources = append(sources, hyperv1.ImageContentSource{Source: s.Source, Mirrors: s.Mirrors})
	}
	for _, m := range spec.GetImageDigestMirrors() {
		sources = append(sources, hyperv1.ImageContentSource{Source: m.GetSource(), Mirrors: m.GetMirrors()})
	}
	return sources
}

// configuration returns spec.configuration: the API server's certificate and the external authentication, where there are any.
func (r *Renderer) configuration(c *fleet.Cluster, auth *fleet.ExternalAuth) (*hyperv1.ClusterConfiguration, error) {
	configuration := &hyperv1.ClusterConfiguration{}
	if r.Config.ServingCertificates != nil {
		configuration.APIServer = &configv1.APIServerSpec{ServingCerts: configv1.APIServerServingCerts{NamedCertificates: []configv1.APIServerNamedServingCert{{
			Names:              []string{r.Region.APIHost(c.Status.GetBaseDomainPrefix())},
			ServingCertificate: configv1.SecretNameReference{Name: servingCertName}}}}}
	}
	if auth == nil {
		return configuration, nil
	}
	var err error
	configuration.Authentication, err = authentication(auth)
	return configuration, err
}

// secretEncryption returns the encryption of etcd's data with the customer's key, and nil if there is no key.
func (r *Renderer) secretEncryption(t *fleet.ClusterAggregate, key *csv1.KmsKey) (*hyperv1.SecretEncryptionSpec, error) {
	if key == nil {
		return nil, nil
	}
	access, err := keyVaultAccess(key.GetVaultVisibility())
	if err != nil {
		return nil, err
	}
	identity, err := r.controlPlaneIdentity(t, "kms")
	return &hyperv1.SecretEncryptionSpec{Type: hyperv1.KMS, KMS: &hyperv1.KMSSpec{Provider: hyperv1.AZURE, Azure: &hyperv1.AzureKMSSpec{
		ActiveKey:      hyperv1.AzureKMSKey{KeyVaultName: key.GetVaultName(), KeyName: key.GetKeyName(), KeyVersion: key.GetKeyVersion()},
		KMS:            identity,
		KeyVaultAccess: access,
	}}}, err
}

func keyVaultAccess(v csv1.Visibility) (hyperv1.AzureKeyVaultAccessType, error) {
	switch v {
	case csv1.Visibility_VISIBILITY_PUBLIC:
		return hyperv1.AzureKeyVaultPublic, nil
	case csv1.Visibility_VISIBILITY_PRIVATE:
		return hyperv1.AzureKeyVaultPrivate, nil
	case csv1.Visibility_VISIBILITY_UNSPECIFIED:
	}
	return "", unsupported("spec.etcd.kms_key.vault_visibility", v, csv1.Visibility_VISIBILITY_PUBLIC, csv1.Visibility_VISIBILITY_PRIVATE)
}

// secrets returns the Secrets that a HostedCluster refers to, sealed for the agent of the shard.
func (r *Renderer) secrets(c *fleet.Cluster) ([]*unstructured.Unstructured, error) {
	key, err := r.Open(c.UID, c.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("decrypt the signing key of cluster %s: %w", c.ID(), err)
	}
	shardKey := r.ShardKeys[c.Shard]
	if shardKey == nil {
		return nil, fmt.Errorf("provision shard %q has no public key: --shard-keys-dir needs the file %s.json", c.Shard, c.Shard)
	}
	secrets, err := manifests(
		r.secret(c, pullSecretName, corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: r.PullSecret}),
		r.secret(c, signingKeyName, corev1.SecretTypeOpaque, map[string][]byte{"key": key}))
	if err != nil {
		return nil, err
	}
	for _, secret := range secrets {
		if err := seal.SealSecret(secret.Object, c.Shard, shardKey); err != nil {
			return nil, fmt.Errorf("seal Secret %s of cluster %s: %w", secret.GetName(), c.ID(), err)
		}
	}
	return secrets, nil
}

func (r *Renderer) secret(c *fleet.Cluster, name string, kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{TypeMeta: typeMeta(corev1.SchemeGroupVersion, "Secret"), ObjectMeta: r.metadata(c, name, r.namespaceOf(c)), Type: kind, Data: data}
}

// vnetOf returns the virtual network of a subnet's resource ID.
func vnetOf(subnetID string) string {
	i := strings.LastIndex(strings.ToLower(subnetID), "/subnets/")
	if i < 0 {
		return subnetID
	}
	return subnetID[:i]
}

// pausedUntil returns the end of a cluster's pause, and nil if it is not paused. HyperShift does not reconcile a paused
// object until then, but still deletes it.
func pausedUntil(c *fleet.Cluster) *string {
	if until := c.Paused(); !until.IsZero() {
		return new(until.UTC().Format(time.RFC3339))
	}
	return nil
}

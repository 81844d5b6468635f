package v20260901preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// Cluster is the resource hcpOpenShiftClusters.
type Cluster struct {
	ID         string             `json:"id,omitempty"`
	Name       string             `json:"name,omitempty"`
	Type       string             `json:"type,omitempty"`
	Location   string             `json:"location,omitempty"`
	Tags       map[string]string  `json:"tags,omitempty"`
	SystemData *SystemData        `json:"systemData,omitempty"`
	Identity   *Identity          `json:"identity,omitempty"`
	Properties *ClusterProperties `json:"properties,omitempty"`
}

// ClusterProperties are the properties of a cluster.
type ClusterProperties struct {
	ProvisioningState       string              `json:"provisioningState,omitempty"`
	Version                 *VersionProfile     `json:"version,omitempty"`
	DNS                     *DNSProfile         `json:"dns,omitempty"`
	Network                 *NetworkProfile     `json:"network,omitempty"`
	Console                 *ConsoleProfile     `json:"console,omitempty"`
	API                     *APIProfile         `json:"api,omitempty"`
	Ingress                 *IngressProfile     `json:"ingress,omitempty"`
	Platform                *PlatformProfile    `json:"platform,omitempty"`
	Autoscaling             *AutoscalingProfile `json:"autoscaling,omitempty"`
	Etcd                    *EtcdProfile        `json:"etcd,omitempty"`
	ImageDigestMirrors      []ImageDigestMirror `json:"imageDigestMirrors,omitempty"`
	NodeDrainTimeoutMinutes int32               `json:"nodeDrainTimeoutMinutes,omitempty"`
	ClusterImageRegistry    *ImageRegistry      `json:"clusterImageRegistry,omitempty"`
	CryptoRestrictions      string              `json:"cryptoRestrictions,omitempty"`
	Status                  *Status             `json:"status,omitempty"`
}

// VersionProfile selects a release.
type VersionProfile struct {
	ID           string `json:"id,omitempty"`
	ChannelGroup string `json:"channelGroup,omitempty"`
}

// DNSProfile names the cluster.
type DNSProfile struct {
	BaseDomain       string `json:"baseDomain,omitempty"`
	BaseDomainPrefix string `json:"baseDomainPrefix,omitempty"`
}

// NetworkProfile holds the address ranges.
type NetworkProfile struct {
	NetworkType string `json:"networkType,omitempty"`
	PodCIDR     string `json:"podCidr,omitempty"`
	ServiceCIDR string `json:"serviceCidr,omitempty"`
	MachineCIDR string `json:"machineCidr,omitempty"`
	HostPrefix  int32  `json:"hostPrefix,omitempty"`
}

// ConsoleProfile is the web console.
type ConsoleProfile struct {
	URL string `json:"url,omitempty"`
}

// APIProfile is the Kubernetes API endpoint.
type APIProfile struct {
	URL             string   `json:"url,omitempty"`
	Visibility      string   `json:"visibility,omitempty"`
	AuthorizedCIDRs []string `json:"authorizedCidrs,omitempty"`
}

// IngressProfile is the default ingress.
type IngressProfile struct {
	Type string `json:"type,omitempty"`
}

// PlatformProfile is where the cluster lives in Azure.
type PlatformProfile struct {
	ManagedResourceGroup    string                   `json:"managedResourceGroup,omitempty"`
	SubnetID                string                   `json:"subnetId,omitempty"`
	VnetIntegrationSubnetID string                   `json:"vnetIntegrationSubnetId,omitempty"`
	OutboundType            string                   `json:"outboundType,omitempty"`
	NetworkSecurityGroupID  string                   `json:"networkSecurityGroupId,omitempty"`
	OperatorsAuthentication *OperatorsAuthentication `json:"operatorsAuthentication,omitempty"`
	IssuerURL               string                   `json:"issuerUrl,omitempty"`
}

// OperatorsAuthentication holds the identities of the cluster's operators.
type OperatorsAuthentication struct {
	UserAssignedIdentities *OperatorIdentities `json:"userAssignedIdentities,omitempty"`
}

// OperatorIdentities are ARM ids of identities by operator name.
type OperatorIdentities struct {
	ControlPlaneOperators  map[string]string `json:"controlPlaneOperators,omitempty"`
	DataPlaneOperators     map[string]string `json:"dataPlaneOperators,omitempty"`
	ServiceManagedIdentity string            `json:"serviceManagedIdentity,omitempty"`
}

// AutoscalingProfile configures the cluster autoscaler. A priority threshold of 0 is shown, for the default is another.
type AutoscalingProfile struct {
	MaxNodesTotal               int32 `json:"maxNodesTotal,omitempty"`
	MaxPodGracePeriodSeconds    int32 `json:"maxPodGracePeriodSeconds,omitempty"`
	MaxNodeProvisionTimeSeconds int32 `json:"maxNodeProvisionTimeSeconds,omitempty"`
	PodPriorityThreshold        int32 `json:"podPriorityThreshold"`
}

// EtcdProfile configures the control plane's store.
type EtcdProfile struct {
	DataEncryption *DataEncryption `json:"dataEncryption,omitempty"`
}

// DataEncryption says who holds the key of the data at rest.
type DataEncryption struct {
	KeyManagementMode string           `json:"keyManagementMode,omitempty"`
	CustomerManaged   *CustomerManaged `json:"customerManaged,omitempty"`
}

// CustomerManaged is a key of the customer's.
type CustomerManaged struct {
	EncryptionType string `json:"encryptionType,omitempty"`
	KMS            *KMS   `json:"kms,omitempty"`
}

// KMS is a key in a Key Vault.
type KMS struct {
	VaultName  string  `json:"vaultName,omitempty"`
	Visibility string  `json:"visibility,omitempty"`
	ActiveKey  *KMSKey `json:"activeKey,omitempty"`
}

// KMSKey is one version of a key.
type KMSKey struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

// ImageDigestMirror redirects pulls by digest.
type ImageDigestMirror struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
}

// ImageRegistry is the cluster's own image registry.
type ImageRegistry struct {
	State string `json:"state,omitempty"`
}

// The modes of etcd's data encryption. This version's vocabulary has the customer's key only; a cluster with the
// platform's key has no etcd object.
const (
	platformManaged = "PlatformManaged"
	customerManaged = "CustomerManaged"
)

// EncodeCluster shows a cluster as this version has it.
func EncodeCluster(cluster *hub.Cluster, state hub.ProvisioningState, status *hub.ClusterStatus) *Cluster {
	p := &cluster.Properties
	return &Cluster{
		ID: cluster.ID, Name: cluster.Name, Type: cluster.Type, Location: cluster.Location, Tags: cluster.Tags,
		SystemData: encodeSystemData(cluster.SystemData),
		Identity:   encodeIdentity(cluster.Identity),
		Properties: &ClusterProperties{
			ProvisioningState: string(state),
			Version:           orNil(VersionProfile(p.Version)),
			DNS:               orNil(DNSProfile{BaseDomain: status.BaseDomain, BaseDomainPrefix: p.DNS.BaseDomainPrefix}),
			Network:           orNil(NetworkProfile(p.Network)),
			Console:           orNil(ConsoleProfile{URL: status.ConsoleURL}),
			API:               encodeAPI(&p.API, status.APIURL),
			Ingress:           orNil(IngressProfile{Type: string(p.Ingress.Type)}),
			Platform:          encodePlatform(&p.Platform, status.IssuerURL),
			Autoscaling:       orNil(AutoscalingProfile(p.Autoscaling)),
			Etcd:              encodeEtcd(&p.Etcd.DataEncryption),

			ImageDigestMirrors:      encodeMirrors(p.ImageDigestMirrors),
			NodeDrainTimeoutMinutes: p.NodeDrainTimeoutMinutes,
			ClusterImageRegistry:    orNil(ImageRegistry(p.ClusterImageRegistry)),
			CryptoRestrictions:      p.CryptoRestrictions,
			Status:                  encodeStatus(status.Conditions),
		},
	}
}

// orNil is nil for an empty object, which responses leave out.
func orNil[T comparable](value T) *T {
	var empty T
	if value == empty {
		return nil
	}
	return &value
}

func encodeAPI(api *hub.API, url string) *APIProfile {
	if url == "" && api.Visibility == "" && api.AuthorizedCIDRs == nil {
		return nil
	}
	return &APIProfile{URL: url, Visibility: string(api.Visibility), AuthorizedCIDRs: api.AuthorizedCIDRs}
}

func encodePlatform(platform *hub.Platform, issuerURL string) *PlatformProfile {
	encoded := &PlatformProfile{
		ManagedResourceGroup:    platform.ManagedResourceGroup,
		SubnetID:                platform.SubnetID,
		VnetIntegrationSubnetID: platform.VnetIntegrationSubnetID,
		OutboundType:            platform.OutboundType,
		NetworkSecurityGroupID:  platform.NetworkSecurityGroupID,
		IssuerURL:               issuerURL,
	}
	ids := platform.OperatorsAuthentication.UserAssignedIdentities
	if len(ids.ControlPlaneOperators)+len(ids.DataPlaneOperators) > 0 || ids.ServiceManagedIdentity != "" {
		encoded.OperatorsAuthentication = &OperatorsAuthentication{UserAssignedIdentities: &OperatorIdentities{
			ControlPlaneOperators:  ids.ControlPlaneOperators,
			DataPlaneOperators:     ids.DataPlaneOperators,
			ServiceManagedIdentity: ids.ServiceManagedIdentity,
		}}
	}
	if *encoded == (PlatformProfile{}) {
		return nil
	}
	return encoded
}

func encodeEtcd(encryption *hub.DataEncryption) *EtcdProfile {
	if encryption.KeyManagementMode != customerManaged {
		return nil
	}
	encoded := &DataEncryption{KeyManagementMode: encryption.KeyManagementMode}
	if managed := encryption.CustomerManaged; managed != nil {
		encoded.CustomerManaged = &CustomerManaged{EncryptionType: managed.EncryptionType}
		if kms := managed.KMS; kms != nil {
			encoded.CustomerManaged.KMS = &KMS{
				VaultName: kms.VaultName, Visibility: string(kms.Visibility), ActiveKey: orNil(KMSKey(kms.ActiveKey)),
			}
		}
	}
	return &EtcdProfile{DataEncryption: encoded}
}

func encodeMirrors(mirrors []hub.ImageDigestMirror) []ImageDigestMirror {
	if len(mirrors) == 0 {
		return nil
	}
	encoded := make([]ImageDigestMirror, len(mirrors))
	for i, mirror := range mirrors {
		encoded[i] = ImageDigestMirror(mirror)
	}
	return encoded
}

// DecodeCluster reads a body over base, the cluster as it stands, or, for a new one, with only its id, name and type.
// What a PUT may leave out without changing it, and every read-only field, comes from base.
func DecodeCluster(body *wire.Body, base *hub.Cluster, defaults Defaults) *hub.Cluster {
	cluster := &hub.Cluster{Resource: decodeResource(body, base.Resource)}
	properties := body.Child("properties")
	stored := &base.Properties
	p := &cluster.Properties

	p.Version = decodeVersion(properties.Child("version"), defaults)
	p.DNS.BaseDomainPrefix = properties.Child("dns").String("baseDomainPrefix", stored.DNS.BaseDomainPrefix)

	network := properties.Child("network")
	p.Network = hub.Network{
		NetworkType: network.Enum("networkType", defaults.text("OVNKubernetes"), "OVNKubernetes", "Other"),
		PodCIDR:     network.String("podCidr", defaults.text("10.128.0.0/14")),
		ServiceCIDR: network.String("serviceCidr", defaults.text("172.30.0.0/16")),
		MachineCIDR: network.String("machineCidr", defaults.text("10.0.0.0/16")),
		HostPrefix:  network.Int32("hostPrefix", defaults.number(23)),
	}

	api := properties.Child("api")
	p.API = hub.API{
		Visibility:      hub.Visibility(api.Enum("visibility", defaults.text("Public"), "Public", "Private")),
		AuthorizedCIDRs: api.Strings("authorizedCidrs"),
	}
	p.Ingress.Type = hub.Visibility(properties.Child("ingress").Enum("type", defaults.text("Public"), "Public", "Private"))
	p.Platform = decodePlatform(properties.Child("platform"), &stored.Platform, defaults)

	autoscaling := properties.Child("autoscaling")
	p.Autoscaling = hub.Autoscaling{
		MaxNodesTotal:               autoscaling.Int32("maxNodesTotal", 0),
		MaxPodGracePeriodSeconds:    autoscaling.Int32("maxPodGracePeriodSeconds", defaults.number(600)),
		MaxNodeProvisionTimeSeconds: autoscaling.Int32("maxNodeProvisionTimeSeconds", defaults.number(900)),
		PodPriorityThreshold:        autoscaling.Int32("podPriorityThreshold", defaults.number(-10)),
	}
	p.Etcd.DataEncryption = decodeDataEncryption(properties.Child("etcd").Child("dataEncryption"), defaults)
	for _, o := range properties.Children("imageDigestMirrors") {
		p.ImageDigestMirrors = append(p.ImageDigestMirrors, hub.ImageDigestMirror{
			Source: o.String("source", ""), Mirrors: o.Strings("mirrors"),
		})
	}
	p.NodeDrainTimeoutMinutes = properties.Int32("nodeDrainTimeoutMinutes", 0)
	p.ClusterImageRegistry.State = properties.Child("clusterImageRegistry").Enum("state", defaults.text("Enabled"), "Enabled", "Disabled")
	p.CryptoRestrictions = properties.Enum("cryptoRestrictions", defaults.text("None"), "None", "FIPS")
	return cluster
}

func decodeVersion(o *wire.Object, defaults Defaults) hub.Version {
	return hub.Version{ID: o.String("id", ""), ChannelGroup: o.String("channelGroup", defaults.text("stable"))}
}

func decodePlatform(o *wire.Object, stored *hub.Platform, defaults Defaults) hub.Platform {
	identities := o.Child("operatorsAuthentication").Child("userAssignedIdentities")
	return hub.Platform{
		ManagedResourceGroup:    o.String("managedResourceGroup", stored.ManagedResourceGroup),
		SubnetID:                o.String("subnetId", ""),
		VnetIntegrationSubnetID: o.String("vnetIntegrationSubnetId", ""),
		OutboundType:            o.Enum("outboundType", defaults.text("LoadBalancer"), "LoadBalancer"),
		NetworkSecurityGroupID:  o.String("networkSecurityGroupId", ""),
		OperatorsAuthentication: hub.OperatorsAuthentication{UserAssignedIdentities: hub.OperatorIdentities{
			ControlPlaneOperators:  identities.StringMap("controlPlaneOperators"),
			DataPlaneOperators:     identities.StringMap("dataPlaneOperators"),
			ServiceManagedIdentity: identities.String("serviceManagedIdentity", ""),
		}},
	}
}

func decodeDataEncryption(o *wire.Object, defaults Defaults) hub.DataEncryption {
	if o == nil {
		return hub.DataEncryption{KeyManagementMode: platformManaged}
	}
	encryption := hub.DataEncryption{KeyManagementMode: o.Enum("keyManagementMode", "", customerManaged)}
	managed := o.Child("customerManaged")
	if managed == nil {
		return encryption
	}
	encryption.CustomerManaged = &hub.CustomerManagedEncryption{
		EncryptionType: managed.Enum("encryptionType", defaults.text("KMS"), "KMS"),
	}
	if kms := managed.Child("kms"); kms != nil {
		key := kms.Child("activeKey")
		encryption.CustomerManaged.KMS = &hub.KMSEncryption{
			VaultName:  kms.String("vaultName", ""),
			Visibility: hub.Visibility(kms.Enum("visibility", "", "Public", "Private")),
			ActiveKey:  hub.KMSKey{Name: key.String("name", ""), Version: key.String("version", "")},
		}
	}
	return encryption
}

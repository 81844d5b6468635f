package hub

// Cluster is the ARM resource hcpOpenShiftClusters.
type Cluster struct {
	Resource
	Properties ClusterProperties `json:"properties"`
}

// ClusterProperties holds the properties of a cluster that the customer sets. Read-only values are in ClusterStatus.
type ClusterProperties struct {
	Version              Version             `json:"version"`
	DNS                  DNS                 `json:"dns"`
	Network              Network             `json:"network"`
	API                  API                 `json:"api"`
	Ingress              Ingress             `json:"ingress"`
	Platform             Platform            `json:"platform"`
	Autoscaling          Autoscaling         `json:"autoscaling"`
	Etcd                 Etcd                `json:"etcd"`
	ImageDigestMirrors   []ImageDigestMirror `json:"imageDigestMirrors,omitempty"`
	ClusterImageRegistry ImageRegistry       `json:"clusterImageRegistry"`
	// CryptoRestrictions is None or FIPS.
	CryptoRestrictions string `json:"cryptoRestrictions,omitempty"`
	// NodeDrainTimeoutMinutes is 0 to 10080; 0 means no limit.
	NodeDrainTimeoutMinutes int32 `json:"nodeDrainTimeoutMinutes,omitempty"`
}

// DNS configures the cluster's domain name.
type DNS struct {
	// BaseDomainPrefix has at most 15 characters. The service generates it if the customer sets none.
	BaseDomainPrefix string `json:"baseDomainPrefix,omitempty"`
}

// Network holds the cluster's address ranges, IPv4 CIDRs.
type Network struct {
	NetworkType string `json:"networkType,omitempty"`
	PodCIDR     string `json:"podCidr,omitempty"`
	ServiceCIDR string `json:"serviceCidr,omitempty"`
	MachineCIDR string `json:"machineCidr,omitempty"`
	HostPrefix  int32  `json:"hostPrefix,omitempty"`
}

// API configures the hosted Kubernetes API endpoint.
type API struct {
	Visibility Visibility `json:"visibility,omitempty"`
	// AuthorizedCIDRs are the address ranges that may reach the API; nil means all addresses.
	AuthorizedCIDRs []string `json:"authorizedCidrs,omitempty"`
}

// Ingress configures the default ingress of the data plane.
type Ingress struct {
	Type Visibility `json:"type,omitempty"`
}

// Platform holds the Azure resources that the cluster uses.
type Platform struct {
	ManagedResourceGroup    string                  `json:"managedResourceGroup,omitempty"`
	SubnetID                string                  `json:"subnetId,omitempty"`
	VnetIntegrationSubnetID string                  `json:"vnetIntegrationSubnetId,omitempty"`
	OutboundType            string                  `json:"outboundType,omitempty"`
	NetworkSecurityGroupID  string                  `json:"networkSecurityGroupId,omitempty"`
	OperatorsAuthentication OperatorsAuthentication `json:"operatorsAuthentication"`
}

// OperatorsAuthentication holds the managed identities of the cluster's operators.
type OperatorsAuthentication struct {
	UserAssignedIdentities OperatorIdentities `json:"userAssignedIdentities"`
}

// OperatorIdentities holds ARM IDs of managed identities by operator name.
type OperatorIdentities struct {
	ControlPlaneOperators  map[string]string `json:"controlPlaneOperators,omitempty"`
	DataPlaneOperators     map[string]string `json:"dataPlaneOperators,omitempty"`
	ServiceManagedIdentity string            `json:"serviceManagedIdentity,omitempty"`
}

// Autoscaling configures the cluster autoscaler.
type Autoscaling struct {
	// MaxNodesTotal is 0 to 500; 0 means that the cluster sets no limit.
	MaxNodesTotal               int32 `json:"maxNodesTotal,omitempty"`
	MaxPodGracePeriodSeconds    int32 `json:"maxPodGracePeriodSeconds,omitempty"`
	MaxNodeProvisionTimeSeconds int32 `json:"maxNodeProvisionTimeSeconds,omitempty"`
	PodPriorityThreshold        int32 `json:"podPriorityThreshold"`
}

// Etcd configures the store of the control plane.
type Etcd struct {
	DataEncryption DataEncryption `json:"dataEncryption"`
}

// DataEncryption configures the key that encrypts etcd's data at rest.
type DataEncryption struct {
	// KeyManagementMode is PlatformManaged or CustomerManaged.
	KeyManagementMode string                     `json:"keyManagementMode,omitempty"`
	CustomerManaged   *CustomerManagedEncryption `json:"customerManaged,omitempty"`
}

// CustomerManagedEncryption configures encryption with a key that the customer manages.
type CustomerManagedEncryption struct {
	// EncryptionType is KMS.
	EncryptionType string         `json:"encryptionType,omitempty"`
	KMS            *KMSEncryption `json:"kms,omitempty"`
}

// KMSEncryption configures a key in an Azure Key Vault.
type KMSEncryption struct {
	VaultName  string     `json:"vaultName,omitempty"`
	Visibility Visibility `json:"visibility,omitempty"`
	ActiveKey  KMSKey     `json:"activeKey"`
}

// KMSKey names one version of a key.
type KMSKey struct {
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
}

// ImageDigestMirror lists the mirrors of a source for image pulls by digest.
type ImageDigestMirror struct {
	Source  string   `json:"source"`
	Mirrors []string `json:"mirrors"`
}

// ImageRegistry configures the cluster's own image registry.
type ImageRegistry struct {
	// State is Enabled or Disabled.
	State string `json:"state,omitempty"`
}

// ClusterStatus holds the values that the service reports for a cluster: the read-only values of the ARM resource.
type ClusterStatus struct {
	Conditions     []Condition `json:"conditions,omitempty"`
	APIURL         string      `json:"apiUrl,omitempty"`
	BaseDomain     string      `json:"baseDomain,omitempty"`
	ConsoleURL     string      `json:"consoleUrl,omitempty"`
	IssuerURL      string      `json:"issuerUrl,omitempty"`
	ActiveVersions []string    `json:"activeVersions,omitempty"`
	Progress       []Progress  `json:"progress,omitempty"`
	// Identities holds the client and principal IDs that Cluster Service has read from Azure, by the Key of the ARM ID.
	Identities map[string]UserAssignedIdentity `json:"identities,omitempty"`
}

package v20260901preview

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/wire"
)

// NodePool is the resource hcpOpenShiftClusters/nodePools.
type NodePool struct {
	ID         string              `json:"id,omitempty"`
	Name       string              `json:"name,omitempty"`
	Type       string              `json:"type,omitempty"`
	Location   string              `json:"location,omitempty"`
	Tags       map[string]string   `json:"tags,omitempty"`
	SystemData *SystemData         `json:"systemData,omitempty"`
	Identity   *Identity           `json:"identity,omitempty"`
	Properties *NodePoolProperties `json:"properties,omitempty"`
}

// NodePoolProperties are the properties of a node pool.
type NodePoolProperties struct {
	ProvisioningState string                   `json:"provisioningState,omitempty"`
	Version           *VersionProfile          `json:"version,omitempty"`
	Platform          *NodePoolPlatformProfile `json:"platform,omitempty"`
	// Replicas is shown unless AutoScaling is.
	Replicas                *int32               `json:"replicas,omitempty"`
	AutoRepair              *bool                `json:"autoRepair,omitempty"`
	AutoScaling             *NodePoolAutoScaling `json:"autoScaling,omitempty"`
	Labels                  []Label              `json:"labels,omitempty"`
	Taints                  []Taint              `json:"taints,omitempty"`
	NodeDrainTimeoutMinutes *int32               `json:"nodeDrainTimeoutMinutes,omitempty"`
	Status                  *Status              `json:"status,omitempty"`
}

// NodePoolPlatformProfile describes the virtual machines.
type NodePoolPlatformProfile struct {
	SubnetID               string  `json:"subnetId,omitempty"`
	VMSize                 string  `json:"vmSize,omitempty"`
	EnableEncryptionAtHost bool    `json:"enableEncryptionAtHost"`
	AvailabilityZone       string  `json:"availabilityZone,omitempty"`
	OSDisk                 *OSDisk `json:"osDisk,omitempty"`
}

// OSDisk is the disk that a node boots from.
type OSDisk struct {
	SizeGiB                int32  `json:"sizeGiB,omitempty"`
	DiskStorageAccountType string `json:"diskStorageAccountType,omitempty"`
	EncryptionSetID        string `json:"encryptionSetId,omitempty"`
	DiskType               string `json:"diskType,omitempty"`
}

// NodePoolAutoScaling bounds the number of nodes.
type NodePoolAutoScaling struct {
	Min int32 `json:"min"`
	Max int32 `json:"max"`
}

// Label is set on every node.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
}

// Taint keeps pods without a matching toleration away.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// EncodeNodePool shows a node pool as this version has it.
func EncodeNodePool(pool *hub.NodePool, state hub.ProvisioningState, status *hub.NodePoolStatus) *NodePool {
	p := &pool.Properties
	encoded := &NodePoolProperties{
		ProvisioningState: string(state),
		Version:           orNil(VersionProfile(p.Version)),
		Platform: &NodePoolPlatformProfile{
			SubnetID: p.Platform.SubnetID, VMSize: p.Platform.VMSize,
			EnableEncryptionAtHost: p.Platform.EnableEncryptionAtHost, AvailabilityZone: p.Platform.AvailabilityZone,
			OSDisk: orNil(OSDisk(p.Platform.OSDisk)),
		},
		AutoRepair:              &p.AutoRepair,
		NodeDrainTimeoutMinutes: p.NodeDrainTimeoutMinutes,
		Status:                  encodeStatus(status.Conditions),
	}
	if p.AutoScaling != nil {
		encoded.AutoScaling = &NodePoolAutoScaling{Min: p.AutoScaling.Min, Max: p.AutoScaling.Max}
	}
	if p.AutoScaling == nil || p.Replicas != 0 {
		encoded.Replicas = &p.Replicas
	}
	for _, label := range p.Labels {
		encoded.Labels = append(encoded.Labels, Label(label))
	}
	for _, taint := range p.Taints {
		encoded.Taints = append(encoded.Taints, Taint(taint))
	}
	return &NodePool{
		ID: pool.ID, Name: pool.Name, Type: pool.Type, Location: pool.Location, Tags: pool.Tags,
		SystemData: encodeSystemData(pool.SystemData), Identity: encodeIdentity(pool.Identity), Properties: encoded,
	}
}

// DecodeNodePool reads a body over base, as DecodeCluster does.
func DecodeNodePool(body *wire.Body, base *hub.NodePool, defaults Defaults) *hub.NodePool {
	pool := &hub.NodePool{Resource: decodeResource(body, base.Resource)}
	properties := body.Child("properties")
	stored := &base.Properties
	p := &pool.Properties

	version := properties.Child("version")
	if version == nil {
		p.Version = stored.Version
		if p.Version.ChannelGroup == "" {
			p.Version.ChannelGroup = defaults.text("stable")
		}
	} else {
		p.Version = hub.Version{
			ID:           version.String("id", stored.Version.ID),
			ChannelGroup: version.String("channelGroup", defaults.text("stable")),
		}
	}

	platform := properties.Child("platform")
	disk := platform.Child("osDisk")
	p.Platform = hub.NodePoolPlatform{
		SubnetID:               platform.String("subnetId", stored.Platform.SubnetID),
		VMSize:                 platform.String("vmSize", ""),
		EnableEncryptionAtHost: platform.Bool("enableEncryptionAtHost", false),
		AvailabilityZone:       platform.String("availabilityZone", ""),
		OSDisk: hub.OSDisk{
			SizeGiB: disk.Int32("sizeGiB", defaults.number(64)),
			DiskStorageAccountType: disk.Enum("diskStorageAccountType", defaults.text("Premium_LRS"),
				"Premium_LRS", "StandardSSD_LRS", "Standard_LRS"),
			EncryptionSetID: disk.String("encryptionSetId", ""),
			DiskType:        disk.Enum("diskType", defaults.text("Managed"), "Managed", "Ephemeral"),
		},
	}
	p.Replicas = properties.Int32("replicas", 0)
	if scaling := properties.Child("autoScaling"); scaling != nil {
		p.AutoScaling = &hub.NodePoolAutoScaling{Min: scaling.Int32("min", 0), Max: scaling.Int32("max", 0)}
	}
	p.AutoRepair = properties.Bool("autoRepair", bool(defaults))
	for _, o := range properties.Children("labels") {
		p.Labels = append(p.Labels, hub.Label{Key: o.String("key", ""), Value: o.String("value", "")})
	}
	for _, o := range properties.Children("taints") {
		p.Taints = append(p.Taints, hub.Taint{
			Key: o.String("key", ""), Value: o.String("value", ""),
			Effect: o.Enum("effect", "", "NoSchedule", "PreferNoSchedule", "NoExecute"),
		})
	}
	p.NodeDrainTimeoutMinutes = properties.OptionalInt32("nodeDrainTimeoutMinutes")
	return pool
}

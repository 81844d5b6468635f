package version

import (
	"time"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// OpenShiftVersion is the wire form of the resource hcpOpenShiftVersions.
type OpenShiftVersion struct {
	ID         string                     `json:"id"`
	Name       string                     `json:"name"`
	Type       string                     `json:"type"`
	Properties OpenShiftVersionProperties `json:"properties"`
}

// OpenShiftVersionProperties are the properties of a version.
type OpenShiftVersionProperties struct {
	ChannelGroup       string    `json:"channelGroup"`
	Enabled            bool      `json:"enabled"`
	EndOfLifeTimestamp time.Time `json:"endOfLifeTimestamp,omitzero"`
}

// EncodeOpenShiftVersion returns the wire form of a version.
func EncodeOpenShiftVersion(version *hub.OpenShiftVersion) *OpenShiftVersion {
	return &OpenShiftVersion{
		ID: version.ID, Name: version.Name, Type: hub.OpenShiftVersionResourceType,
		Properties: OpenShiftVersionProperties{
			ChannelGroup: version.ChannelGroup, Enabled: version.Enabled, EndOfLifeTimestamp: version.EndOfLife,
		},
	}
}

// OperatorIdentityRoleSet is the wire form of the resource hcpOperatorIdentityRoleSets.
type OperatorIdentityRoleSet struct {
	ID         string                            `json:"id"`
	Name       string                            `json:"name"`
	Type       string                            `json:"type"`
	Properties OperatorIdentityRoleSetProperties `json:"properties"`
}

// OperatorIdentityRoleSetProperties are the properties of a role set.
type OperatorIdentityRoleSetProperties struct {
	ControlPlaneOperators []OperatorIdentityRoles `json:"controlPlaneOperators"`
	DataPlaneOperators    []OperatorIdentityRoles `json:"dataPlaneOperators"`
}

// OperatorIdentityRoles lists the roles that one operator needs. Required is Always or OnEnablement.
type OperatorIdentityRoles struct {
	Name            string           `json:"name"`
	Required        string           `json:"required"`
	RoleDefinitions []RoleDefinition `json:"roleDefinitions"`
}

// RoleDefinition is an Azure role.
type RoleDefinition struct {
	Name       string `json:"name"`
	ResourceID string `json:"resourceId"`
}

// EncodeOperatorIdentityRoleSet returns the wire form of a role set.
func EncodeOperatorIdentityRoleSet(set *hub.OperatorIdentityRoleSet) *OperatorIdentityRoleSet {
	return &OperatorIdentityRoleSet{
		ID: set.ID, Name: set.Name, Type: hub.OperatorIdentityRoleSetResourceType,
		Properties: OperatorIdentityRoleSetProperties{
			ControlPlaneOperators: encodeOperatorRoles(set.ControlPlaneOperators),
			DataPlaneOperators:    encodeOperatorRoles(set.DataPlaneOperators),
		},
	}
}

func encodeOperatorRoles(operators []hub.OperatorIdentityRoles) []OperatorIdentityRoles {
	encoded := make([]OperatorIdentityRoles, len(operators))
	for i, operator := range operators {
		encoded[i] = OperatorIdentityRoles{Name: operator.Name, Required: "Always", RoleDefinitions: make([]RoleDefinition, len(operator.Roles))}
		if operator.OnEnablement {
			encoded[i].Required = "OnEnablement"
		}
		for j, role := range operator.Roles {
			encoded[i].RoleDefinitions[j] = RoleDefinition{Name: role.Name, ResourceID: role.ID}
		}
	}
	return encoded
}

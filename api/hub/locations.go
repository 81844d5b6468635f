package hub

import "time"

// The resource types of a region's catalogue, below its location.
const (
	OpenShiftVersionResourceType        = ProviderNamespace + "/locations/hcpOpenShiftVersions"
	OperatorIdentityRoleSetResourceType = ProviderNamespace + "/locations/hcpOperatorIdentityRoleSets"
)

// OpenShiftVersion is the ARM resource hcpOpenShiftVersions: a release in one channel group.
type OpenShiftVersion struct {
	// ID is the ARM resource ID. Name is MAJOR.MINOR.PATCH, followed by the channel group unless that is stable.
	ID           string
	Name         string
	ChannelGroup string
	// Enabled reports whether customers can select the release.
	Enabled bool
	// EndOfLife is the time at which support for the release ends.
	EndOfLife time.Time
}

// OperatorIdentityRoleSet is the ARM resource hcpOperatorIdentityRoleSets: the managed identities that a cluster of a
// version needs for its operators, and the Azure roles that each of them needs.
type OperatorIdentityRoleSet struct {
	// ID is the ARM resource ID. Name is the version, MAJOR.MINOR.
	ID                    string
	Name                  string
	ControlPlaneOperators []OperatorIdentityRoles
	DataPlaneOperators    []OperatorIdentityRoles
}

// OperatorIdentityRoles lists the roles that one operator needs.
type OperatorIdentityRoles struct {
	// Name is the operator's key in the cluster's operatorsAuthentication.
	Name string
	// OnEnablement is set if only clusters with an optional feature need the identity. Otherwise every cluster needs it.
	OnEnablement bool
	Roles        []RoleDefinition
}

// RoleDefinition is a built-in Azure role.
type RoleDefinition struct {
	Name string
	// ID is the ARM ID of the definition at tenant scope.
	ID string
}

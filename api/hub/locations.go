package hub

import "time"

// The resource types of what a region offers, below its location.
const (
	OpenShiftVersionResourceType        = ProviderNamespace + "/locations/hcpOpenShiftVersions"
	OperatorIdentityRoleSetResourceType = ProviderNamespace + "/locations/hcpOperatorIdentityRoleSets"
)

// OpenShiftVersion is the ARM resource hcpOpenShiftVersions: a release in one channel group.
type OpenShiftVersion struct {
	// ID is the ARM resource id; Name is MAJOR.MINOR.PATCH, followed by the channel group unless that is stable.
	ID           string
	Name         string
	ChannelGroup string
	// Enabled says whether the release can be chosen.
	Enabled bool
	// EndOfLife is when support for the release ends.
	EndOfLife time.Time
}

// OperatorIdentityRoleSet is the ARM resource hcpOperatorIdentityRoleSets: the identities that a cluster of a version
// needs for its operators, and the Azure roles that each of them needs.
type OperatorIdentityRoleSet struct {
	// ID is the ARM resource id; Name is the version, MAJOR.MINOR.
	ID                    string
	Name                  string
	ControlPlaneOperators []OperatorIdentityRoles
	DataPlaneOperators    []OperatorIdentityRoles
}

// OperatorIdentityRoles is what one operator needs.
type OperatorIdentityRoles struct {
	// Name is the operator's key in the cluster's operatorsAuthentication.
	Name string
	// OnEnablement says that only clusters which turn a feature on need the identity; all others always do.
	OnEnablement bool
	Roles        []RoleDefinition
}

// RoleDefinition is a built-in role of Azure.
type RoleDefinition struct {
	Name string
	// ID is the ARM id of the definition, at tenant scope.
	ID string
}

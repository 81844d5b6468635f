package version

import (
	"github.com/hcpmesh/hcpmesh/api/hub"
	"github.com/hcpmesh/hcpmesh/api/shape"
)

// v20240610preview returns the api-version 2024-06-10-preview, the first one. Later versions start from its
// tables.
func v20240610preview() Version {
	return Version{
		Name:         "2024-06-10-preview",
		Cluster:      cluster(),
		NodePool:     nodePool(),
		ExternalAuth: externalAuth(),
	}
}

// tracked returns the table of a tracked resource, which has a location, tags and identities. identityIDs are the fields of
// an identity. The frontend ignores their values in a creation. In an update it rejects them, unless the service has read
// the IDs of the identity.
func tracked(identityIDs []shape.Field, properties ...shape.Field) shape.Field {
	return shape.Resource(
		shape.ReadOnly("id"),
		shape.ReadOnly("name"),
		shape.ReadOnly("type"),
		shape.Value("location"),
		shape.Value("tags").AtMost(hub.MaxTags).KeepIfAbsent().KeepIfNull(),
		systemData(),
		shape.Object("identity",
			shape.Value("type").OneOf("None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned").Mandatory(),
			shape.ReadOnly("principalId"),
			shape.ReadOnly("tenantId"),
			shape.Map("userAssignedIdentities", identityIDs...).AtMost(hub.MaxIdentities),
		),
		shape.Object("properties", properties...),
	)
}

// proxy returns the table of a proxy resource, which belongs to a tracked one.
func proxy(properties ...shape.Field) shape.Field {
	return shape.Resource(
		shape.ReadOnly("id"),
		shape.ReadOnly("name"),
		shape.ReadOnly("type"),
		systemData(),
		shape.Object("properties", properties...),
	)
}

func systemData() shape.Field {
	return shape.ReadOnly("systemData").Holding(
		shape.ReadOnly("createdBy"),
		shape.ReadOnly("createdByType"),
		shape.ReadOnly("createdAt"),
		shape.ReadOnly("lastModifiedBy"),
		shape.ReadOnly("lastModifiedByType"),
		shape.ReadOnly("lastModifiedAt"),
	)
}

// Package v20240610preview is the ARM api-version 2024-06-10-preview, the first. The later versions are made of its tables.
package v20240610preview

import (
	"github.com/hcpmesh/hcpmesh/api/shape"
	"github.com/hcpmesh/hcpmesh/api/version"
)

// Version is the name of the api-version.
const Version = "2024-06-10-preview"

// API is the api-version.
func API() version.Version {
	return version.Version{
		Name:            Version,
		Cluster:         cluster(),
		NodePool:        nodePool(),
		ExternalAuth:    externalAuth(),
		VersionOptional: true,
	}
}

// tracked is a resource with a location and tags of its own.
func tracked(properties ...shape.Field) shape.Field {
	return shape.Resource(
		shape.ReadOnly("id"),
		shape.ReadOnly("name"),
		shape.ReadOnly("type"),
		shape.Value("location"),
		shape.Value("tags").KeepIfAbsent(),
		shape.ReadOnly("systemData"),
		shape.Object("identity",
			shape.Value("type").OneOf("None", "SystemAssigned", "UserAssigned", "SystemAssigned,UserAssigned"),
			shape.ReadOnly("principalId"),
			shape.ReadOnly("tenantId"),
			// ARM fills the two in; a client that leaves them out does not change them.
			shape.Map("userAssignedIdentities",
				shape.Value("clientId").KeepIfAbsent(),
				shape.Value("principalId").KeepIfAbsent(),
			),
		),
		shape.Object("properties", properties...),
	)
}

// proxy is a resource that belongs to a tracked one.
func proxy(properties ...shape.Field) shape.Field {
	return shape.Resource(
		shape.ReadOnly("id"),
		shape.ReadOnly("name"),
		shape.ReadOnly("type"),
		shape.ReadOnly("systemData"),
		shape.Object("properties", properties...),
	)
}

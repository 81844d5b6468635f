package adminaction

import (
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// Permits reports whether an elevation, while it is active, permits an action on an object of a cluster: its class includes that of
// the action, and it is for the whole region or for this cluster. clusterUID is empty for an object that belongs to no cluster.
func Permits(e *database.ElevationDocument, action, clusterUID string) bool {
	return adminv1.AccessClass(e.Class).Includes(adminv1.ClassOf(action)) && Covers(e, clusterUID)
}

// Covers reports whether an elevation is for the whole region or for a cluster.
func Covers(e *database.ElevationDocument, clusterUID string) bool {
	return e.Target.Kind == database.TargetRegion || clusterUID != "" && e.Target.ClusterUID == clusterUID
}

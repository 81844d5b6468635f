// Package workcrds pins the Open Cluster Management API module whose AppliedManifestWork CustomResourceDefinition the
// Maestro agent needs on a management cluster. build.sh copies the YAML out of the module cache.
package workcrds

import _ "open-cluster-management.io/api/work/v1"

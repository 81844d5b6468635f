// Package deadline says how long an accepted operation may take: the backend fails those that are not at their end by then,
// and whoever explains an operation says when that will be. The backend's flags and a resource's experimental tags may say
// otherwise.
package deadline

import "time"

// The deadlines by default. An update has as long as a create.
const (
	Create = time.Hour
	Delete = 12 * time.Hour
)

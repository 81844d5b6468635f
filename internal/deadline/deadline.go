// Package deadline has the default deadlines of operations. The backend fails an operation that has not ended by its
// deadline, and explanations state the deadline. The backend's flags and a resource's experimental tags can change the
// deadlines.
package deadline

import "time"

// The default deadlines. An update has the deadline of a create.
const (
	Create = time.Hour
	Delete = 12 * time.Hour
)

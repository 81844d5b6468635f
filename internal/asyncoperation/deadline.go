package asyncoperation

import "time"

// The default deadlines. An update has the deadline of a create.
const (
	CreateDeadline = time.Hour
	DeleteDeadline = 12 * time.Hour
)

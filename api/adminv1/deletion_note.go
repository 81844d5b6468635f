package adminv1

// DeletionNote records a slow deletion step in ARM. Steps that complete in time have none.
type DeletionNote struct {
	// Kind is the kind of the step.
	Kind string `json:"kind"`
	// Attempts is the number of failed attempts, LastError the error of the last one.
	Attempts  int32  `json:"attempts,omitempty"`
	LastError string `json:"lastError,omitempty"`
}

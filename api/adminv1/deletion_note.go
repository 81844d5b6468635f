package adminv1

// DeletionNote is what is kept of a step of the ARM side that took too long. Those that do not have none.
type DeletionNote struct {
	// Kind of the step.
	Kind string `json:"kind"`
	// Attempts is how often it had been tried in vain when that was noted last, LastError what the last one failed with.
	Attempts  int32  `json:"attempts,omitempty"`
	LastError string `json:"lastError,omitempty"`
}

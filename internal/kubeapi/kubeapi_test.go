package kubeapi

import (
	"slices"
	"testing"
)

// TestProfilesAreServedOnRequest: an API server serves profiles, which show its memory, only if its configuration asks for it.
func TestProfilesAreServedOnRequest(t *testing.T) {
	for profiling, want := range map[bool]string{false: "--profiling=false", true: "--profiling=true"} {
		if arguments := (Server{PKI: &Authority{}, Profiling: profiling}).APIServer(); !slices.Contains(arguments, want) {
			t.Errorf("the arguments of an API server with Profiling %t lack %s: %q", profiling, want, arguments)
		}
	}
}

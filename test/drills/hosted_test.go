package drills

import (
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/test/fault"
)

// TestMisleadingConcerns checks which concerns count as those of another fault.
func TestMisleadingConcerns(t *testing.T) {
	for name, tc := range map[string]struct {
		fault, journal, want string
	}{
		"only the cause":                         {"process", "api_unreachable", ""},
		"health checks fail while it starts":     {"process", "api_unreachable api_fails", ""},
		"another cause":                          {"process", "api_unreachable way_broken", "way_broken"},
		"too little evidence at first":           {"way", "api_unreachable way_broken", ""},
		"a busy machine":                         {"etcd", "slow etcd_fails slow", ""},
		"an overloaded API that is not answered": {"overload", "slow api_unreachable", "api_unreachable"},
	} {
		var journal []adminv1.JournalEntry
		for kind := range strings.FieldsSeq(tc.journal) {
			journal = append(journal, adminv1.JournalEntry{Event: adminv1.JournalConcernBegan, Kind: kind})
		}
		for _, fault := range fault.Causes() {
			if fault.Name != tc.fault {
				continue
			}
			if got := strings.Join(fault.Misleading(journal), " "); got != tc.want {
				t.Errorf("%s: %q, want %q", name, got, tc.want)
			}
		}
	}
}

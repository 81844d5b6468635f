package release_test

import (
	"errors"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/release"
)

// TestWithout: a refused release is not chosen, no upgrade leads to it, and upgrades lead away from it.
func TestWithout(t *testing.T) {
	all, err := release.Default()
	if err != nil {
		t.Fatal(err)
	}
	middle, _ := all.Exact("4.21.4")
	reason := errors.New("not signed")
	accepted := all.Without(map[string]error{middle.Digest: reason, "sha256:unknown": reason})
	if _, known := accepted.Exact("4.21.4"); known {
		t.Error("the refused release is in the catalogue")
	}
	if newest, _ := accepted.Newest("4.21", "stable"); newest.Version.String() != "4.21.1" {
		t.Errorf("the newest release is %s", newest.Version)
	}
	for _, r := range accepted.Releases() {
		for _, u := range accepted.Updates(r.Version, "stable-4.21") {
			if u.Version == middle.Version {
				t.Errorf("an upgrade leads from %s to the refused release", r.Version)
			}
		}
	}
	if updates := accepted.Updates(middle.Version, "stable-4.22"); len(updates) == 0 {
		t.Error("no upgrade leads from the refused release to another one")
	}
	refusal, known := accepted.RefusalOf("4.21.4")
	if !known || !errors.Is(refusal.Reason, reason) || len(accepted.Refusals()) != 1 {
		t.Errorf("refusals: %v", accepted.Refusals())
	}
	if newest, known := accepted.NewestRefusal("4.21", "stable"); !known || newest.Version != middle.Version {
		t.Errorf("the newest refusal is %v", newest)
	}
	if _, known := accepted.NewestRefusal("4.21", "nightly"); known {
		t.Error("a channel that does not carry the release has its refusal")
	}
	if len(all.Refusals()) != 0 || len(accepted.Without(nil).Refusals()) != 0 {
		t.Error("a catalogue has refusals of another one")
	}
}

package mesh

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestARotationIsSeen: a new certificate is used soon after it is there, whatever the times of its files, and one that is only half
// there leaves the old one in use.
func TestARotationIsSeen(t *testing.T) {
	dir := t.TempDir()
	authority, err := OpenAuthority(t.TempDir(), "local")
	if err != nil {
		t.Fatal(err)
	}
	// The bundle of authorities was written last, and is written no more.
	bundled := time.Now().Add(time.Hour)
	issue := func() {
		t.Helper()
		if err := authority.Issue(dir, Frontend); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, CAFile), bundled, bundled); err != nil {
			t.Fatal(err)
		}
	}
	issue()
	synctest.Test(t, func(t *testing.T) {
		identity, err := LoadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		serial := func() string {
			time.Sleep(rereadAfter)
			return identity.certificate().Leaf.SerialNumber.String()
		}
		first := serial()
		if serial() != first {
			t.Error("what did not change was read as something else")
		}
		issue()
		second := serial()
		if second == first {
			t.Error("the rotation was not seen")
		}
		if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte("half a key"), 0o600); err != nil {
			t.Fatal(err)
		}
		if serial() != second {
			t.Error("half a rotation took the identity away")
		}
		issue()
		if third := serial(); third == second {
			t.Error("the rotation was not seen once it was whole")
		}
	})
}

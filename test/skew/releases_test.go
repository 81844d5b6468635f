package skew

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test"
)

// maxData is the largest size in bytes of the captured data of a release, because clones contain the data of all releases.
const maxData = 3 << 20

// TestReleasesAreComplete checks that the commit of each release is in the history and that the captured data is small.
func TestReleasesAreComplete(t *testing.T) {
	test.DependOnCode(t)
	source := must.Get(local.FindSource())(t)
	releases := must.Get(ReadReleases(source))(t)
	for _, release := range releases {
		size := int64(0)
		err := fs.WalkDir(os.DirFS(filepath.Join(source, filepath.FromSlash(release.Data))), ".", func(_ string, found fs.DirEntry, err error) error {
			if err != nil || found.IsDir() {
				return err
			}
			info, err := found.Info()
			size += info.Size()
			return err
		})
		if err != nil || size == 0 || size > maxData {
			t.Errorf("the data of release %s has %d bytes (%v), want 1 to %d", release.Name, size, err, maxData)
		}
	}
	for _, release := range releases {
		err := CheckRelease(t.Context(), source, release)
		if errors.Is(err, ErrNoHistory) {
			t.Skip(err)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Package skew tests that the programs of the checkout and those of the previous release work together, on data of the previous release. The
// releases are in releases.yaml, and the data of a release in testdata.
//
// A release is a commit with captured data of a region. Its programs are built from the history of the repository. A snapshot has the data
// of a stopped local region: dumps of PostgreSQL's databases, the keys of etcd, and the files of the emulators with the keys that the data
// needs. Certificates, addresses, logs and tokens are not part of a snapshot, because a region issues and chooses them when it starts. The
// keys in a snapshot protect test data only.
package skew

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// ReleasesFile is the name of the file with the releases, in the root of the checkout.
const ReleasesFile = "releases.yaml"

// Release is a release of the project.
type Release struct {
	// Name is unique, in lower case.
	Name string `json:"name"`
	// Commit is the full hash of a commit in the history of the main branch.
	Commit string `json:"commit"`
	// Date is the day of the release, as in 2026-11-23.
	Date string `json:"date"`
	// Data is the folder with the captured data of a region of the release, relative to the checkout and with slashes.
	Data string `json:"data"`
}

var (
	names   = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*$`)
	commits = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// ReadReleases returns the releases of a checkout, the newest last. An error names the file, the release and the field.
func ReadReleases(source string) ([]Release, error) {
	text, err := os.ReadFile(filepath.Join(source, ReleasesFile))
	if err != nil {
		return nil, fmt.Errorf("reading the releases: %w", err)
	}
	var file struct {
		Releases []Release `json:"releases"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", ReleasesFile, err)
	}
	if len(file.Releases) == 0 {
		return nil, fmt.Errorf("%s: releases: at least one release is required", ReleasesFile)
	}
	seen := map[string]bool{}
	for i, release := range file.Releases {
		if err := release.validate(os.DirFS(source)); err != nil {
			return nil, fmt.Errorf("%s: releases[%d]: %w", ReleasesFile, i, err)
		}
		for field, value := range map[string]string{"name": release.Name, "commit": release.Commit, "data": release.Data} {
			if seen[field+value] {
				return nil, fmt.Errorf("%s: releases[%d]: %s: an earlier release has %q too", ReleasesFile, i, field, value)
			}
			seen[field+value] = true
		}
		if i > 0 && release.Date < file.Releases[i-1].Date {
			return nil, fmt.Errorf("%s: releases[%d]: date: %s is before that of the release above; the newest release is the last", ReleasesFile, i, release.Date)
		}
	}
	return file.Releases, nil
}

// NewestRelease returns the newest release of a checkout: the one that regions run before they get the programs of the checkout.
func NewestRelease(source string) (Release, error) {
	releases, err := ReadReleases(source)
	if err != nil {
		return Release{}, err
	}
	return releases[len(releases)-1], nil
}

func (r *Release) validate(source fs.FS) error {
	switch {
	case !names.MatchString(r.Name):
		return fmt.Errorf("name: %q is not lower-case letters, digits, dots and dashes", r.Name)
	case !commits.MatchString(r.Commit):
		return fmt.Errorf("commit: %q is not the full hash of a commit", r.Commit)
	}
	if _, err := time.Parse(time.DateOnly, r.Date); err != nil {
		return fmt.Errorf("date: %q is not a date such as 2026-11-23", r.Date)
	}
	if !fs.ValidPath(r.Data) || r.Data == "." || strings.HasPrefix(r.Data, ".build") {
		return fmt.Errorf("data: %q is not a folder of the checkout", r.Data)
	}
	if info, err := fs.Stat(source, r.Data); err != nil || !info.IsDir() {
		return fmt.Errorf("data: %s is not a folder of the checkout; `make capture` creates it", r.Data)
	}
	return nil
}

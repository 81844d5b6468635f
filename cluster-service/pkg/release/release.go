// Package release is the catalogue of OpenShift releases that clusters and node pools may run: which image a version is,
// and which update channels carry it. A customer names a minor version and a channel group; the catalogue chooses the
// newest release of both, and the choice is stored with the cluster, so that a new catalogue upgrades nobody by itself.
// A Catalog never changes after it is read.
package release

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed default.yaml
var defaultCatalog []byte

// Version is MAJOR.MINOR.PATCH.
type Version struct{ Major, Minor, Patch int }

var versionPattern = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})$`)

// ParseVersion reads MAJOR.MINOR.PATCH.
func ParseVersion(s string) (Version, error) {
	parts := versionPattern.FindStringSubmatch(s)
	if parts == nil {
		return Version{}, fmt.Errorf("%q is not MAJOR.MINOR.PATCH", s)
	}
	var v Version
	v.Major, _ = strconv.Atoi(parts[1])
	v.Minor, _ = strconv.Atoi(parts[2])
	v.Patch, _ = strconv.Atoi(parts[3])
	return v, nil
}

// Compare orders versions.
func (v Version) Compare(o Version) int {
	return slices.Compare([]int{v.Major, v.Minor, v.Patch}, []int{o.Major, o.Minor, o.Patch})
}

// MinorID is MAJOR.MINOR.
func (v Version) MinorID() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// String is MAJOR.MINOR.PATCH.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// ReportsControlPlaneVersion says whether a HostedCluster of this version fills status.controlPlaneVersion: HyperShift
// has it from 4.22 on, backported to 4.20.15 and 4.21.1.
func (v Version) ReportsControlPlaneVersion() bool {
	switch {
	case v.Major != 4:
		return v.Major > 4
	case v.Minor == 20:
		return v.Patch >= 15
	case v.Minor == 21:
		return v.Patch >= 1
	}
	return v.Minor >= 22
}

// Release is one version as it can be installed.
type Release struct {
	Version Version
	// Image is the release image by digest.
	Image    string
	channels []string
}

// In reports whether an update channel, as in stable-4.21, carries the release.
func (r Release) In(channel string) bool { return slices.Contains(r.channels, channel) }

// Catalog is a set of releases.
type Catalog struct {
	releases []Release // oldest first
}

type file struct {
	Repository string      `json:"repository"`
	Releases   []fileEntry `json:"releases"`
}

type fileEntry struct {
	Version string `json:"version"`
	Digest  string `json:"digest"`
	// Kubelet and Architecture are for the local runtime, which reads the same file.
	Kubelet      string   `json:"kubelet"`
	Architecture string   `json:"architecture"`
	Channels     []string `json:"channels"`
}

// Load reads a catalogue from a file; an empty path means the one that is built in.
func Load(path string) (*Catalog, error) {
	if path == "" {
		return Parse(defaultCatalog)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the release catalogue: %w", err)
	}
	catalog, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("release catalogue %s: %w", path, err)
	}
	return catalog, nil
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Parse reads a catalogue. An unknown field, a malformed version or digest and one that appears twice are errors.
func Parse(text []byte) (*Catalog, error) {
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, err
	}
	if f.Repository == "" {
		return nil, errors.New("repository is required")
	}
	if len(f.Releases) == 0 {
		return nil, errors.New("releases is required")
	}
	catalog := &Catalog{}
	seen := map[string]bool{}
	for i, e := range f.Releases {
		version, err := ParseVersion(e.Version)
		if err != nil {
			return nil, fmt.Errorf("releases[%d].version: %w", i, err)
		}
		if !digestPattern.MatchString(e.Digest) {
			return nil, fmt.Errorf("releases[%d].digest: %q is not sha256:<64 hexadecimal digits>", i, e.Digest)
		}
		if seen[e.Version] || seen[e.Digest] {
			return nil, fmt.Errorf("releases[%d]: version %s or its digest appears twice", i, e.Version)
		}
		seen[e.Version], seen[e.Digest] = true, true
		catalog.releases = append(catalog.releases, Release{Version: version, Image: f.Repository + "@" + e.Digest, channels: e.Channels})
	}
	slices.SortFunc(catalog.releases, func(a, b Release) int { return a.Version.Compare(b.Version) })
	return catalog, nil
}

// Newest is the newest release of a minor version in a channel group, as in 4.21 and stable.
func (c *Catalog) Newest(minor, channelGroup string) (Release, bool) {
	channel := Channel(channelGroup, minor)
	for _, r := range slices.Backward(c.releases) {
		if r.Version.MinorID() == minor && r.In(channel) {
			return r, true
		}
	}
	return Release{}, false
}

// Exact is the release of a full version, whatever its channels.
func (c *Catalog) Exact(version string) (Release, bool) {
	for _, r := range c.releases {
		if r.Version.String() == version {
			return r, true
		}
	}
	return Release{}, false
}

// Minors lists the minor versions that a channel group offers, oldest first.
func (c *Catalog) Minors(channelGroup string) []string {
	var minors []string
	for _, r := range c.releases {
		if minor := r.Version.MinorID(); r.In(Channel(channelGroup, minor)) && !slices.Contains(minors, minor) {
			minors = append(minors, minor)
		}
	}
	return minors
}

// Channel is the update channel of a channel group for a minor version.
func Channel(group, minor string) string { return strings.ToLower(group) + "-" + minor }

// Package release is the catalogue of OpenShift releases the local runtime can install: which version a release image
// is, which kubelet its nodes run and which channels carry it. A release image cannot be pulled and read here, so this
// file takes its place. A Catalog never changes after it is read.
package release

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"
)

//go:embed default.yaml
var defaultCatalog []byte

// Release is one version of OpenShift.
type Release struct {
	// Version is semantic, without a leading v.
	Version string `json:"version"`
	// Digest is "sha256:" and 64 hexadecimal digits. The image is known by it in every repository, as mirrors keep it.
	Digest string `json:"digest"`
	// Kubelet is the version that nodes of this release report, with a leading v.
	Kubelet string `json:"kubelet"`
	// Architecture is the payload's: Multi, AMD64 or ARM64.
	Architecture string `json:"architecture"`
	// Channels are the update channels that carry the release.
	Channels []string `json:"channels"`

	image  string
	parsed *version.Version
}

// Image is the release image's canonical pull specification, by digest.
func (r *Release) Image() string { return r.image }

// Minor returns the release's minor version, such as 20 for 4.20.8.
func (r *Release) Minor() int { return int(r.parsed.Minor()) }

// LessThan reports whether r is an older version than other.
func (r *Release) LessThan(other *Release) bool { return r.parsed.LessThan(other.parsed) }

// ReportsControlPlaneVersion reports whether the control plane of this release fills status.controlPlaneVersion: from
// 4.22 on, and backported to 4.20.15 and 4.21.1.
func (r *Release) ReportsControlPlaneVersion() bool {
	switch {
	case r.parsed.Major() != 4:
		return r.parsed.Major() > 4
	case r.parsed.Minor() == 20:
		return r.parsed.Patch() >= 15
	case r.parsed.Minor() == 21:
		return r.parsed.Patch() >= 1
	}
	return r.parsed.Minor() >= 22
}

// Catalog is a set of releases, ordered by version.
type Catalog struct {
	repository string
	releases   []*Release
}

// Default is the catalogue that is built in.
func Default() (*Catalog, error) { return Parse(defaultCatalog) }

// Load reads a catalogue from a file; an empty path means the one that is built in.
func Load(path string) (*Catalog, error) {
	if path == "" {
		return Default()
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

// Parse reads a catalogue from YAML. A field it does not know, a version or digest that appears twice and a malformed
// one are errors.
func Parse(text []byte) (*Catalog, error) {
	var file struct {
		Repository string     `json:"repository"`
		Releases   []*Release `json:"releases"`
	}
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		return nil, err
	}
	if file.Repository == "" {
		return nil, errors.New("repository is required")
	}
	if len(file.Releases) == 0 {
		return nil, errors.New("releases is required")
	}
	versions, digests := map[string]bool{}, map[string]bool{}
	for i, r := range file.Releases {
		if r == nil {
			return nil, fmt.Errorf("releases[%d] is empty", i)
		}
		parsed, err := version.ParseSemantic(r.Version)
		if err != nil {
			return nil, fmt.Errorf("releases[%d].version: %w", i, err)
		}
		if _, err := version.ParseSemantic(strings.TrimPrefix(r.Kubelet, "v")); err != nil {
			return nil, fmt.Errorf("releases[%d].kubelet: %w", i, err)
		}
		if !digestPattern.MatchString(r.Digest) {
			return nil, fmt.Errorf("releases[%d].digest: %q is not sha256:<64 hexadecimal digits>", i, r.Digest)
		}
		if !slices.Contains([]string{"Multi", "AMD64", "ARM64"}, r.Architecture) {
			return nil, fmt.Errorf("releases[%d].architecture: %q is none of Multi, AMD64, ARM64", i, r.Architecture)
		}
		if versions[r.Version] || digests[r.Digest] {
			return nil, fmt.Errorf("releases[%d]: version %s or its digest appears twice", i, r.Version)
		}
		versions[r.Version], digests[r.Digest] = true, true
		r.parsed, r.image = parsed, file.Repository+"@"+r.Digest
		slices.Sort(r.Channels)
	}
	slices.SortFunc(file.Releases, func(a, b *Release) int {
		if a.LessThan(b) {
			return -1
		}
		return 1
	})
	return &Catalog{repository: file.Repository, releases: file.Releases}, nil
}

// Releases lists the catalogue, oldest first.
func (c *Catalog) Releases() []*Release { return slices.Clone(c.releases) }

// ErrUnknownImage says that the catalogue has no release for an image.
var ErrUnknownImage = errors.New("release image is not in the catalogue")

var tagPattern = regexp.MustCompile(`:(\d+\.\d+\.\d+)(?:-(?:multi|x86_64|aarch64))?$`)

// Lookup finds the release of a pull specification: by its digest in any repository, or by a tag that is a version with
// an optional architecture.
func (c *Catalog) Lookup(image string) (*Release, error) {
	_, digest, byDigest := strings.Cut(image, "@")
	tag := tagPattern.FindStringSubmatch(image)
	for _, r := range c.releases {
		if byDigest && r.Digest == digest || !byDigest && tag != nil && r.Version == tag[1] {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownImage, image)
}

// Updates lists the releases in channel that are newer than from, newest first, at most one minor version ahead.
func (c *Catalog) Updates(from *Release, channel string) []*Release {
	var updates []*Release
	for _, r := range slices.Backward(c.releases) {
		if from.LessThan(r) && r.Minor() <= from.Minor()+1 && slices.Contains(r.Channels, channel) {
			updates = append(updates, r)
		}
	}
	return updates
}

// Package release is the catalogue of OpenShift releases of a region: the image of each version, the update channels that carry
// it, the upgrade edges that lead to it, and the known risks of edges. The update graph's server, the frontend and the HyperShift
// local runtime read the same file, and so does Cluster Service until it has read the update graph. A Catalog never changes
// after it is read. It is safe for concurrent use.
package release

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed default.yaml
var builtIn []byte

// Release is one installable version.
type Release struct {
	Version Version
	// Digest is sha256:<64 hexadecimal digits>. It identifies the image in every repository, because mirrors keep it.
	Digest string
	// Image is the pull specification of the release image, by digest.
	Image string
	// Kubelet is the version that nodes of this release report, with a leading v; empty if unknown.
	Kubelet string
	// Architecture of the payload: Multi, AMD64 or ARM64.
	Architecture string
	// Channels are the update channels that carry the release, for example stable-4.21.
	Channels []string
	// URL is the page of the errata; may be empty.
	URL string
}

// In reports whether an update channel carries the release.
func (r *Release) In(channel string) bool { return slices.Contains(r.Channels, channel) }

// LessThan reports whether r is older than other.
func (r *Release) LessThan(other *Release) bool { return r.Version.Compare(other.Version) < 0 }

// ReportsControlPlaneVersion is that of the version.
func (r *Release) ReportsControlPlaneVersion() bool { return r.Version.ReportsControlPlaneVersion() }

// Risk is a reason why an update is not recommended to all clusters.
type Risk struct {
	// Name is a word in CamelCase with which the risk is acknowledged.
	Name string
	// URL and Message describe the risk.
	URL, Message string
	// Rules select the clusters that the risk applies to. The first rule that can be evaluated decides.
	Rules []Rule
}

// Rule selects clusters: all of them (Always), or those for which a PromQL query returns true.
type Rule struct {
	// Type is Always or PromQL.
	Type   string
	PromQL string
}

// Catalog is a set of releases with the upgrade edges between them.
type Catalog struct {
	releases []*Release // oldest first
	edges    map[between]*edge
	// ends are the ends of support by minor version.
	ends map[string]time.Time
	// refused are releases that are not accepted, oldest first.
	refused []Refusal
}

// between identifies an edge.
type between struct{ from, to Version }

// edge is an upgrade edge. An edge without risks is recommended.
type edge struct{ risks []Risk }

type file struct {
	Repository string        `yaml:"repository"`
	Minors     []minorEntry  `yaml:"minors"`
	Releases   []*fileEntry  `yaml:"releases"`
	Risks      []riskedEntry `yaml:"risks"`
}

type minorEntry struct {
	Version   string    `yaml:"version"`
	EndOfLife time.Time `yaml:"endOfLife"`
}

type fileEntry struct {
	Version      string   `yaml:"version"`
	Digest       string   `yaml:"digest"`
	Kubelet      string   `yaml:"kubelet"`
	Architecture string   `yaml:"architecture"`
	Channels     []string `yaml:"channels"`
	URL          string   `yaml:"url"`
	// Previous are the versions from which an edge leads here. Without the field these are all older versions of the same minor
	// version and of the one before.
	Previous *[]string `yaml:"previous"`
}

type riskedEntry struct {
	Name    string      `yaml:"name"`
	To      string      `yaml:"to"`
	From    string      `yaml:"from"`
	URL     string      `yaml:"url"`
	Message string      `yaml:"message"`
	Rules   []ruleEntry `yaml:"matchingRules"`
}

type ruleEntry struct {
	Type   string `yaml:"type"`
	PromQL string `yaml:"promql"`
}

// Default returns the built-in catalogue.
func Default() (*Catalog, error) { return Parse(builtIn) }

// BuiltIn returns the YAML text of the built-in catalogue.
func BuiltIn() []byte { return slices.Clone(builtIn) }

// Load reads a catalogue from a file. An empty path means the built-in catalogue.
func Load(path string) (*Catalog, error) {
	if path == "" {
		return Default()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the release catalogue: %w", err)
	}
	catalog, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("release catalogue %s: %w", path, err)
	}
	return catalog, nil
}

var (
	digestPattern  = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	kubeletPattern = regexp.MustCompile(`^v\d{1,4}\.\d{1,4}\.\d{1,4}$`)
	channelPattern = regexp.MustCompile(`^[a-z]{1,16}-\d{1,4}\.\d{1,4}$`)
	riskPattern    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]{0,62}$`)
)

// Repositories returns the repositories of the release images, sorted.
func (c *Catalog) Repositories() []string {
	var repositories []string
	for _, r := range c.releases {
		repository, _, _ := strings.Cut(r.Image, "@")
		repositories = append(repositories, repository)
	}
	slices.Sort(repositories)
	return slices.Compact(repositories)
}

// Parse reads a catalogue from YAML. Unknown fields, malformed values, duplicates and references to unknown versions are errors
// that name the field. Parse refuses the whole catalogue for one of them, unlike ParseGraph: an operator deploys it, and is there to correct it.
func Parse(text []byte) (*Catalog, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var f file
	if err := decoder.Decode(&f); err != nil {
		return nil, err
	}
	if err := decoder.Decode(&struct{}{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	switch {
	case f.Repository == "":
		return nil, errors.New("repository is required")
	case len(f.Releases) == 0:
		return nil, errors.New("releases is required")
	}
	c := &Catalog{edges: map[between]*edge{}, ends: map[string]time.Time{}}
	for i, m := range f.Minors {
		v, err := ParseMinor(m.Version)
		switch {
		case err != nil:
			return nil, fmt.Errorf("minors[%d].version: %w", i, err)
		case m.EndOfLife.IsZero():
			return nil, fmt.Errorf("minors[%d].endOfLife is required", i)
		case !c.ends[v.MinorID()].IsZero():
			return nil, fmt.Errorf("minors[%d]: version %s appears twice", i, m.Version)
		}
		c.ends[v.MinorID()] = m.EndOfLife.UTC()
	}
	for i, e := range f.Releases {
		if err := c.add(f.Repository, e); err != nil {
			return nil, fmt.Errorf("releases[%d]%w", i, err)
		}
	}
	slices.SortFunc(c.releases, func(a, b *Release) int { return a.Version.Compare(b.Version) })
	for i, e := range f.Releases {
		if err := c.connect(e); err != nil {
			return nil, fmt.Errorf("releases[%d].previous: %w", i, err)
		}
	}
	for i, e := range f.Risks {
		if err := c.risk(e); err != nil {
			return nil, fmt.Errorf("risks[%d]%w", i, err)
		}
	}
	return c, nil
}

func (c *Catalog) add(repository string, e *fileEntry) error {
	if e == nil {
		return errors.New(" is empty")
	}
	if e.Architecture == "" {
		e.Architecture = "Multi"
	}
	version, err := ParseVersion(e.Version)
	switch {
	case err != nil:
		return fmt.Errorf(".version: %w", err)
	case !digestPattern.MatchString(e.Digest):
		return fmt.Errorf(".digest: %q is not sha256:<64 hexadecimal digits>", e.Digest)
	case e.Kubelet != "" && !kubeletPattern.MatchString(e.Kubelet):
		return fmt.Errorf(".kubelet: %q is not vMAJOR.MINOR.PATCH", e.Kubelet)
	case !slices.Contains([]string{"Multi", "AMD64", "ARM64"}, e.Architecture):
		return fmt.Errorf(".architecture: %q is none of Multi, AMD64, ARM64", e.Architecture)
	}
	for _, channel := range e.Channels {
		if !channelPattern.MatchString(channel) {
			return fmt.Errorf(".channels: %q is not GROUP-MAJOR.MINOR", channel)
		}
	}
	for _, known := range c.releases {
		if known.Version == version || known.Digest == e.Digest {
			return fmt.Errorf(": version %s or its digest appears twice", e.Version)
		}
	}
	channels := slices.Clone(e.Channels)
	slices.Sort(channels)
	c.releases = append(c.releases, &Release{Version: version, Digest: e.Digest, Image: repository + "@" + e.Digest, Kubelet: e.Kubelet,
		Architecture: e.Architecture, Channels: channels, URL: e.URL})
	return nil
}

// connect adds the edges to a release.
func (c *Catalog) connect(e *fileEntry) error {
	to, _ := ParseVersion(e.Version) // add has checked it
	if e.Previous == nil {
		for _, r := range c.releases {
			if r.Version.Compare(to) < 0 && to.Ordinal()-r.Version.Ordinal() <= 1 {
				c.edges[between{r.Version, to}] = &edge{}
			}
		}
		return nil
	}
	for _, text := range *e.Previous {
		from, err := ParseVersion(text)
		if err != nil {
			return err
		}
		if _, known := c.find(from); !known || from.Compare(to) >= 0 {
			return fmt.Errorf("%s is not an older release of the catalogue", text)
		}
		c.edges[between{from, to}] = &edge{}
	}
	return nil
}

// risk adds a risk to edges.
func (c *Catalog) risk(e riskedEntry) error {
	to, err := ParseVersion(e.To)
	if err != nil {
		return fmt.Errorf(".to: %w", err)
	}
	from, err := regexp.Compile(`^(?:` + e.From + `)$`)
	switch {
	case err != nil:
		return fmt.Errorf(".from: %w", err)
	case !riskPattern.MatchString(e.Name):
		return fmt.Errorf(".name: %q is not a word in CamelCase", e.Name)
	case e.Message == "" || e.URL == "":
		return errors.New(": url and message are required")
	case len(e.Rules) == 0:
		return errors.New(".matchingRules is required")
	}
	risk := Risk{Name: e.Name, URL: e.URL, Message: e.Message}
	for _, r := range e.Rules {
		if r.Type != "Always" && r.Type != "PromQL" || (r.Type == "PromQL") != (r.PromQL != "") {
			return fmt.Errorf(".matchingRules: type %q is neither Always nor PromQL with a query", r.Type)
		}
		risk.Rules = append(risk.Rules, Rule(r))
	}
	found := false
	for ends, edge := range c.edges {
		if ends.to == to && from.MatchString(ends.from.String()) {
			edge.risks, found = append(edge.risks, risk), true
		}
	}
	if !found {
		return fmt.Errorf(": no edge leads to %s from %s", e.To, e.From)
	}
	return nil
}

func (c *Catalog) find(v Version) (*Release, bool) {
	i, found := slices.BinarySearchFunc(c.releases, v, func(r *Release, v Version) int { return r.Version.Compare(v) })
	if !found {
		return nil, false
	}
	return c.releases[i], true
}

// Releases returns all releases, oldest first.
func (c *Catalog) Releases() []*Release { return slices.Clone(c.releases) }

// EndOfLife returns the end of support of a minor version, and the zero time if unknown.
func (c *Catalog) EndOfLife(minor string) time.Time { return c.ends[minor] }

// Newest returns the newest release of a minor version in a channel group, for example of 4.21 in stable.
func (c *Catalog) Newest(minor, channelGroup string) (*Release, bool) {
	channel := Channel(channelGroup, minor)
	for _, r := range slices.Backward(c.releases) {
		if r.Version.MinorID() == minor && r.In(channel) {
			return r, true
		}
	}
	return nil, false
}

// Exact returns the release of a full version, in any channel.
func (c *Catalog) Exact(version string) (*Release, bool) {
	v, err := ParseVersion(version)
	if err != nil {
		return nil, false
	}
	return c.find(v)
}

// Minors returns the minor versions that a channel group offers, oldest first.
func (c *Catalog) Minors(channelGroup string) []string {
	var minors []string
	for _, r := range c.releases {
		if minor := r.Version.MinorID(); r.In(Channel(channelGroup, minor)) && !slices.Contains(minors, minor) {
			minors = append(minors, minor)
		}
	}
	return minors
}

// Channels returns all update channels, sorted.
func (c *Catalog) Channels() []string {
	var channels []string
	for _, r := range c.releases {
		channels = append(channels, r.Channels...)
	}
	slices.Sort(channels)
	return slices.Compact(channels)
}

// Channel returns the update channel of a channel group for a minor version. An empty group means stable.
func Channel(group, minor string) string {
	if group == "" {
		group = "stable"
	}
	return strings.ToLower(group) + "-" + minor
}

// ErrUnknownImage is returned for an image without a release in the catalogue.
var ErrUnknownImage = errors.New("release image is not in the catalogue")

var tagPattern = regexp.MustCompile(`:(\d+\.\d+\.\d+)(?:-(?:multi|x86_64|aarch64))?$`)

// Lookup returns the release of a pull specification: by its digest in any repository, or by a tag that is a version with an
// optional architecture.
func (c *Catalog) Lookup(image string) (*Release, error) {
	_, digest, byDigest := strings.Cut(image, "@")
	tag := tagPattern.FindStringSubmatch(image)
	for _, r := range c.releases {
		if byDigest && r.Digest == digest || !byDigest && tag != nil && r.Version.String() == tag[1] {
			return r, nil
		}
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknownImage, image)
}

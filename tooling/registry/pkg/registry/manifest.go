package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// The media types of manifests.
const (
	ociImage    = "application/vnd.oci.image.manifest.v1+json"
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	dockerImage = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex = "application/vnd.docker.distribution.manifest.list.v2+json"
)

// Descriptor is a reference to content, as in the OCI specification.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	URLs         []string          `json:"urls,omitempty"`
}

// Manifest is a stored manifest.
type Manifest struct {
	MediaType, Digest string
	Text              []byte
	// Subject is the digest of the manifest to which it refers; empty if there is none.
	Subject string
}

// content are the fields of a manifest or an index that the store reads.
type content struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType"`
	Config        *Descriptor       `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Manifests     []Descriptor      `json:"manifests"`
	Subject       *Descriptor       `json:"subject"`
	Annotations   map[string]string `json:"annotations"`
}

// PutManifest stores a manifest under its digest and, if reference is a tag, under the tag. Everything to which it refers must be stored,
// but not its subject.
func (s *Store) PutManifest(repository, reference, mediaType string, text []byte) (Manifest, error) {
	m := Manifest{MediaType: mediaType, Digest: DigestOf(text), Text: text}
	byTag := tagForm.MatchString(reference)
	if err := CheckRepository(repository); err != nil {
		return m, err
	}
	if !byTag {
		if err := checkDigest(reference); err != nil {
			return m, err
		}
		if reference != m.Digest {
			return m, fmt.Errorf("%w: %s and not %s", ErrDigest, m.Digest, reference)
		}
	}
	c, err := parse(mediaType, text)
	if err != nil {
		return m, err
	}
	if err := s.checkReferences(repository, c); err != nil {
		return m, err
	}
	if err := s.write(s.blob(m.Digest), text); err != nil {
		return m, err
	}
	if c.Subject != nil {
		m.Subject = c.Subject.Digest
		d := Descriptor{MediaType: mediaType, Digest: m.Digest, Size: int64(len(text)), ArtifactType: c.ArtifactType, Annotations: c.Annotations}
		if d.ArtifactType == "" && c.Config != nil {
			d.ArtifactType = c.Config.MediaType
		}
		if err := s.write(s.path("repositories", repository, "_referrers", hexOf(m.Subject), hexOf(m.Digest)), writeJSON(d)); err != nil {
			return m, err
		}
	}
	// A referrer is not listed before its manifest exists.
	if err := s.write(s.path("repositories", repository, "_manifests", hexOf(m.Digest)), []byte(mediaType)); err != nil {
		return m, err
	}
	if byTag {
		return m, s.write(s.path("repositories", repository, "_tags", reference), []byte(m.Digest))
	}
	return m, nil
}

// parse validates a manifest.
func parse(mediaType string, text []byte) (*content, error) {
	if len(text) > MaxManifest {
		return nil, fmt.Errorf("%w: it is larger than %d bytes", ErrManifest, MaxManifest)
	}
	var c content
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	isIndex := mediaType == ociIndex || mediaType == dockerIndex
	switch {
	case !isIndex && mediaType != ociImage && mediaType != dockerImage:
		return nil, fmt.Errorf("%w: the media type %.100q is not supported", ErrManifest, mediaType)
	case c.SchemaVersion != 2:
		return nil, fmt.Errorf("%w: schemaVersion: is %d and not 2", ErrManifest, c.SchemaVersion)
	case c.MediaType != "" && c.MediaType != mediaType:
		return nil, fmt.Errorf("%w: mediaType: is %.100q and not the Content-Type %q", ErrManifest, c.MediaType, mediaType)
	case isIndex && (c.Config != nil || c.Layers != nil):
		return nil, fmt.Errorf("%w: an index has no config and no layers", ErrManifest)
	case !isIndex && c.Config == nil:
		return nil, fmt.Errorf("%w: config: is missing", ErrManifest)
	case !isIndex && c.Manifests != nil:
		return nil, fmt.Errorf("%w: an image has no manifests", ErrManifest)
	}
	all := slices.Concat(c.Layers, c.Manifests)
	if c.Config != nil {
		all = append(all, *c.Config)
	}
	if c.Subject != nil {
		all = append(all, *c.Subject)
	}
	for _, d := range all {
		if err := checkDigest(d.Digest); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrManifest, err)
		}
		if d.Size < 0 {
			return nil, fmt.Errorf("%w: size: %d of %s is negative", ErrManifest, d.Size, d.Digest)
		}
	}
	return &c, nil
}

// checkReferences returns ErrReference unless everything to which a manifest refers is stored with its size. Layers that are fetched from
// elsewhere are an exception.
func (s *Store) checkReferences(repository string, c *content) error {
	blobs := slices.Clone(c.Layers)
	if c.Config != nil {
		blobs = append(blobs, *c.Config)
	}
	for _, d := range blobs {
		if len(d.URLs) > 0 {
			continue
		}
		switch ok, err := s.has(d); {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("%w: blob %s of %d bytes", ErrReference, d.Digest, d.Size)
		}
	}
	for _, d := range c.Manifests {
		m, err := s.Manifest(repository, d.Digest)
		if errors.Is(err, ErrNotFound) || (err == nil && int64(len(m.Text)) != d.Size) {
			return fmt.Errorf("%w: manifest %s of %d bytes", ErrReference, d.Digest, d.Size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Manifest returns the manifest with a tag or a digest.
func (s *Store) Manifest(repository, reference string) (Manifest, error) {
	m := Manifest{Digest: reference}
	if err := CheckRepository(repository); err != nil {
		return m, err
	}
	if tagForm.MatchString(reference) {
		digest, err := os.ReadFile(s.path("repositories", repository, "_tags", reference))
		if err != nil {
			return m, notFound(err, "tag "+reference)
		}
		m.Digest = string(digest)
	} else if err := checkDigest(reference); err != nil {
		return m, err
	}
	mediaType, err := os.ReadFile(s.path("repositories", repository, "_manifests", hexOf(m.Digest)))
	if err != nil {
		return m, notFound(err, "manifest "+m.Digest)
	}
	m.MediaType = string(mediaType)
	m.Text, err = os.ReadFile(s.blob(m.Digest))
	return m, err
}

func notFound(err error, what string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", what, ErrNotFound)
	}
	return err
}

// Tags returns the tags of a repository after a name, in order: at most limit, or all if limit is negative. more means that there are
// others.
func (s *Store) Tags(repository, after string, limit int) (tags []string, more bool, err error) {
	if err := CheckRepository(repository); err != nil {
		return nil, false, err
	}
	if _, err := os.Stat(s.path("repositories", repository, "_manifests")); err != nil {
		return nil, false, notFound(err, "repository "+repository)
	}
	entries, err := os.ReadDir(s.path("repositories", repository, "_tags"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	tags = []string{}
	for _, entry := range entries { // ReadDir sorts by name
		switch {
		case strings.Compare(entry.Name(), after) <= 0:
		case len(tags) == limit:
			return tags, true, nil
		default:
			tags = append(tags, entry.Name())
		}
	}
	return tags, false, nil
}

// Referrers returns the manifests whose subject has a digest, in the order of their digests. artifactType selects one type; empty means
// all.
func (s *Store) Referrers(repository, digest, artifactType string) ([]Descriptor, error) {
	if err := errors.Join(CheckRepository(repository), checkDigest(digest)); err != nil {
		return nil, err
	}
	folder := s.path("repositories", repository, "_referrers", hexOf(digest))
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	found := []Descriptor{}
	for _, entry := range entries {
		// A crash can leave a referrer whose manifest was not confirmed.
		if _, err := os.Stat(s.path("repositories", repository, "_manifests", entry.Name())); err != nil {
			continue
		}
		text, err := os.ReadFile(folder + "/" + entry.Name())
		if err != nil {
			return nil, err
		}
		var d Descriptor
		if err := json.Unmarshal(text, &d); err != nil {
			return nil, fmt.Errorf("%s/%s: %w", folder, entry.Name(), err)
		}
		if artifactType == "" || d.ArtifactType == artifactType {
			found = append(found, d)
		}
	}
	return found, nil
}

package mirror

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"go.yaml.in/yaml/v3"
)

// Plan is what is to be mirrored to one registry: OpenShift releases with everything that their payloads refer to, and single images. All images are
// named by digest.
type Plan struct {
	// Mirrors are the repositories of the target by those of the sources. A release needs one for each repository of its images.
	Mirrors []Mapping `yaml:"mirrors"`
	// Releases are release images.
	Releases []PlannedRelease `yaml:"releases"`
	// Images are single images. The documents that refer to them are mirrored too.
	Images []PlannedImage `yaml:"images"`
}

// Mapping is where the images of a repository are mirrored to.
type Mapping struct {
	// Source is a repository with its registry, for example quay.io/openshift-release-dev/ocp-release.
	Source string `yaml:"source"`
	// Target is a repository of the target registry, without the registry.
	Target string `yaml:"target"`
}

// PlannedRelease is a release image whose signature is verified.
type PlannedRelease struct {
	Image string `yaml:"image"`

	Reference name.Digest `yaml:"-"`
}

// PlannedImage is a single image.
type PlannedImage struct {
	Image string `yaml:"image"`
	// Target is a repository of the target registry, without the registry.
	Target string `yaml:"target"`

	Reference name.Digest `yaml:"-"`
}

// LoadPlan reads a plan from a file.
func LoadPlan(file string, options ...name.Option) (*Plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := ParsePlan(text, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// ParsePlan reads a plan. It returns all problems with the names of the wrong fields. options parse the names of images.
func ParsePlan(text []byte, options ...name.Option) (*Plan, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	p := &Plan{}
	if err := decoder.Decode(p); err != nil {
		return nil, err
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	var problems []error
	report := func(field string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", field, err))
		}
	}
	options = append(options, name.StrictValidation)
	sources := map[string]bool{}
	for i, m := range p.Mirrors {
		report(fmt.Sprintf("mirrors[%d].source", i), checkSource(m.Source, options))
		report(fmt.Sprintf("mirrors[%d].target", i), checkTarget(m.Target))
		if sources[m.Source] {
			report(fmt.Sprintf("mirrors[%d].source", i), fmt.Errorf("%s has another mirror", m.Source))
		}
		sources[m.Source] = true
	}
	seen := map[string]bool{}
	digest := func(field, image string) name.Digest {
		reference, err := parseDigest(image, options)
		if err == nil && seen[image] {
			err = fmt.Errorf("%s is listed twice", image)
		}
		seen[image] = true
		report(field, err)
		return reference
	}
	for i := range p.Releases {
		r := &p.Releases[i]
		field := fmt.Sprintf("releases[%d].image", i)
		r.Reference = digest(field, r.Image)
		if repository, _, found := strings.Cut(r.Image, "@"); found && !sources[repository] {
			report(field, fmt.Errorf("mirrors has no source %s", repository))
		}
	}
	for i := range p.Images {
		image := &p.Images[i]
		image.Reference = digest(fmt.Sprintf("images[%d].image", i), image.Image)
		report(fmt.Sprintf("images[%d].target", i), checkTarget(image.Target))
	}
	if len(p.Releases)+len(p.Images) == 0 {
		problems = append(problems, errors.New("there are no releases and no images"))
	}
	return p, errors.Join(problems...)
}

// parseDigest parses the name of an image with its registry. A tag is refused, because it can name another image tomorrow.
func parseDigest(image string, options []name.Option) (name.Digest, error) {
	if image == "" {
		return name.Digest{}, errors.New("is missing")
	}
	reference, err := name.NewDigest(image, options...)
	if err != nil {
		return name.Digest{}, fmt.Errorf("%q is not REGISTRY/REPOSITORY@sha256:…; tags are refused", image)
	}
	if !strings.HasPrefix(reference.DigestStr(), "sha256:") || reference.Name() != image {
		return name.Digest{}, fmt.Errorf("%q is not REGISTRY/REPOSITORY@sha256:…, without a tag", image)
	}
	return reference, nil
}

func checkSource(source string, options []name.Option) error {
	if source == "" {
		return errors.New("is missing")
	}
	repository, err := name.NewRepository(source, options...)
	if err != nil || repository.Name() != source {
		return fmt.Errorf("%q is not REGISTRY/REPOSITORY", source)
	}
	return nil
}

func checkTarget(target string) error {
	if target == "" {
		return errors.New("is missing")
	}
	if repository, err := name.NewRepository("target.invalid/"+target, name.StrictValidation); err != nil || repository.RepositoryStr() != target {
		return fmt.Errorf("%q is not a repository without its registry", target)
	}
	return nil
}

// Target returns the repository of the target registry for a repository of a source.
func (p *Plan) Target(source string) (string, error) {
	for _, m := range p.Mirrors {
		if m.Source == source {
			return m.Target, nil
		}
	}
	return "", fmt.Errorf("mirrors has no source %s", source)
}

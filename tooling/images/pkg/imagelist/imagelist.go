// Package imagelist reads and writes the list of images that a build has produced: the digest of each image by its name. Programs that push
// images, or write digests into the configuration of deployments, read it.
package imagelist

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	strictjson "sigs.k8s.io/json"
)

// List is the content of the file.
type List struct {
	Images map[string]Image `json:"images"`
}

// Image is a built image.
type Image struct {
	// Repository is the repository of the image within a registry.
	Repository string `json:"repository"`
	Digest     string `json:"digest"`
	// Revision is the newest commit that changed a source of the image. It is empty if a source had changes that were not committed.
	Revision string `json:"revision,omitempty"`
	Version  string `json:"version"`
}

var (
	digestForm     = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*$`)
	revisionForm   = regexp.MustCompile(`^([0-9a-f]{40})?$`)
)

// Load reads a list and validates it. An error names the field.
func Load(file string) (*List, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return list, nil
}

// Parse reads a list and validates it.
func Parse(text []byte) (*List, error) {
	list := &List{}
	if rejected, err := strictjson.UnmarshalStrict(text, list); err != nil || len(rejected) > 0 {
		return nil, errors.Join(append(rejected, err)...)
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(list.Images)) {
		image := list.Images[name]
		for _, field := range []struct {
			name, value string
			form        *regexp.Regexp
		}{{"repository", image.Repository, repositoryForm}, {"digest", image.Digest, digestForm}, {"revision", image.Revision, revisionForm}} {
			if !field.form.MatchString(field.value) {
				problems = append(problems, fmt.Errorf("images.%s.%s: %q does not match %s", name, field.name, field.value, field.form))
			}
		}
	}
	if list.Images == nil {
		problems = append(problems, errors.New("images: is missing"))
	}
	return list, errors.Join(problems...)
}

// Write replaces the file.
func (l *List) Write(file string) error {
	text, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(file, append(text, '\n'), 0o644)
}

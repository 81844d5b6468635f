// Package update computes which digests of images an environment gets, and writes them into its layer of the configuration.
//
// The layer config/images/CLOUD/ENVIRONMENT.yaml has only digests. An image of the configuration is identified by its repository. An image
// that is not updated keeps its digest. The new layer is checked with the whole configuration before the file is replaced, so the file
// is always complete and valid.
package update

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
)

// header precedes the digests in a file.
const header = "# Written by image-updater. The file has the digests of the images of an environment.\n\n"

// Change is another digest of an image of the configuration. An image without a digest has an empty one.
type Change struct{ Key, Before, After string }

// String describes the change.
func (c Change) String() string {
	before := c.Before
	if before == "" {
		before = "nothing"
	}
	return fmt.Sprintf("%s.digest: %s -> %s", c.Key, before, c.After)
}

// Layer is a new layer of images that was checked.
type Layer struct {
	Changes []Change

	// dir is the folder of the configuration.
	dir, file string
	content   []byte
}

// Compute returns the layer of images of an environment with new digests, which are by repository. Repositories that the configuration
// does not have are ignored. Afterwards the configuration has the layer, in memory; after an error, it must not be used.
func Compute(configuration *deployment.Configuration, environment layer.Target, digests map[string]string) (*Layer, error) {
	images, err := configuration.Images(environment)
	if err != nil {
		return nil, err
	}
	dir := configuration.Dir()
	l := &Layer{dir: dir, file: filepath.Join(dir, filepath.FromSlash(layer.ImagesFile(environment)))}
	values := map[string]any{}
	for _, image := range images {
		digest := image.Digest
		if updated := digests[image.Repository]; updated != "" && updated != digest {
			l.Changes = append(l.Changes, Change{image.Key, digest, updated})
			digest = updated
		}
		if digest != "" {
			set(values, append(document.Split(image.Key), "digest"), digest)
		}
	}
	text := bytes.NewBufferString(header)
	encoder := yaml.NewEncoder(text) // sorts the keys
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(values), encoder.Close()); err != nil {
		return nil, err
	}
	l.content = text.Bytes()
	if err := configuration.SetImages(environment, l.content); err != nil {
		return nil, fmt.Errorf("the configuration with the new digests is wrong: %w", err)
	}
	return l, nil
}

// set sets a value at a path of keys.
func set(values map[string]any, path []string, value string) {
	for _, key := range path[:len(path)-1] {
		inner, ok := values[key].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[key] = inner
		}
		values = inner
	}
	values[path[len(path)-1]] = value
}

// Write replaces the file of the layer and returns its path. It writes nothing, and returns an empty path, if nothing changes.
func (l *Layer) Write() (string, error) {
	if len(l.Changes) == 0 {
		return "", nil
	}
	if err := os.MkdirAll(filepath.Dir(l.file), 0o755); err != nil {
		return "", err
	}
	return l.file, l.replace()
}

// replace writes another file and gives it the name of the layer when it is complete. A process that is killed leaves that file in the
// folder of the configuration, where it is not read, and not among the layers.
func (l *Layer) replace() error {
	file, err := os.CreateTemp(l.dir, ".images-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(l.content)
	if err := errors.Join(err, file.Chmod(0o644), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), l.file)
}

package deployment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// Image is an image that an environment deploys.
type Image struct {
	// Key is the path of the image, for example frontend.image.
	Key string
	// Repository is the repository within the registry; empty if the environment has a digest, but no region or stamp with the image.
	Repository string
	// Digest is the digest in the environment's layer of images; empty if it has none.
	Digest string
}

// Images returns the images that the regions and stamps of an environment deploy, by key. They must have the same repository everywhere,
// because the environment has one digest for each.
func (c *Configuration) Images(environment layer.Target) ([]Image, error) {
	if environment.Level() != layer.Environment {
		return nil, fmt.Errorf("%s is not an environment: use CLOUD/ENVIRONMENT", environment)
	}
	if _, err := c.Tree.Layers(environment); err != nil {
		return nil, err
	}
	if len(c.Problems) > 0 {
		return nil, c.Problems.Err()
	}
	var images []Image
	for _, path := range c.imageKeys() {
		image := Image{Key: strings.Join(path, ".")}
		var err error
		if image.Repository, err = c.repository(environment, path); err != nil {
			return nil, err
		}
		if root := c.Tree.Images(environment); root != nil {
			image.Digest = text(root.Get(append(slices.Clone(path), "digest")...))
		}
		if image.Repository != "" || image.Digest != "" {
			images = append(images, image)
		}
	}
	return images, nil
}

// imageKeys returns the paths of all images of the schema.
func (c *Configuration) imageKeys() [][]string {
	var keys [][]string
	c.Schema.Walk(func(path []string, p *schema.Property) {
		if p.Image() && !slices.Contains(path, "[]") && !slices.Contains(path, "<name>") {
			keys = append(keys, path)
		}
	})
	return keys
}

// repository returns the repository of an image in an environment; empty if no region or stamp has the image.
func (c *Configuration) repository(environment layer.Target, path []string) (string, error) {
	found := ""
	for _, target := range c.Owners(path[0]) {
		if !slices.Equal(target[:layer.Environment], environment) {
			continue
		}
		values, err := c.Render(target)
		if err != nil {
			return "", err
		}
		repository := values.Get(append(slices.Clone(path), "repository")...)
		switch {
		case repository == nil:
			continue
		case found != "" && found != text(repository):
			return "", document.Problems{{Origin: repository.Origin, Key: strings.Join(path, ".") + ".repository",
				Message: fmt.Sprintf("is %s for %s, and %s for another target of %s; an environment has one digest for each image", text(repository), target, found, environment)}}
		}
		found = text(repository)
	}
	return found, nil
}

// text returns the value of a string, or nothing.
func text(n *document.Node) string {
	if n == nil {
		return ""
	}
	value, _ := n.Value.(string)
	return value
}

// SetImages replaces the layer with the images of an environment in memory, and checks it and all targets. It writes no file. After an
// error, the configuration must not be used any more.
func (c *Configuration) SetImages(environment layer.Target, content []byte) error {
	l, problems := c.Tree.SetImages(environment, content)
	c.Problems = slices.DeleteFunc(c.Problems, func(p document.Problem) bool { return p.Origin.File == l.Root.Origin.File })
	c.Problems = append(append(c.Problems, problems...), c.Schema.CheckLayer(l)...)
	_, err := c.CheckAll()
	return err
}

// Dir returns the folder of the configuration.
func (c *Configuration) Dir() string { return c.dir }

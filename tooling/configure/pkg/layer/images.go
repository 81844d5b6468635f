package layer

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// ImagesFile returns the name of the file with the images of an environment, relative to the configuration's folder.
func ImagesFile(environment Target) string {
	return path.Join(ImagesFolder, environment.String()+".yaml")
}

// Images returns the layer with the images of an environment; nil if it has none.
func (t *Tree) Images(environment Target) *document.Node {
	if l := t.images[environment.String()]; l != nil {
		return l.Root
	}
	return nil
}

// SetImages replaces the layer with the images of an environment in memory. The result has the problems of the text.
func (t *Tree) SetImages(environment Target, text []byte) (*Layer, document.Problems) {
	root, problems := document.Parse(t.imagesOrigin(environment), text)
	l := &Layer{environment, root}
	t.images[environment.String()] = l
	return l, append(problems, onlyDigests("", root)...)
}

func (t *Tree) readImages(files fs.FS, target Target) (document.Problems, error) {
	if target.Level() != Environment {
		return document.Problems{{Origin: t.imagesOrigin(target), Message: "images belong to environments: name the file " + ImagesFolder + "/CLOUD/ENVIRONMENT.yaml"}}, nil
	}
	text, err := fs.ReadFile(files, ImagesFile(target))
	if err != nil {
		return nil, fmt.Errorf("reading the images of %s: %w", target, err)
	}
	_, problems := t.SetImages(target, text)
	return problems, nil
}

func (t *Tree) imagesOrigin(environment Target) document.Origin {
	return document.Origin{Layer: "images " + environment.String(), File: path.Join(t.shown, ImagesFile(environment))}
}

// onlyDigests reports keys of a layer of images that are not digests of images.
func onlyDigests(key string, n *document.Node) document.Problems {
	var problems document.Problems
	for _, name := range slices.Sorted(maps.Keys(n.Fields)) {
		at, field := document.Join(key, name), n.Fields[name]
		switch parts := document.Split(at); {
		case field.Kind == document.Map:
			problems = append(problems, onlyDigests(at, field)...)
		case field.Kind != document.Scalar || len(parts) < 3 || parts[len(parts)-2] != "image" || parts[len(parts)-1] != "digest":
			problems = append(problems, document.Problem{Origin: field.Origin, Key: at, Message: "a layer of images may set only the keys KEY.image.digest; set others in " + CloudsFolder})
		}
	}
	return problems
}

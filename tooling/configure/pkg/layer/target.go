// Package layer finds the layers of the configuration, merges those of one target and replaces references.
//
// A target is a region or a stamp of a region. Its layers are, from the outermost to the innermost: the defaults, its cloud, its
// environment, the images of its environment, its region and, for a stamp, the stamp. The layer of images has only digests of images.
// An inner layer takes precedence over an outer one. Maps are merged key by key, every other value is replaced as a whole, and null
// deletes an inherited key, as in JSON Merge Patch (RFC 7396).
package layer

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
)

// Levels are the names of the levels, from the outermost to the innermost.
var Levels = [...]string{"defaults", "cloud", "environment", "region", "stamp"}

// The indexes of levels.
const (
	Cloud = iota + 1
	Environment
	Region
	Stamp
)

// DefaultsFile is the file of the outermost layer, ImagesFolder has those with the images of environments, and CloudsFolder has all others.
const (
	DefaultsFile = "defaults.yaml"
	CloudsFolder = "clouds"
	ImagesFolder = "images"
)

// Target is a path of names: cloud, environment, region and stamp. A path that ends earlier denotes a layer.
type Target []string

// String returns the names with slashes, for example public/prod/uksouth.
func (t Target) String() string { return strings.Join(t, "/") }

// Level returns the level of the innermost layer.
func (t Target) Level() int { return len(t) }

// Contains reports whether other is t, or a target within it, such as a stamp of a region.
func (t Target) Contains(other Target) bool {
	return len(other) >= len(t) && slices.Equal(other[:len(t)], t)
}

// ParseTarget parses the form of String.
func ParseTarget(text string) (Target, error) {
	t := Target(strings.Split(text, "/"))
	if len(t) > Stamp {
		return nil, fmt.Errorf("%q has more than %d names: use CLOUD/ENVIRONMENT/REGION[/STAMP]", text, Stamp)
	}
	for i, name := range t {
		if !nameForms[i].MatchString(name) {
			return nil, fmt.Errorf("%q: the %s %q does not match %s", text, Levels[i+1], name, nameForms[i])
		}
	}
	return t, nil
}

// nameForms are the forms of the names of clouds, environments, regions and stamps. The name of an environment becomes part of
// the names of namespaces, which Cluster Service limits to 10 characters.
var nameForms = [...]*regexp.Regexp{
	regexp.MustCompile(`^[a-z][a-z0-9]{0,19}$`),
	regexp.MustCompile(`^[a-z][a-z0-9]{0,9}$`),
	regexp.MustCompile(`^[a-z][a-z0-9]{0,29}$`),
	regexp.MustCompile(`^[1-9][0-9]?$`),
}

// name returns the name of the layer with the names of t, for errors and explanations.
func (t Target) name() string {
	if len(t) == 0 {
		return Levels[0]
	}
	return Levels[len(t)] + " " + t.String()
}

// file returns the file of the innermost layer, relative to the configuration's folder.
func (t Target) file() string {
	if len(t) == 0 {
		return DefaultsFile
	}
	return path.Join(CloudsFolder, t.String()+".yaml")
}

// Layer is one file.
type Layer struct {
	Target Target
	Root   *document.Node
}

// Tree holds all layers of a configuration.
type Tree struct {
	layers map[string]*Layer
	// images are the layers with the images of environments.
	images map[string]*Layer
	// shown is the path of the folder, which precedes the names of files in errors.
	shown string
}

// Read reads all layers from a folder. The problems are those of single files.
func Read(files fs.FS, shown string) (*Tree, document.Problems, error) {
	t := &Tree{layers: map[string]*Layer{}, images: map[string]*Layer{}, shown: shown}
	problems, err := t.read(files, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, folder := range []string{CloudsFolder, ImagesFolder} {
		err = fs.WalkDir(files, folder, func(name string, entry fs.DirEntry, err error) error {
			if name == ImagesFolder && errors.Is(err, fs.ErrNotExist) {
				return fs.SkipAll // no environment has images
			}
			if err != nil {
				return err
			}
			more, err := t.visit(files, folder, name, entry)
			problems = append(problems, more...)
			return err
		})
		if err != nil {
			return nil, nil, fmt.Errorf("reading the configuration in %s: %w", shown, err)
		}
	}
	for _, l := range t.layers {
		for depth := 1; depth < len(l.Target); depth++ {
			if parent := l.Target[:depth]; t.layers[parent.String()] == nil {
				problems = append(problems, document.Problem{Origin: t.origin(l.Target), Message: fmt.Sprintf("the layer needs the outer layer %s, and %s does not exist", parent.name(), path.Join(shown, parent.file()))})
			}
		}
	}
	for _, l := range t.images {
		if t.layers[l.Target.String()] == nil {
			problems = append(problems, document.Problem{Origin: t.imagesOrigin(l.Target), Message: fmt.Sprintf("the layer needs the layer %s, and %s does not exist", l.Target.name(), path.Join(shown, l.Target.file()))})
		}
	}
	return t, problems, nil
}

func (t *Tree) visit(files fs.FS, folder, name string, entry fs.DirEntry) (document.Problems, error) {
	relative := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
	if entry.IsDir() {
		return nil, nil
	}
	at := document.Origin{File: path.Join(t.shown, name)}
	stem, isYAML := strings.CutSuffix(relative, ".yaml")
	if !isYAML || !entry.Type().IsRegular() {
		return document.Problems{{Origin: at, Message: "only regular files named *.yaml are allowed here"}}, nil
	}
	target, err := ParseTarget(stem)
	if err != nil {
		return document.Problems{{Origin: at, Message: "the name of the file is not that of a layer: " + err.Error()}}, nil
	}
	if folder == ImagesFolder {
		return t.readImages(files, target)
	}
	return t.read(files, target)
}

func (t *Tree) read(files fs.FS, target Target) (document.Problems, error) {
	text, err := fs.ReadFile(files, target.file())
	if err != nil {
		return nil, fmt.Errorf("reading the layer %s: %w", target.name(), err)
	}
	root, problems := document.Parse(t.origin(target), text)
	t.layers[target.String()] = &Layer{target, root}
	return problems, nil
}

func (t *Tree) origin(target Target) document.Origin {
	return document.Origin{Layer: target.name(), File: path.Join(t.shown, target.file())}
}

// Origin returns the origin of a key that the target's layer at a level could set.
func (t *Tree) Origin(target Target, level int) document.Origin {
	return t.origin(target[:min(level, len(target))])
}

// All returns all layers, outer ones first.
func (t *Tree) All() []*Layer {
	var all []*Layer
	for _, layers := range []map[string]*Layer{t.layers, t.images} {
		for _, l := range layers {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b *Layer) int {
		return cmp.Or(slices.Compare(a.Target, b.Target), cmp.Compare(a.Root.Origin.File, b.Root.Origin.File))
	})
	return all
}

// At returns the names of the layers of one level within a target, in order.
func (t *Tree) At(level int, within Target) []Target {
	var found []Target
	for _, l := range t.layers {
		if len(l.Target) == level && len(within) <= level && slices.Equal(l.Target[:len(within)], within) {
			found = append(found, l.Target)
		}
	}
	slices.SortFunc(found, slices.Compare)
	return found
}

// ErrUnknown means that a target has no layer of its own, or that it has another level than the command needs.
var ErrUnknown = errors.New("unknown target")

// Layers returns the layers of a target from the outermost to the innermost.
func (t *Tree) Layers(target Target) ([]*Layer, error) {
	var layers []*Layer
	for depth := range len(target) + 1 {
		l := t.layers[target[:depth].String()]
		if l == nil {
			return nil, fmt.Errorf("%w: %s: there is no file %s", ErrUnknown, target, path.Join(t.shown, target[:depth].file()))
		}
		layers = append(layers, l)
		if images := t.images[target[:depth].String()]; depth == Environment && images != nil {
			layers = append(layers, images)
		}
	}
	return layers, nil
}

// Files returns the files that the layers of a target have or could have.
func (t *Tree) Files(target Target) []string {
	var files []string
	for depth := range len(target) + 1 {
		files = append(files, t.origin(target[:depth]).File)
		if depth == Environment {
			files = append(files, t.imagesOrigin(target[:depth]).File)
		}
	}
	return files
}

package assemble

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Image is an image to build.
type Image struct {
	Name       string    `yaml:"name"`
	Repository string    `yaml:"repository"`
	Title      string    `yaml:"title"`
	Programs   []Program `yaml:"programs"`
	Files      []Files   `yaml:"files"`
}

// Program is a program in an image. It is stored as /usr/bin/NAME.
type Program struct {
	// Package is a main package: ./FOLDER within the repository, or an import path if Pin is set.
	Package string `yaml:"package"`
	// Pin is the folder of a module of third-party programs that requires the package.
	Pin string `yaml:"pin"`
	// Name is the name of the program; empty means the last element of Package.
	Name string `yaml:"name"`
	// LDFlags are additional flags of the linker. {version} is replaced by the version of the package's module.
	LDFlags string `yaml:"ldflags"`
}

// Files are the YAML files below a folder of a module.
type Files struct {
	// Pin is the folder of a module that requires Module.
	Pin    string `yaml:"pin"`
	Module string `yaml:"module"`
	Folder string `yaml:"folder"`
	// Into is the folder in the image, without a leading slash.
	Into string `yaml:"into"`
}

// The forms of names.
var (
	nameForm       = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+([._/-][a-z0-9]+)*$`)
)

// LoadImages reads a list of images from a file.
func LoadImages(file string) ([]Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	images, err := ParseImages(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return images, nil
}

// ParseImages reads a list of images. It returns all problems with the names of the wrong fields.
func ParseImages(text []byte) ([]Image, error) {
	var list struct {
		Images []Image `yaml:"images"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil {
		return nil, err
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one YAML document")
	}
	if len(list.Images) == 0 {
		return nil, errors.New("images: there is none")
	}
	var problems []error
	names, repositories := map[string]bool{}, map[string]bool{}
	for i := range list.Images {
		image := &list.Images[i]
		at := fmt.Sprintf("images[%d]", i)
		if names[image.Name] {
			problems = append(problems, fmt.Errorf("%s.name: %s is the name of another image", at, image.Name))
		}
		if repositories[image.Repository] {
			problems = append(problems, fmt.Errorf("%s.repository: %s is the repository of another image", at, image.Repository))
		}
		names[image.Name], repositories[image.Repository] = true, true
		for _, problem := range image.complete() {
			problems = append(problems, fmt.Errorf("%s.%w", at, problem))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return list.Images, nil
}

// complete sets the names of programs and returns the problems of an image.
func (i *Image) complete() []error {
	var problems []error
	report := func(format string, arguments ...any) { problems = append(problems, fmt.Errorf(format, arguments...)) }
	if !nameForm.MatchString(i.Name) {
		report("name: %q does not match %s", i.Name, nameForm)
	}
	if !repositoryForm.MatchString(i.Repository) {
		report("repository: %q does not match %s", i.Repository, repositoryForm)
	}
	if strings.TrimSpace(i.Title) == "" {
		report("title: is empty")
	}
	if len(i.Programs) == 0 {
		report("programs: there is none")
	}
	names := map[string]bool{}
	for n := range i.Programs {
		p := &i.Programs[n]
		if p.Name == "" {
			p.Name = path.Base(p.Package)
		}
		switch ours := strings.HasPrefix(p.Package, "./"); {
		case p.Package == "":
			report("programs[%d].package: is empty", n)
		case ours && p.Pin != "":
			report("programs[%d].pin: a package of the repository has none", n)
		case !ours && p.Pin == "":
			report("programs[%d].pin: %s is not a package of the repository, so it needs the folder of the module that pins it", n, p.Package)
		case ours && p.Name != path.Base(p.Package):
			report("programs[%d].name: a package of the repository has the name of its folder, %s", n, path.Base(p.Package))
		case !nameForm.MatchString(p.Name):
			report("programs[%d].name: %q does not match %s", n, p.Name, nameForm)
		case names[p.Name]:
			report("programs[%d].name: %s is the name of another program", n, p.Name)
		}
		names[p.Name] = true
	}
	for n, f := range i.Files {
		for field, value := range map[string]string{"pin": f.Pin, "module": f.Module, "folder": f.Folder, "into": f.Into} {
			if value == "" || path.IsAbs(value) || path.Clean(value) != value || strings.HasPrefix(value, "..") {
				report("files[%d].%s: %q is not a path like a/b", n, field, value)
			}
		}
	}
	return problems
}

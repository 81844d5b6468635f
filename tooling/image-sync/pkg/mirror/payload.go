package mirror

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// file is the path of the list of images in a release image, and maxFile its maximum size. The lists of OpenShift have some 100 KiB.
const (
	file    = "release-manifests/image-references"
	maxFile = 8 << 20
)

// maxLayer is the maximum size of an uncompressed layer, so that a malicious layer cannot keep the program busy.
const maxLayer = 8 << 30

// Component is an image of a release.
type Component struct {
	Name  string
	Image name.Digest
}

// Components returns the images of a release, in the order of their names. It reads the layers from the last one, which has the list in
// OpenShift's release images.
func Components(release v1.Image, options ...name.Option) ([]Component, error) {
	layers, err := release.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range slices.Backward(layers) {
		text, err := find(layer)
		if err != nil {
			return nil, err
		}
		if text != nil {
			return parse(text, options)
		}
	}
	return nil, fmt.Errorf("the image has no file %s: it is not a release image", file)
}

// find returns the list if a layer has it.
func find(layer v1.Layer) ([]byte, error) {
	in, err := layer.Uncompressed()
	if err != nil {
		return nil, fmt.Errorf("read a layer of the release image: %w", err)
	}
	defer in.Close()
	var text []byte
	limited := io.LimitReader(in, maxLayer)
	archive := tar.NewReader(limited)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read a layer of the release image: %w", err)
		}
		if strings.TrimPrefix(path.Clean(header.Name), "/") != file || header.Typeflag != tar.TypeReg {
			continue
		}
		if header.Size > maxFile {
			return nil, fmt.Errorf("%s is larger than %d bytes", file, maxFile)
		}
		if text, err = io.ReadAll(archive); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
	}
	// The digest of the layer is verified when it has been read to its end.
	if _, err := io.Copy(io.Discard, limited); err != nil {
		return nil, fmt.Errorf("read a layer of the release image: %w", err)
	}
	return text, nil
}

// parse reads the list.
func parse(text []byte, options []name.Option) ([]Component, error) {
	var list struct {
		Kind string `json:"kind"`
		Spec struct {
			Tags []struct {
				Name string `json:"name"`
				From struct {
					Kind string `json:"kind"`
					Name string `json:"name"`
				} `json:"from"`
			} `json:"tags"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if list.Kind != "ImageStream" {
		return nil, fmt.Errorf("%s: kind: is %q and not ImageStream", file, list.Kind)
	}
	if len(list.Spec.Tags) == 0 {
		return nil, fmt.Errorf("%s: spec.tags: there is none", file)
	}
	var components []Component
	for i, tag := range list.Spec.Tags {
		image, err := name.NewDigest(tag.From.Name, append(options, name.StrictValidation)...)
		if err != nil || tag.From.Kind != "DockerImage" || !strings.HasPrefix(image.DigestStr(), "sha256:") {
			return nil, fmt.Errorf("%s: spec.tags[%d].from: %s %q is not an image with a digest", file, i, tag.From.Kind, tag.From.Name)
		}
		components = append(components, Component{Name: tag.Name, Image: image})
	}
	slices.SortFunc(components, func(a, b Component) int { return strings.Compare(a.Name, b.Name) })
	return components, nil
}

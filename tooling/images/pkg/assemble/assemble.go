// Package assemble builds images: it compiles their programs, stores their layers, configurations and manifests in an OCI image layout, and
// attaches the bill of materials of each program and the provenance of the image. The image of the same commit has the same digest on
// every machine with the same Go toolchain.
//
// Programs are compiled without C code, without the folder of the sources, without debug information, for Linux on amd64. A program that is
// up to date is not linked again. The revision of an image is the newest commit that changed a file from which the image is built. An image
// therefore stays the same, with its digest, while commits change other files, and a build of that commit gives the same image.
//
// All images share the layer of BaseFiles: the certificate authorities of Mozilla, time zones, and the user as which programs run. Nothing
// comes from the machine that builds it: the authorities are those of the pinned module golang.org/x/crypto/x509roots/fallback, and the time
// zones those of the Go toolchain.
package assemble

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/content"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

// ListFile is the file with the list of images, in the folder of a build.
const ListFile = "images.json"

// annotation has the name of an image, in the index of the layout.
const annotation = "io.hcpmesh.image"

// Options configure a build.
type Options struct {
	// Root is the Git working tree.
	Root string
	// Source is the folder that is compiled; empty means Root. A second build of the same sources has a copy in another folder.
	Source string
	// Into is the folder for the programs, the image layout and the list.
	Into string
	// Cache is Go's build cache; empty means the user's.
	Cache string
	// Tool are the main packages of the repository, and File the file, that define how images are built. A change of them is a change of
	// every image.
	Tool []string
	File string
}

// Build builds images. The list and the layout keep the images of earlier builds that are in defined, but not in selected.
func Build(ctx context.Context, o Options, defined, selected []Image) (*imagelist.List, error) {
	b, err := newBuild(ctx, o, selected)
	if err != nil {
		return nil, err
	}
	list, index, err := b.earlier(defined, selected)
	if err != nil {
		return nil, err
	}
	for _, image := range selected {
		built, manifests, err := b.image(ctx, image)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", image.Name, err)
		}
		list.Images[image.Name] = built
		index = append(index, manifests...)
	}
	if err := b.store.WriteIndex(index); err != nil {
		return nil, err
	}
	return list, list.Write(filepath.Join(o.Into, ListFile))
}

// build is one run of Build.
type build struct {
	options  Options
	compiler *Compiler
	store    *content.Store
	git      *Repository
	shared   content.Layer
}

// newBuild compiles the programs and stores the layer that all images share.
func newBuild(ctx context.Context, o Options, images []Image) (*build, error) {
	var err error
	if o.Into, err = filepath.Abs(o.Into); err != nil {
		return nil, err
	}
	if o.Root, err = filepath.EvalSymlinks(o.Root); err != nil {
		return nil, err
	}
	if o.Source == "" {
		o.Source = o.Root
	}
	b := &build{options: o, compiler: &Compiler{Root: o.Source, Into: filepath.Join(o.Into, "bin"), Cache: o.Cache}}
	packages := slices.Clone(o.Tool)
	for _, image := range images {
		for _, program := range image.Programs {
			if program.Pin == "" {
				packages = append(packages, program.Package)
			}
		}
	}
	slices.Sort(packages)
	if b.git, err = OpenRepository(ctx, o.Root, slices.Compact(packages)); err != nil {
		return nil, err
	}
	if err := b.compiler.Build(ctx, images); err != nil {
		return nil, err
	}
	if b.store, err = content.Open(o.Into); err != nil {
		return nil, err
	}
	zones, err := b.compiler.Zones(ctx)
	if err != nil {
		return nil, err
	}
	files, err := BaseFiles(zones)
	if err != nil {
		return nil, err
	}
	b.shared, err = b.store.Layer(files)
	return b, err
}

// earlier returns the list and the index of earlier builds without the images that are built now or not defined.
func (b *build) earlier(defined, selected []Image) (*imagelist.List, []v1.Descriptor, error) {
	list := &imagelist.List{Images: map[string]imagelist.Image{}}
	old, err := imagelist.Load(filepath.Join(b.options.Into, ListFile))
	if os.IsNotExist(err) {
		return list, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	manifests, err := b.store.Index()
	if err != nil {
		return nil, nil, err
	}
	var index []v1.Descriptor
	for _, image := range defined {
		entry, built := old.Images[image.Name]
		if !built || slices.ContainsFunc(selected, func(s Image) bool { return s.Name == image.Name }) {
			continue
		}
		list.Images[image.Name] = entry
		for _, manifest := range manifests {
			if manifest.Annotations[annotation] == image.Name {
				index = append(index, manifest)
			}
		}
	}
	return list, index, nil
}

// image stores an image and what is attached to it, and returns its entry of the list and its part of the layout's index.
func (b *build) image(ctx context.Context, image Image) (imagelist.Image, []v1.Descriptor, error) {
	state, err := b.revision(ctx, image)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	files, err := b.files(ctx, image)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	layer, err := b.store.Layer(files)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	manifest, err := b.manifest(image, state, layer)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	programs, err := b.programs(image)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	attached, err := b.attach(image, state, manifest, programs)
	if err != nil {
		return imagelist.Image{}, nil, err
	}
	entry := imagelist.Image{Repository: image.Repository, Digest: manifest.Digest.String(), Version: state.Version()}
	if !state.Uncommitted {
		entry.Revision = state.Commit
	}
	index := append([]v1.Descriptor{manifest}, attached...)
	for i := range index {
		index[i].Annotations = map[string]string{annotation: image.Name, "org.opencontainers.image.ref.name": image.Repository}
	}
	return entry, index, nil
}

// revision returns the revision of the files from which an image is built.
func (b *build) revision(ctx context.Context, image Image) (Revision, error) {
	packages, files := slices.Clone(b.options.Tool), []string{b.options.File}
	for _, program := range image.Programs {
		if program.Pin == "" {
			packages = append(packages, program.Package)
		} else {
			files = append(files, program.Pin)
		}
	}
	for _, f := range image.Files {
		files = append(files, f.Pin)
	}
	return b.git.Of(ctx, packages, files)
}

// files returns the files of the layer of an image.
func (b *build) files(ctx context.Context, image Image) ([]content.File, error) {
	var files []content.File
	for _, program := range image.Programs {
		files = append(files, content.File{Path: "usr/bin/" + program.Name, Mode: 0o755, Source: b.compiler.Path(program)})
	}
	for _, f := range image.Files {
		folder, err := b.compiler.Folder(ctx, f)
		if err != nil {
			return nil, err
		}
		found, err := yamlFiles(folder, f.Into)
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}

// manifest stores the configuration and the manifest of an image.
func (b *build) manifest(image Image, state Revision, layer content.Layer) (v1.Descriptor, error) {
	labels := map[string]string{
		"org.opencontainers.image.title":    image.Title,
		"org.opencontainers.image.version":  state.Version(),
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if !state.Uncommitted {
		labels["org.opencontainers.image.revision"] = state.Commit
	}
	config, err := b.store.PutJSON(types.OCIConfigJSON, v1.ConfigFile{
		Architecture: Architecture, OS: OS, Created: v1.Time{Time: state.Time},
		Config: v1.Config{User: User, WorkingDir: "/", Entrypoint: []string{"/usr/bin/" + image.Programs[0].Name}, Labels: labels,
			Env: []string{"PATH=/usr/bin", "SSL_CERT_FILE=/" + CertificatesFile}},
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{b.shared.DiffID, layer.DiffID}},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	return b.store.PutJSON(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config, Layers: []v1.Descriptor{b.shared.Descriptor(), layer.Descriptor()},
		Annotations: labels,
	})
}

// programs returns the programs of an image with their digests.
func (b *build) programs(image Image) ([]supplychain.Program, error) {
	var programs []supplychain.Program
	for _, p := range image.Programs {
		program := supplychain.Program{Name: p.Name, Package: p.Package, Path: b.compiler.Path(p)}
		var err error
		if program.SHA256, err = supplychain.Digest(program.Path); err != nil {
			return nil, err
		}
		programs = append(programs, program)
	}
	return programs, nil
}

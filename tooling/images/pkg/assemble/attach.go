package assemble

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/content"
	"github.com/hcpmesh/hcpmesh/tooling/supplychain/pkg/supplychain"
)

// emptyType is the media type of the empty configuration of a manifest that attaches a document.
const emptyType types.MediaType = "application/vnd.oci.empty.v1+json"

// attach stores the bills of materials and the provenance of an image, and returns the manifests that refer to the image. Sources with
// changes that were not committed have no provenance, because it names a commit.
func (b *build) attach(image Image, state Revision, subject v1.Descriptor, programs []supplychain.Program) ([]v1.Descriptor, error) {
	var manifests []v1.Descriptor
	for _, program := range programs {
		bill, err := supplychain.BillOf(supplychain.Subject{Name: program.Name, Path: program.Path, SHA256: program.SHA256, Version: state.Version()})
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		if err := supplychain.WriteBill(&text, bill); err != nil {
			return nil, err
		}
		manifest, err := b.document(supplychain.BillMediaType, subject, program.Name, text.Bytes())
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, manifest)
	}
	if state.Uncommitted {
		return manifests, nil
	}
	statement, err := supplychain.ProvenanceOfImage(state.Commit, supplychain.Artifact{Name: image.Repository, SHA256: subject.Digest.Hex}, programs)
	if err != nil {
		return nil, err
	}
	manifest, err := b.document(supplychain.ProvenanceMediaType, subject, image.Name, statement)
	return append(manifests, manifest), err
}

// document stores a document and the manifest that attaches it to an image.
func (b *build) document(mediaType types.MediaType, subject v1.Descriptor, title string, text []byte) (v1.Descriptor, error) {
	document, err := b.store.Put(mediaType, text)
	if err != nil {
		return v1.Descriptor{}, err
	}
	document.Annotations = map[string]string{"org.opencontainers.image.title": title}
	config, err := b.store.Put(emptyType, []byte("{}"))
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := b.store.PutJSON(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: string(mediaType), Config: config, Layers: []v1.Descriptor{document},
		Subject: &v1.Descriptor{MediaType: subject.MediaType, Size: subject.Size, Digest: subject.Digest},
	})
	manifest.ArtifactType = string(mediaType)
	return manifest, err
}

// yamlFiles returns the YAML files below a folder, with the folders that they are in.
func yamlFiles(folder, into string) ([]content.File, error) {
	var files []content.File
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && path.Ext(name) == ".yaml" {
			files = append(files, content.File{Path: path.Join(into, name), Mode: 0o644, Source: filepath.Join(folder, filepath.FromSlash(name))})
		}
		return err
	})
	return files, err
}

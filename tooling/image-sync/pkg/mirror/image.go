package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// maxManifests is the maximum number of manifests of one image. An index of OpenShift has one for each architecture.
const maxManifests = 100

// image is an image that is copied.
type image struct {
	name   string
	source name.Digest
	target name.Repository
	// manifests are the manifests of the image, children before their parents. blobs are their configurations and layers.
	manifests []*remote.Descriptor
	blobs     []v1.Descriptor
	// present means that the target had the image, put that it has it now.
	present, put bool
	err          error
}

// outcome returns the image's line of the report.
func (i *image) outcome(dryRun bool) Image {
	outcome := Image{Name: i.name, Source: i.source.Name(), Target: in(i.target, hashOf(i.source)).Name()}
	switch {
	case i.err != nil:
		outcome.State, outcome.Cause, outcome.Err = Failed, i.err.Error(), i.err
	case i.present:
		outcome.State = Present
	case i.put:
		outcome.State = Copied
	case dryRun:
		outcome.State = Missing
	default:
		outcome.State, outcome.Cause = Withheld, "other images of the release failed"
	}
	return outcome
}

func hashOf(d name.Digest) v1.Hash {
	h, _ := v1.NewHash(d.DigestStr()) // the form was checked when the name was parsed
	return h
}

// fetch reads the manifests of an image and verifies their digests.
func (r *run) fetch(ctx context.Context, i *image) error {
	if i.manifests != nil {
		return nil
	}
	if err := r.fetchManifest(ctx, i, i.source); err != nil {
		i.manifests, i.blobs = nil, nil
		return err
	}
	return nil
}

func (r *run) fetchManifest(ctx context.Context, i *image, reference name.Digest) error {
	if len(i.manifests) >= maxManifests {
		return fmt.Errorf("the image has more than %d manifests", maxManifests)
	}
	d, err := r.source.Get(ctx, reference) // verifies the digest
	if err != nil {
		return err
	}
	switch {
	case d.MediaType.IsIndex():
		index, err := v1.ParseIndexManifest(bytes.NewReader(d.Manifest))
		if err != nil {
			return fmt.Errorf("manifest %s: %w", reference.DigestStr(), err)
		}
		for _, child := range index.Manifests {
			if err := r.fetchManifest(ctx, i, in(reference.Context(), child.Digest)); err != nil {
				return err
			}
		}
	case d.MediaType.IsImage():
		manifest, err := v1.ParseManifest(bytes.NewReader(d.Manifest))
		if err != nil {
			return fmt.Errorf("manifest %s: %w", reference.DigestStr(), err)
		}
		for _, blob := range append(manifest.Layers, manifest.Config) {
			if len(blob.URLs) > 0 {
				return fmt.Errorf("layer %s of %s is not in the registry; such layers are not supported", blob.Digest, reference.DigestStr())
			}
			i.blobs = append(i.blobs, blob)
		}
	default:
		return fmt.Errorf("manifest %s: the media type %q is not supported", reference.DigestStr(), d.MediaType)
	}
	i.manifests = append(i.manifests, d)
	return nil
}

// copyBlobs copies the blobs of an image, unless the target has the image.
func (r *run) copyBlobs(ctx context.Context, i *image) {
	if i.err != nil {
		return
	}
	var exists bool
	if exists, i.err = r.exists(ctx, i); i.err != nil || exists {
		i.present = exists && i.err == nil
		return
	}
	if i.err = r.fetch(ctx, i); i.err != nil || r.DryRun {
		return
	}
	for _, d := range i.blobs {
		if i.err = r.copyBlob(ctx, i, d); i.err != nil {
			i.err = fmt.Errorf("blob %s: %w", d.Digest, i.err)
			return
		}
	}
}

// exists reports whether the target shows an image.
func (r *run) exists(ctx context.Context, i *image) (bool, error) {
	_, err := r.target.Head(ctx, in(i.target, hashOf(i.source)))
	if isNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func isNotFound(err error) bool {
	failure := new(transport.Error)
	return errors.As(err, &failure) && failure.StatusCode == http.StatusNotFound
}

// copyBlob copies a blob unless the target has it. The digest is verified while the content flows.
func (r *run) copyBlob(ctx context.Context, i *image, d v1.Descriptor) error {
	at, err := r.target.Layer(ctx, in(i.target, d.Digest))
	if err != nil {
		return err
	}
	switch exists, err := partial.Exists(at); {
	case err != nil:
		return err
	case exists:
		r.report.AddBlob(false, d.Size)
		return nil
	}
	from, err := r.source.Layer(ctx, in(i.source.Context(), d.Digest))
	if err != nil {
		return err
	}
	if err := r.pusher.Upload(ctx, i.target, described{from, d}); err != nil {
		return err
	}
	r.report.AddBlob(true, d.Size)
	return nil
}

// described is a blob with the size of its descriptor, so that the source need not be asked.
type described struct {
	v1.Layer
	d v1.Descriptor
}

func (d described) Size() (int64, error)                { return d.d.Size, nil }
func (d described) MediaType() (types.MediaType, error) { return d.d.MediaType, nil }

// putManifests makes an image visible.
func (r *run) putManifests(ctx context.Context, i *image) {
	if i.err != nil || i.present {
		return
	}
	for _, d := range i.manifests {
		if i.err = r.pusher.Push(ctx, in(i.target, d.Digest), raw{d}); i.err != nil {
			i.err = fmt.Errorf("manifest %s: %w", d.Digest, i.err)
			return
		}
	}
	i.put = true
}

// raw is a manifest whose blobs and children are in the target.
type raw struct{ d *remote.Descriptor }

func (r raw) RawManifest() ([]byte, error)        { return r.d.Manifest, nil }
func (r raw) MediaType() (types.MediaType, error) { return r.d.MediaType, nil }

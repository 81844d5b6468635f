package registryclient

import (
	"context"
	"fmt"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// Pusher pushes images of one layout to one registry.
type Pusher struct {
	from     layout.Path
	registry string
	client   Options
	pusher   *remote.Pusher
	// attached are the manifests that refer to an image, by its digest.
	attached map[v1.Hash][]v1.Hash
}

// NewPusher opens a layout.
func NewPusher(dir, registry string, client Options) (*Pusher, error) {
	if _, err := name.NewRegistry(registry, client.Name()...); err != nil {
		return nil, fmt.Errorf("-registry: %w", err)
	}
	options, err := client.Remote()
	if err != nil {
		return nil, err
	}
	p := &Pusher{registry: registry, client: client, attached: map[v1.Hash][]v1.Hash{}}
	if p.pusher, err = remote.NewPusher(options...); err != nil {
		return nil, err
	}
	if p.from, err = layout.FromPath(dir); err != nil {
		return nil, fmt.Errorf("read the image layout: %w", err)
	}
	index, err := p.from.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifests, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifests.Manifests {
		image, err := p.from.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		manifest, err := image.Manifest()
		if err != nil {
			return nil, err
		}
		if manifest.Subject != nil {
			p.attached[manifest.Subject.Digest] = append(p.attached[manifest.Subject.Digest], d.Digest)
		}
	}
	return p, nil
}

// Push pushes an image and the documents that refer to it. What the registry has is not sent again.
func (p *Pusher) Push(ctx context.Context, image imagelist.Image) error {
	repository, err := name.NewRepository(p.registry+"/"+image.Repository, p.client.Name()...)
	if err != nil {
		return err
	}
	digest, err := v1.NewHash(image.Digest)
	if err != nil {
		return err
	}
	for _, d := range append([]v1.Hash{digest}, p.attached[digest]...) {
		manifest, err := p.from.Image(d)
		if err != nil {
			return fmt.Errorf("the image layout has no %s: %w", d, err)
		}
		if err := p.pusher.Push(ctx, repository.Digest(d.String()), manifest); err != nil {
			return err
		}
	}
	return nil
}

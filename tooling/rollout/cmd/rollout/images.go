package main

import (
	"fmt"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/image-updater/pkg/update"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// useImages replaces the digests of the region's environment with those of --images, in memory. Images that nobody published must not reach
// customers, so production is refused.
func (e *environment) useImages(configuration *deployment.Configuration, region layer.Target) error {
	if e.images == "" || region.Level() != layer.Region {
		return nil
	}
	rendered, err := configuration.Render(region)
	if err != nil {
		return err
	}
	if production := rendered.Get("production"); production != nil && production.Value == true {
		return fmt.Errorf("--images: %s is a region of production: write the digests into its configuration with image-updater", region)
	}
	list, err := imagelist.Load(e.images)
	if err != nil {
		return fmt.Errorf("--images: %w", err)
	}
	digests := map[string]string{}
	for _, image := range list.Images {
		digests[image.Repository] = image.Digest
	}
	if _, err := update.Compute(configuration, region[:layer.Environment], digests); err != nil {
		return fmt.Errorf("--images: %w", err)
	}
	return nil
}

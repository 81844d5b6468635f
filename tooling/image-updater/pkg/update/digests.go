package update

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
)

// Digests are digests of images by repository.
type Digests map[string]string

// FromList returns the digests of images with the given names in a list of `make images`; no names mean all. An image whose sources had
// changes that were not committed is refused, because nobody can build it again.
func FromList(list *imagelist.List, names []string) (Digests, error) {
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(list.Images))
	}
	digests := Digests{}
	var problems []error
	for _, name := range names {
		image, found := list.Images[name]
		switch {
		case !found:
			problems = append(problems, fmt.Errorf("%s: the list has no such image; it has %s", name, strings.Join(slices.Sorted(maps.Keys(list.Images)), ", ")))
		case image.Revision == "":
			problems = append(problems, fmt.Errorf("%s: the image was built from changes that were not committed; commit them and build it again", name))
		case digests[image.Repository] != "" && digests[image.Repository] != image.Digest:
			problems = append(problems, fmt.Errorf("%s: the list has another digest for the repository %s", name, image.Repository))
		default:
			digests[image.Repository] = image.Digest
		}
	}
	return digests, errors.Join(problems...)
}

// FromReferences returns the digests of images named REPOSITORY@DIGEST. Tags are refused, because they can name another image later.
func FromReferences(references []string) (Digests, error) {
	digests := Digests{}
	var problems []error
	for _, reference := range references {
		repository, digest, _ := strings.Cut(reference, "@")
		parsed, err := name.NewDigest("registry.invalid/"+reference, name.StrictValidation)
		switch {
		case err != nil || parsed.Context().RepositoryStr() != repository || parsed.DigestStr() != digest || !strings.HasPrefix(digest, "sha256:"):
			problems = append(problems, fmt.Errorf("%q is not REPOSITORY@sha256:…; tags are refused, and a repository has no registry", reference))
		case digests[repository] != "":
			problems = append(problems, fmt.Errorf("%s appears twice", repository))
		default:
			digests[repository] = digest
		}
	}
	return digests, errors.Join(problems...)
}

// FromEnvironment returns the digests of another environment. Those of images that it does not deploy are left out, because their
// repositories are not known.
func FromEnvironment(configuration *deployment.Configuration, environment layer.Target) (Digests, error) {
	images, err := configuration.Images(environment)
	if err != nil {
		return nil, err
	}
	digests := Digests{}
	for _, image := range images {
		if image.Digest != "" && image.Repository != "" {
			digests[image.Repository] = image.Digest
		}
	}
	if len(digests) == 0 {
		return nil, fmt.Errorf("%s deploys no image that has a digest", environment)
	}
	return digests, nil
}

// Known returns the digests of images that an environment deploys, and the other repositories.
func (d Digests) Known(configuration *deployment.Configuration, environment layer.Target) (Digests, []string, error) {
	images, err := configuration.Images(environment)
	if err != nil {
		return nil, nil, err
	}
	known := Digests{}
	for _, image := range images {
		if digest := d[image.Repository]; digest != "" {
			known[image.Repository] = digest
		}
	}
	unknown := slices.DeleteFunc(slices.Sorted(maps.Keys(d)), func(repository string) bool { return known[repository] != "" })
	return known, unknown, nil
}

// Confirm returns an error that names each image that a registry does not have.
func (d Digests) Confirm(ctx context.Context, registry string, client registryclient.Options) error {
	options, err := client.Remote()
	if err != nil {
		return err
	}
	puller, err := remote.NewPuller(options...)
	if err != nil {
		return err
	}
	var problems []error
	for _, repository := range slices.Sorted(maps.Keys(d)) {
		image, err := name.NewDigest(registry+"/"+repository+"@"+d[repository], client.Name()...)
		if err != nil {
			return fmt.Errorf("-registry: %w", err)
		}
		if _, err := puller.Get(ctx, image); err != nil { // verifies the digest
			problems = append(problems, fmt.Errorf("%s: %w", image, err))
		}
	}
	return errors.Join(problems...)
}

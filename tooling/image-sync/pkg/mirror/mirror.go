// Package mirror copies images between registries by digest, and reports as a table or as JSON what was mirrored.
//
// A release image contains the file release-manifests/image-references, an ImageStream that names the image of each component by digest.
//
// An image is copied in two steps: first its blobs, which a registry does not show, then its manifests, children before their parents. The
// images of a release get their manifests only when all of their blobs are there, and the release image is the last. So the target shows
// a release only if it is complete, and an image only if all of its content has its digest. The signature of a release is verified before
// anything of it is copied.
//
// A run that was interrupted is repeated: it asks the target for each manifest and each blob, and copies what is missing. Content flows
// through memory in small parts.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/sync/errgroup"
)

// Verifier verifies that the publisher of OpenShift has signed a digest.
type Verifier interface {
	Verify(ctx context.Context, digest string) error
}

// Options configure a run.
type Options struct {
	Plan *Plan
	// Target is the registry to which images are copied.
	Target name.Registry
	// SourceName are the options for the names of images in release payloads.
	SourceName []name.Option
	// Source and Destination are the options for requests to the sources and to the target.
	Source, Destination []remote.Option
	// Verifier verifies releases. It is required if the plan has releases.
	Verifier Verifier
	// Parallel is the maximum number of images that are copied at the same time.
	Parallel int
	// DryRun reports what is missing and copies nothing. It verifies signatures.
	DryRun bool
	// Progress is called after each image whose content was copied, found in the target, or could not be copied; nil means no calls. Calls
	// do not overlap.
	Progress func(Progress)
}

// Progress is how far a release, or the single images of a plan, have come.
type Progress struct {
	// Image is the name of the image at its source.
	Image string
	// Done is the number of images so far, and Total that of all images of the release, or of all single images.
	Done, Total int
	// Err is the reason why the image could not be copied.
	Err error
}

// run is one run.
type run struct {
	Options
	source, target *remote.Puller
	pusher         *remote.Pusher
	report         *Report
}

// Run mirrors the images of a plan. The report has every image. The error is one of the options; failures of images are in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	switch {
	case o.Parallel < 1:
		return nil, errors.New("parallel: must be positive")
	case len(o.Plan.Releases) > 0 && o.Verifier == nil:
		return nil, errors.New("releases: there is no verifier of signatures")
	}
	r := &run{Options: o, report: &Report{Images: []Image{}}}
	var err error
	if r.source, err = remote.NewPuller(o.Source...); err != nil {
		return nil, err
	}
	if r.target, err = remote.NewPuller(o.Destination...); err != nil {
		return nil, err
	}
	if r.pusher, err = remote.NewPusher(o.Destination...); err != nil {
		return nil, err
	}
	for _, release := range o.Plan.Releases {
		r.release(ctx, release)
	}
	r.images(ctx)
	return r.report, nil
}

// each calls f for images, some at the same time.
func (r *run) each(images []*image, f func(*image)) {
	var group errgroup.Group
	group.SetLimit(r.Parallel)
	for _, i := range images {
		group.Go(func() error {
			f(i)
			return nil
		})
	}
	_ = group.Wait() // the errors are in the images
}

// reporting returns f with a report of the progress after each call.
func (r *run) reporting(total int, f func(*image)) func(*image) {
	if r.Progress == nil {
		return f
	}
	var mu sync.Mutex
	done := 0
	return func(i *image) {
		f(i)
		mu.Lock()
		defer mu.Unlock()
		done++
		r.Progress(Progress{Image: i.source.Name(), Done: done, Total: total, Err: i.err})
	}
}

// release mirrors a release with all images of its payload.
func (r *run) release(ctx context.Context, release PlannedRelease) {
	all, err := r.payload(ctx, release)
	if err != nil {
		r.report.Add(Image{Release: release.Image, Name: "release", Source: release.Image, State: Failed, Cause: err.Error(), Err: err})
		return
	}
	r.each(all, r.reporting(len(all), func(i *image) { r.copyBlobs(ctx, i) }))
	top, components := all[0], all[1:]
	failed := countFailed(all)
	if failed == 0 && !r.DryRun {
		r.each(components, func(i *image) { r.putManifests(ctx, i) })
		if failed = countFailed(components); failed == 0 {
			r.putManifests(ctx, top)
		}
	}
	if failed = countFailed(components); failed > 0 && top.err == nil {
		first := components[slices.IndexFunc(components, func(i *image) bool { return i.err != nil })]
		top.err = fmt.Errorf("%d of its %d images failed, for example %s: %w", failed, len(components), first.name, first.err)
	}
	for _, i := range all {
		outcome := i.outcome(r.DryRun)
		outcome.Release = release.Image
		r.report.Add(outcome)
	}
}

func countFailed(images []*image) int {
	n := 0
	for _, i := range images {
		if i.err != nil {
			n++
		}
	}
	return n
}

// payload verifies a release and returns the release image, followed by the images that it consists of.
func (r *run) payload(ctx context.Context, release PlannedRelease) ([]*image, error) {
	if err := r.Verifier.Verify(ctx, release.Reference.DigestStr()); err != nil {
		return nil, err
	}
	top, err := r.newImage("release", release.Reference, "")
	if err != nil {
		return nil, err
	}
	if err := r.fetch(ctx, top); err != nil {
		return nil, err
	}
	components := map[string]*image{}
	for _, manifest := range top.manifests {
		if !manifest.MediaType.IsImage() {
			continue
		}
		content, err := manifest.Image()
		if err != nil {
			return nil, err
		}
		found, err := Components(content, r.SourceName...)
		if err != nil {
			return nil, err
		}
		for _, component := range found {
			if components[component.Image.Name()] != nil {
				continue
			}
			if components[component.Image.Name()], err = r.newImage(component.Name, component.Image, ""); err != nil {
				return nil, fmt.Errorf("component %s: %w", component.Name, err)
			}
		}
	}
	all := []*image{top}
	for _, component := range components {
		all = append(all, component)
	}
	slices.SortFunc(all[1:], func(a, b *image) int {
		return strings.Compare(a.name+" "+a.source.Name(), b.name+" "+b.source.Name())
	})
	return all, nil
}

// images mirrors the single images of the plan and the documents that refer to them.
func (r *run) images(ctx context.Context) {
	var all []*image
	for _, single := range r.Plan.Images {
		i, err := r.newImage("image", single.Reference, single.Target)
		if err != nil {
			i = &image{name: "image", source: single.Reference, err: err}
		}
		all = append(all, i)
	}
	attached := make([][]*image, len(all))
	indexes := map[*image]int{}
	for n, i := range all {
		indexes[i] = n
	}
	r.each(all, r.reporting(len(all), func(i *image) {
		r.copyAll(ctx, i)
		if i.err == nil {
			attached[indexes[i]] = r.copyAttached(ctx, i)
		}
	}))
	for n, i := range all {
		for _, i := range append([]*image{i}, attached[n]...) {
			r.report.Add(i.outcome(r.DryRun))
		}
	}
}

// copyAll copies an image that belongs to no release.
func (r *run) copyAll(ctx context.Context, i *image) {
	if r.copyBlobs(ctx, i); i.err == nil && !r.DryRun {
		r.putManifests(ctx, i)
	}
}

// copyAttached copies the documents that refer to an image and returns them.
func (r *run) copyAttached(ctx context.Context, subject *image) []*image {
	fail := func(err error) []*image {
		return []*image{{name: "attached", source: subject.source, target: subject.target, err: fmt.Errorf("list the attached documents: %w", err)}}
	}
	index, err := remote.Referrers(subject.source, append(slices.Clone(r.Source), remote.Reuse(r.source), remote.WithContext(ctx))...)
	if err != nil {
		return fail(err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return fail(err)
	}
	var attached []*image
	for _, d := range list.Manifests {
		i := &image{name: "attached", source: subject.source.Context().Digest(d.Digest.String()), target: subject.target}
		r.copyAll(ctx, i)
		attached = append(attached, i)
	}
	return attached
}

// newImage returns an image to copy. An empty repository means the one of the plan's mirrors.
func (r *run) newImage(what string, source name.Digest, repository string) (*image, error) {
	if repository == "" {
		var err error
		if repository, err = r.Plan.Target(source.Context().Name()); err != nil {
			return nil, err
		}
	}
	return &image{name: what, source: source, target: r.Target.Repo(strings.Split(repository, "/")...)}, nil
}

// in returns the reference of a digest in a repository.
func in(repository name.Repository, digest v1.Hash) name.Digest {
	return repository.Digest(digest.String())
}

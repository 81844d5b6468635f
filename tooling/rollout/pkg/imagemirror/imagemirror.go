// Package imagemirror holds the action ImageMirror, which copies images between registries by digest with the packages of image-sync.
//
// A step names releases of OpenShift, single images, and components. A component is a key of the configuration with an image; its
// repository and its digest are those of the configuration. The action copies what the target lacks, so a step that was interrupted goes
// on, and a step whose target has everything copies nothing. If the source is the target, the step checks that it has the images.
package imagemirror

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/image-sync/pkg/mirror"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
)

// parallel is the number of images that a step copies at the same time.
const parallel = 4

// ImageMirror copies images.
type ImageMirror struct {
	Configuration *deployment.Configuration
	// Authorities is a file with the authorities of the registries' certificates; empty means the system's.
	Authorities string
	// Credentials is a file in the format of Docker's config.json, for steps that name none; empty means no credentials.
	Credentials string
	// Dial connects to registries; nil means over the network of the process.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Requests are more options for requests to registries.
	Requests []remote.Option
}

type parameters struct {
	// Source is the host name of the registry with the components.
	Source string `json:"source"`
	// Target is the host name of the registry to which images are copied.
	Target string `json:"target"`
	// Components are keys of the configuration. Each has the key image. Regions without an optional one need no image of it.
	Components []string      `json:"components"`
	Mirrors    []planMirror  `json:"mirrors"`
	Releases   []planRelease `json:"releases"`
	// ReleaseList is a JSON array with more releases.
	ReleaseList string           `json:"releaseList"`
	Images      []planImage      `json:"images"`
	Signatures  signatureOptions `json:"signatures"`
	// SourceCredentials and TargetCredentials are files in the format of Docker's config.json. They replace those of the action.
	SourceCredentials string `json:"sourceCredentials"`
	TargetCredentials string `json:"targetCredentials"`
}

// signatureOptions are where the signatures of releases are and who may sign. Empty fields mean those of OpenShift's publisher.
type signatureOptions struct {
	Store string `json:"store"`
	// TrustRoot is a file of the checkout with public keys.
	TrustRoot string `json:"trustRoot"`
}

// Run copies what the target lacks. The log gets the progress and the outcome of each image.
func (a ImageMirror) Run(ctx context.Context, r action.Request) (map[string]string, error) {
	o, err := a.options(r)
	if err != nil {
		return nil, err
	}
	if o.Plan == nil {
		fmt.Fprintln(r.Log, nothing)
		return map[string]string{}, nil
	}
	o.Progress = func(p mirror.Progress) {
		outcome := "is complete"
		if p.Err != nil {
			outcome = "failed: " + oneLine(p.Err.Error())
		}
		fmt.Fprintf(r.Log, "%d of %d: the content of %s %s\n", p.Done, p.Total, p.Image, outcome)
	}
	result, err := mirror.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Step, err)
	}
	if err := result.Table(r.Log); err != nil {
		return nil, err
	}
	return map[string]string{}, failure(ctx, result)
}

// Content returns the hash of the components' images and that of the keys that verify releases. Everything else is in the definition and
// the inputs of the step.
func (a ImageMirror) Content(r action.Request) (map[string]string, error) {
	with, err := parametersOf(r)
	if err != nil {
		return nil, err
	}
	content := map[string]string{}
	images, err := a.components(r, with.Components)
	if err != nil {
		return nil, err
	}
	if len(images) > 0 {
		sum := sha256.New()
		for _, image := range images {
			fmt.Fprintf(sum, "%q %q %q\n", image.registry, image.repository, image.digest)
		}
		content["the images of the components"] = hex.EncodeToString(sum.Sum(nil))
	}
	if len(with.Releases) > 0 {
		root, err := trustRoot(r, with)
		if err != nil {
			return nil, err
		}
		content["the keys that verify releases"] = root.String()
	}
	return content, nil
}

// Preview asks the registries what the target lacks, and writes a line for each image that Run would copy.
func (a ImageMirror) Preview(ctx context.Context, r action.Request, out io.Writer) error {
	o, err := a.options(r)
	if err != nil {
		return err
	}
	if o.Plan == nil {
		_, err := fmt.Fprintln(out, nothing)
		return err
	}
	o.DryRun = true
	result, err := mirror.Run(ctx, o)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Step, err)
	}
	for _, image := range result.Images {
		if image.State == mirror.Missing {
			fmt.Fprintf(out, "copy %s to %s\n", image.Source, image.Target)
		}
	}
	if present := result.Count(mirror.Present); present > 0 {
		fmt.Fprintf(out, "the target has %d other images of the step\n", present)
	}
	return failure(ctx, result)
}

// nothing describes a step whose configuration lists no image.
const nothing = "the configuration lists no release, so there is nothing to copy"

// parametersOf returns the parameters of a request, with the releases of the list among the others.
func parametersOf(r action.Request) (parameters, error) {
	var with parameters
	if err := action.Decode(r, &with); err != nil || with.ReleaseList == "" {
		return with, err
	}
	var listed []string
	if err := json.Unmarshal([]byte(with.ReleaseList), &listed); err != nil {
		return with, fmt.Errorf("%s: releaseList: is not a JSON array of strings: %w", r.Step, err)
	}
	for _, image := range listed {
		with.Releases = append(with.Releases, planRelease{image})
	}
	return with, nil
}

// options returns the options of image-sync for a request, without a plan if there is nothing to copy.
func (a ImageMirror) options(r action.Request) (mirror.Options, error) {
	o := mirror.Options{Parallel: parallel}
	with, err := parametersOf(r)
	if err != nil || len(with.Components)+len(with.Releases)+len(with.Images) == 0 {
		return o, err
	}
	wrong := func(field string, err error) error { return fmt.Errorf("%s: %s: %w", r.Step, field, err) }
	source := registryclient.Options{Authorities: a.Authorities, Credentials: cmp.Or(with.SourceCredentials, a.Credentials), Dial: a.Dial, Prefix: "source-"}
	target := registryclient.Options{Authorities: a.Authorities, Credentials: cmp.Or(with.TargetCredentials, a.Credentials), Dial: a.Dial, Prefix: "target-"}
	o.SourceName = source.Name()
	if o.Target, err = name.NewRegistry(with.Target, target.Name()...); err != nil {
		return o, wrong("target", err)
	}
	if o.Plan, err = a.plan(r, with, o.SourceName); err != nil {
		return o, err
	}
	if o.Source, err = source.Remote(); err != nil {
		return o, wrong("the connection to the source", err)
	}
	if o.Destination, err = target.Remote(); err != nil {
		return o, wrong("the connection to the target", err)
	}
	o.Source, o.Destination = append(o.Source, a.Requests...), append(o.Destination, a.Requests...)
	if len(with.Releases) == 0 {
		return o, nil
	}
	root, err := trustRoot(r, with)
	if err != nil {
		return o, err
	}
	store := signature.OpenShiftStore
	if with.Signatures.Store != "" {
		store = with.Signatures.Store
	}
	messages, err := signature.OpenStore(store, &http.Client{Timeout: 30 * time.Second})
	if err != nil {
		return o, wrong("signatures.store", err)
	}
	o.Verifier = signature.NewVerifier(root, messages, nil)
	return o, nil
}

// trustRoot returns the keys that verify releases.
func trustRoot(r action.Request, with parameters) (*signature.TrustRoot, error) {
	file := with.Signatures.TrustRoot
	if file == "" {
		return signature.OpenShift()
	}
	if !filepath.IsLocal(filepath.FromSlash(file)) {
		return nil, fmt.Errorf("%s: signatures.trustRoot: %s is not in the checkout", r.Step, file)
	}
	root, err := signature.LoadTrustRoot(filepath.Join(r.Root, filepath.FromSlash(file)))
	if err != nil {
		return nil, fmt.Errorf("%s: signatures.trustRoot: %w", r.Step, err)
	}
	return root, nil
}

// maxCauses is the largest number of images that an error names. The log has all of them.
const maxCauses = 10

// failure returns an error if an image is not in the target. Its class allows another attempt only if all causes allow one.
func failure(ctx context.Context, result *mirror.Report) error {
	failed := slices.DeleteFunc(slices.Clone(result.Images), func(i mirror.Image) bool { return i.State != mirror.Failed })
	if len(failed) == 0 {
		return nil
	}
	lines := []string{fmt.Sprintf("%d of %d images were not mirrored:", len(failed)+result.Count(mirror.Withheld), len(result.Images))}
	class := action.Class("")
	for n, image := range failed {
		if n < maxCauses {
			lines = append(lines, fmt.Sprintf("  %s: %s", image.Source, oneLine(image.Cause)))
		}
		if found := classOf(image.Err); class == "" || found == action.ClassFailed {
			class = found
		}
	}
	if more := len(failed) - maxCauses; more > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more in the log of the step", more))
	}
	err := errors.New(strings.Join(lines, "\n"))
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return &action.Error{Class: class, Err: err}
}

// oneLine returns a text without line breaks.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

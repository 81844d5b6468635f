package kubernetes

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// startRegistry serves the registry of the cluster on a port of the control plane. It keeps layers in a folder and manifests in memory,
// so images are pushed again after each start.
func (c *Cluster) startRegistry(ctx, background context.Context, dir string) error {
	listener, err := c.Listen(ctx, registryPort)
	if err != nil {
		return err
	}
	c.serve(background, listener, registry.New(
		registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)),
		registry.Logger(log.New(io.Discard, "", 0)),
	))
	for reference, program := range map[string]string{sandboxImage: c.options.PauseProgram, corednsImage: filepath.Join(c.options.ThirdParty, corednsProgram)} {
		image, err := ProgramImage(program)
		if err != nil {
			return err
		}
		if err := c.Push(ctx, reference, image); err != nil {
			return err
		}
	}
	return nil
}

// Push makes an image available to the nodes under its reference, for example registry.example/name:tag. With a digest, it must be that
// of the image. The registry in the reference does not matter to the nodes: all images are pulled from the registry of the cluster.
func (c *Cluster) Push(ctx context.Context, reference string, image v1.Image) error {
	parsed, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("pushing an image: %w", err)
	}
	local, err := name.NewRegistry(registryAddress(), name.Insecure)
	if err != nil {
		return err
	}
	repository := local.Repo(parsed.Context().RepositoryStr())
	var target name.Reference = repository.Tag(parsed.Identifier())
	if digest, ok := parsed.(name.Digest); ok {
		target = repository.Digest(digest.DigestStr())
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return c.Dial(ctx, address) }}
	defer transport.CloseIdleConnections()
	if err := remote.Write(target, image, remote.WithContext(ctx), remote.WithTransport(transport)); err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	return nil
}

// ProgramImage returns an image that contains one statically linked program, which it runs as a user without rights.
func ProgramImage(program string) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "program", Mode: 0o755, Size: int64(len(content))}); err != nil {
		return nil, err
	}
	if _, err := archive.Write(content); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.AppendLayers(image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", runtime.GOARCH
	file.Config.Entrypoint = []string{"/program"}
	file.Config.User = "65532:65532"
	return mutate.ConfigFile(image, file)
}

package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/tooling/registry/pkg/registry"
)

// RegistryHost is the name under which DialRegistry reaches the registry. The nodes pull the images of all registries from it.
const RegistryHost = "registry.cluster"

// startRegistry serves the registry of the cluster from a folder. Nodes and pods read it on a port of the control plane. Only this
// process writes to it, through connections in memory.
func (c *Cluster) startRegistry(ctx, background context.Context, dir string) error {
	images, err := registry.Open(dir)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	listener, err := c.Listen(ctx, registryPort)
	if err != nil {
		return err
	}
	c.serve(background, listener, registry.New(images, registry.Policy{}, log, prometheus.NewRegistry()))
	c.writes = &memoryListener{connections: make(chan net.Conn), closed: make(chan struct{})}
	c.serve(background, c.writes, registry.New(images, registry.Policy{Open: true}, log, prometheus.NewRegistry()))
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

// DialRegistry connects to the registry of the cluster for pushing images, with HTTP and without credentials. network and address do not
// matter. What is pushed survives the end of the cluster.
func (c *Cluster) DialRegistry(ctx context.Context, _, _ string) (net.Conn, error) {
	return c.writes.dial(ctx)
}

// Push makes an image available to the nodes under its reference, for example registry.example/name:tag. With a digest, it must be that
// of the image. The registry in the reference does not matter to the nodes: all images are pulled from the registry of the cluster.
func (c *Cluster) Push(ctx context.Context, reference string, image v1.Image) error {
	parsed, err := name.ParseReference(reference, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("pushing an image: %w", err)
	}
	local, err := name.NewRegistry(RegistryHost, name.Insecure)
	if err != nil {
		return err
	}
	repository := local.Repo(parsed.Context().RepositoryStr())
	var target name.Reference = repository.Tag(parsed.Identifier())
	if digest, ok := parsed.(name.Digest); ok {
		target = repository.Digest(digest.DigestStr())
	}
	transport := &http.Transport{DialContext: c.DialRegistry}
	defer transport.CloseIdleConnections()
	if err := remote.Write(target, image, remote.WithContext(ctx), remote.WithTransport(transport)); err != nil {
		return fmt.Errorf("pushing %s: %w", reference, err)
	}
	return nil
}

// memoryListener accepts the connections that dial opens in the same process.
type memoryListener struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func (l *memoryListener) dial(ctx context.Context) (net.Conn, error) {
	client, accepted := net.Pipe()
	select {
	case l.connections <- accepted:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case connection := <-l.connections:
		return connection, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *memoryListener) Addr() net.Addr { return memoryAddress{} }

// memoryAddress is the address of a memoryListener.
type memoryAddress struct{}

func (memoryAddress) Network() string { return "memory" }
func (memoryAddress) String() string  { return RegistryHost }

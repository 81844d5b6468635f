// Package installation installs what a region deploys on clusters of real Kubernetes nodes: images by digest, Secrets that are renewed, and
// charts with the values of the configuration.
package installation

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/push"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
)

// ServiceImages returns the names of the images of a service cluster, which are those of its services.
func ServiceImages() []string {
	return []string{"admin", "backend", "cluster-service", "frontend", "gateway-access", "gateway-grants", "maestro-server", "monitor"}
}

// ManagementImages returns the names of the images of a management cluster.
func ManagementImages() []string {
	return []string{"maestro-agent", "monitor-inside", "gateway-tunnel", "hypershift-runtime", "kube-apiserver", "etcd"}
}

// PushImages pushes built images to the registry of a cluster, which has no port outside of the cluster's network. dir is the folder into
// which `make images` builds; without names, all images in it are pushed. The nodes pull them by digest under any registry's name. What
// the registry has is not sent again.
func PushImages(ctx context.Context, cluster *kubernetes.Cluster, dir string, names ...string) (*imagelist.List, error) {
	list, err := imagelist.Load(filepath.Join(dir, "images.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: run make images", err)
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(list.Images))
	}
	pusher, err := push.New(filepath.Join(dir, "layout"), kubernetes.RegistryHost, registryclient.Options{PlainHTTP: true, Dial: cluster.DialRegistry})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		image, ok := list.Images[name]
		if !ok {
			return nil, fmt.Errorf("%s has no image %q", dir, name)
		}
		if err := pusher.Push(ctx, image); err != nil {
			return nil, fmt.Errorf("pushing the image %s: %w", name, err)
		}
	}
	return list, nil
}

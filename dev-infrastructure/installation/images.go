// Package installation brings up a region on clusters of real Kubernetes nodes on this machine: a service cluster of two nodes and a
// management cluster of one. The pipelines of the repository deploy public/local/westus3 to them, with the images of `make images`. A
// region keeps no data: each start begins with empty clusters and stores. Everything terminates with the process that started it.
//
// An Installer, a Supplier and Secrets install what the region deploys on a cluster: images by digest, Secrets that are renewed, and charts
// with the values of the configuration.
//
// Outside runs on the machine what the region uses outside of its clusters: PostgreSQL, the Event Grid broker, Cosmos DB, Azure, Entra ID,
// OpenShift's update service and a ticket system. Pods reach each under the name that it has in Azure or at OpenShift, with certificates of
// the region's authority. In the other direction, it serves the region on loopback: Azure Resource Manager in front of the frontend, admin
// as its ingress does, and the API servers of hosted clusters by their names. All data is in one folder. Nothing outlives Close.
package installation

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
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
	pusher, err := registryclient.NewPusher(filepath.Join(dir, "layout"), kubernetes.RegistryHost, registryclient.Options{PlainHTTP: true, Dial: cluster.DialRegistry})
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

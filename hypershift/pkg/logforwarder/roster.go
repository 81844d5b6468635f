package logforwarder

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

// roster watches the namespaces of hosted control planes and the HostedClusters. It reads only their metadata.
type roster struct {
	forwarder            *Forwarder
	namespaces, clusters cache.SharedIndexInformer
	// synced reports whether the forwarder has all control planes of the first lists.
	synced cache.InformerSynced
}

// byControlPlane is the index of HostedClusters by the namespace of their control plane.
const byControlPlane = "controlPlane"

func newRoster(client metadata.Interface, f *Forwarder) (*roster, error) {
	const hosted = contract.HostedControlPlaneLabel + "=true"
	r := &roster{forwarder: f, namespaces: newInformer(client, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, hosted, nil),
		clusters: newInformer(client, hostedClusters, "", cache.Indexers{byControlPlane: func(object any) ([]string, error) {
			return []string{controlPlaneOf(object)}, nil
		}})}
	// The caches have an object before its handler runs, so that the later handler of the two sees both objects.
	namespaces, err := r.namespaces.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.set(object.(*metav1.PartialObjectMetadata).Name) },
		UpdateFunc: func(_, object any) { r.set(object.(*metav1.PartialObjectMetadata).Name) },
		DeleteFunc: r.remove,
	})
	if err != nil {
		return nil, err
	}
	clusters, err := r.clusters.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.set(controlPlaneOf(object)) },
		UpdateFunc: func(_, object any) { r.set(controlPlaneOf(object)) },
	})
	if err != nil {
		return nil, err
	}
	r.synced = func() bool { return namespaces.HasSynced() && clusters.HasSynced() }
	return r, nil
}

// controlPlaneOf returns the namespace of the control plane of a HostedCluster.
func controlPlaneOf(object any) string {
	cluster := object.(*metav1.PartialObjectMetadata)
	return contract.ControlPlaneNamespace(cluster.Namespace, cluster.Name)
}

// newInformer returns an informer of the metadata of objects. The informers of client-go's package metadatainformer
// do the same, but link the clients, informers and types of all groups of Kubernetes into the program.
func newInformer(client metadata.Interface, resource schema.GroupVersionResource, selector string, indexers cache.Indexers) cache.SharedIndexInformer {
	objects := client.Resource(resource)
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			return objects.Watch(ctx, options)
		},
	}, client), &metav1.PartialObjectMetadata{}, 0, indexers)
}

// set adds a control plane to the forwarder if its namespace exists and its HostedCluster has a resource ID. HyperShift's operator annotates the
// namespace with neither.
func (r *roster) set(name string) {
	namespace, exists, err := r.namespaces.GetStore().GetByKey(name)
	if err != nil || !exists {
		return
	}
	clusters, err := r.clusters.GetIndexer().ByIndex(byControlPlane, name)
	if err != nil || len(clusters) != 1 {
		return
	}
	cluster := clusters[0].(*metav1.PartialObjectMetadata)
	if id := cluster.Annotations[contract.AzureResourceIDAnnotation]; id != "" {
		r.forwarder.Set(ControlPlane{Name: name, UID: string(namespace.(*metav1.PartialObjectMetadata).UID), ResourceID: id, HostedCluster: cluster.Namespace + "/" + cluster.Name})
	}
}

func (r *roster) remove(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	if namespace, ok := object.(*metav1.PartialObjectMetadata); ok {
		r.forwarder.Remove(namespace.Name)
	}
}

// run watches until ctx ends. It prunes the state of control planes that were deleted before, once all are known.
func (r *roster) run(ctx context.Context) error {
	var informers sync.WaitGroup
	defer informers.Wait()
	for _, informer := range []cache.SharedIndexInformer{r.namespaces, r.clusters} {
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.synced) {
		return nil
	}
	if err := r.forwarder.Prune(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

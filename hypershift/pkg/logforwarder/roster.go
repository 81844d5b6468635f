package logforwarder

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

// roster watches the namespaces of hosted control planes. It reads only their metadata.
type roster struct {
	forwarder *Forwarder
	informer  cache.SharedIndexInformer
	// synced reports whether the forwarder has all control planes of the first list.
	synced cache.InformerSynced
}

func newRoster(client metadata.Interface, f *Forwarder) (*roster, error) {
	r := &roster{forwarder: f, informer: newNamespaceInformer(client)}
	registration, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    r.set,
		UpdateFunc: func(_, object any) { r.set(object) },
		DeleteFunc: r.remove,
	})
	if err != nil {
		return nil, err
	}
	r.synced = registration.HasSynced
	return r, nil
}

// newNamespaceInformer returns an informer of the namespaces of hosted control planes. The informers of client-go's package metadatainformer
// do the same, but link the clients, informers and types of all groups of Kubernetes into the program.
func newNamespaceInformer(client metadata.Interface) cache.SharedIndexInformer {
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	const hosted = contract.HostedControlPlaneLabel + "=true"
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = hosted
			return namespaces.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = hosted
			return namespaces.Watch(ctx, options)
		},
	}, client), &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
}

// set adds a control plane to the forwarder. A namespace without a resource ID is not of a cluster of Azure.
func (r *roster) set(object any) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || namespace.Annotations[contract.AzureResourceIDAnnotation] == "" {
		return
	}
	r.forwarder.Set(ControlPlane{Name: namespace.Name, UID: string(namespace.UID), ResourceID: namespace.Annotations[contract.AzureResourceIDAnnotation],
		HostedCluster: namespace.Annotations[contract.HostedClusterAnnotation]})
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
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.informer.RunWithContext(ctx)
	}()
	defer func() { <-ended }()
	if !cache.WaitForCacheSync(ctx.Done(), r.synced) {
		return nil
	}
	if err := r.forwarder.Prune(); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

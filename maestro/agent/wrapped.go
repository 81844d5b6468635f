package agent

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// wrappedClient is a client of the management cluster whose requests pass through wrap. The namespace is empty for all namespaces, and for objects
// without one.
type wrappedClient struct {
	dynamic.Interface
	wrap func(objects dynamic.ResourceInterface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface
}

// Resource implements dynamic.Interface.
func (c wrappedClient) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	all := c.Interface.Resource(gvr)
	return wrappedResource{c.wrap(all, gvr, ""), func(namespace string) dynamic.ResourceInterface {
		return c.wrap(all.Namespace(namespace), gvr, namespace)
	}}
}

// wrappedResource is a resource of a wrappedClient.
type wrappedResource struct {
	dynamic.ResourceInterface
	in func(namespace string) dynamic.ResourceInterface
}

// Namespace implements dynamic.NamespaceableResourceInterface.
func (r wrappedResource) Namespace(namespace string) dynamic.ResourceInterface {
	return r.in(namespace)
}

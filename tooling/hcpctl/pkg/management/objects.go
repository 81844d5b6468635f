package management

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// At most mostObjects are listed for each kind and namespace.
const (
	mostObjects = 2000
	page        = 500
)

// List holds the objects of one kind in one namespace.
type List struct {
	// Namespace is empty for cluster-scoped objects. Resource is, for example, `nodepools.hypershift.openshift.io`.
	Namespace, Resource string
	Items               []map[string]any
	// Err is the reason why objects are missing.
	Err error
}

// Objects lists all objects in the namespaces of a cluster: the namespace of its HostedCluster and those with that prefix. It also
// lists cluster-scoped objects that contain the cluster ID. It reads only the metadata of Secrets.
func Objects(ctx context.Context, kubeconfig, namespace, clusterID string, each func(List)) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent, config.QPS, config.Burst = "hcpctl", 50, 100
	config.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated: all kinds are asked for
	mgmtClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	secrets, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	l := &lister{objects: mgmtClient, metadata: secrets, each: each}
	namespaces, err := l.namespaces(ctx, namespace)
	if err != nil {
		return err
	}
	// The partial result is returned with the error.
	found, err := kinds.ServerPreferredResources()
	for _, list := range found {
		version, parseErr := schema.ParseGroupVersion(list.GroupVersion)
		if parseErr != nil {
			continue
		}
		for _, kind := range list.APIResources {
			resource := version.WithResource(kind.Name)
			switch {
			case !slices.Contains(kind.Verbs, "list") || resource.Group == "events.k8s.io": // the same events are in the core group
			case kind.Namespaced:
				for _, name := range namespaces {
					l.list(ctx, resource, name, nil)
				}
			case clusterScoped[resource.Group]:
				l.list(ctx, resource, "", func(object map[string]any) bool { return names(object, clusterID) })
			}
		}
	}
	return err
}

// clusterScoped lists the groups whose cluster-scoped objects may belong to a cluster.
var clusterScoped = map[string]bool{"certificates.k8s.io": true, "work.open-cluster-management.io": true}

// names reports whether an object has a text in its name, labels or spec.
func names(object map[string]any, text string) bool {
	if text == "" {
		return false
	}
	metadata, _ := object["metadata"].(map[string]any)
	return strings.Contains(fmt.Sprint(metadata["name"], metadata["labels"], metadata["annotations"], object["spec"]), text)
}

type lister struct {
	objects  dynamic.Interface
	metadata metadata.Interface
	each     func(List)
}

// namespaces reports and returns the namespaces of the cluster.
func (l *lister) namespaces(ctx context.Context, namespace string) ([]string, error) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	var found []string
	l.list(ctx, resource, "", func(object map[string]any) bool {
		name, _, _ := unstructured.NestedString(object, "metadata", "name")
		if name != namespace && !strings.HasPrefix(name, namespace+"-") {
			return false
		}
		found = append(found, name)
		return true
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("namespace %s does not exist", namespace)
	}
	return found, nil
}

// list reports the objects of one kind. choose filters them; nil selects all.
func (l *lister) list(ctx context.Context, resource schema.GroupVersionResource, namespace string, choose func(map[string]any) bool) {
	list := List{Namespace: namespace, Resource: resource.GroupResource().String()}
	options := metav1.ListOptions{Limit: page}
	for {
		items, next, err := l.page(ctx, resource, namespace, options)
		if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
			break
		}
		if err != nil {
			list.Err = err
			break
		}
		for _, item := range items {
			if choose == nil || choose(item) {
				list.Items = append(list.Items, item)
			}
		}
		if next == "" {
			break
		}
		if len(list.Items) >= mostObjects {
			list.Err = errors.New("the list is incomplete: it has more objects")
			break
		}
		options.Continue = next
	}
	l.each(list)
}

func (l *lister) page(ctx context.Context, resource schema.GroupVersionResource, namespace string, options metav1.ListOptions) (items []map[string]any, next string, err error) {
	if resource.Group == "" && resource.Resource == "secrets" {
		list, err := l.metadata.Resource(resource).Namespace(namespace).List(ctx, options)
		if err != nil {
			return nil, "", err
		}
		for i := range list.Items {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&list.Items[i])
			if err != nil {
				return nil, "", err
			}
			object["apiVersion"], object["kind"] = "v1", "Secret"
			items = append(items, object)
		}
		return items, list.Continue, nil
	}
	list, err := l.objects.Resource(resource).Namespace(namespace).List(ctx, options)
	if err != nil {
		return nil, "", err
	}
	for i := range list.Items {
		items = append(items, list.Items[i].Object)
	}
	return items, list.GetContinue(), nil
}

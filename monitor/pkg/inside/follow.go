package inside

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/probe"
)

// fieldManager is the name of the prober in the managed fields of HostedClusters.
const fieldManager = "monitor-inside"

// byControlPlane is the index of HostedClusters by the namespace of their control plane.
const byControlPlane = "control-plane"

var (
	hostedClusters = schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	configMaps     = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// Management is a management cluster. It implements Writer.
type Management struct {
	metadata                      metadata.Interface
	log                           *slog.Logger
	hosted, services, authorities cache.SharedIndexInformer

	mu sync.Mutex
	// synced means that all objects have been read once; before, a missing one means nothing.
	synced bool
	// known are the UIDs of the clusters that the listener has, by the namespace of the control plane.
	known map[string]string
}

// NewManagement returns the management cluster of a configuration. It sends no request.
func NewManagement(config *rest.Config, log *slog.Logger) (*Management, error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	m := &Management{log: log, known: map[string]string{}}
	if m.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	m.hosted = newInformer(m.metadata, m.metadata.Resource(hostedClusters), &metav1.PartialObjectMetadata{}, "", cache.Indexers{byControlPlane: controlPlaneOf})
	m.services = newInformer(objects, objects.Resource(services), &unstructured.Unstructured{}, managementcluster.APIServerService, cache.Indexers{})
	m.authorities = newInformer(objects, objects.Resource(configMaps), &unstructured.Unstructured{}, managementcluster.RootAuthorityConfigMap, cache.Indexers{})
	return m, nil
}

// resource lists and watches the objects of a kind in all namespaces.
type resource[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// newInformer returns an informer of a resource of a client. Of the objects of all namespaces only those with the name are read, and may be; an
// empty name reads all. The informers of client-go's packages dynamicinformer and metadatainformer do the same, but link the clients, informers
// and types of all groups of Kubernetes into the program.
func newInformer[L runtime.Object](client any, objects resource[L], example runtime.Object, name string, indexers cache.Indexers) cache.SharedIndexInformer {
	selector := ""
	if name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.FieldSelector = selector
			return objects.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.FieldSelector = selector
			return objects.Watch(ctx, options)
		},
	}, client), example, 0, indexers)
}

// controlPlaneOf is the IndexFunc of byControlPlane.
func controlPlaneOf(object any) ([]string, error) {
	hc, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, nil
	}
	return []string{managementcluster.ControlPlaneNamespace(hc.Namespace, hc.Name)}, nil
}

// Listener receives the clusters. *Prober implements it.
type Listener interface {
	// Set adds or replaces a cluster. Its target has no URL while the address or the authority is missing. Remove removes it.
	Set(cluster Cluster, target probe.Target)
	Remove(uid string)
}

// Follow keeps a listener up to date until ctx ends. It returns an error if the management cluster cannot be followed at all.
func (m *Management) Follow(ctx context.Context, listener Listener) error {
	var informers sync.WaitGroup
	defer informers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := []cache.SharedIndexInformer{m.hosted, m.services, m.authorities}
	var handlers []cache.InformerSynced
	for _, informer := range all {
		changed := func(object any) { m.changed(informer, object, listener) }
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) }, DeleteFunc: changed})
		if err == nil {
			err = informer.SetTransform(withoutManagedFields)
		}
		if err == nil {
			err = informer.SetWatchErrorHandlerWithContext(m.failed)
		}
		if err != nil {
			return fmt.Errorf("watching the management cluster: %w", err)
		}
		handlers = append(handlers, registration.HasSynced)
	}
	for _, informer := range all {
		informers.Go(func() { informer.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), handlers...) {
		return nil
	}
	m.mu.Lock()
	m.synced = true
	for _, controlPlane := range m.hosted.GetIndexer().ListIndexFuncValues(byControlPlane) {
		m.resolve(controlPlane, listener)
	}
	m.mu.Unlock()
	m.log.InfoContext(ctx, "following the management cluster")
	<-ctx.Done()
	return nil
}

// Synced reports whether all clusters have been read.
func (m *Management) Synced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.synced
}

// withoutManagedFields is the TransformFunc of all informers.
func withoutManagedFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return object, nil
}

// failed logs a broken watch. The informer repeats it.
func (m *Management) failed(ctx context.Context, _ *cache.Reflector, err error) {
	if ctx.Err() == nil {
		m.log.WarnContext(ctx, "watching the management cluster failed; retrying", logkey.Error, err)
	}
}

// changed handles an added, updated or deleted object.
func (m *Management) changed(informer cache.SharedIndexInformer, object any, listener Listener) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	o, ok := object.(metav1.Object)
	if !ok {
		return
	}
	controlPlane := o.GetNamespace()
	if informer == m.hosted {
		controlPlane = managementcluster.ControlPlaneNamespace(o.GetNamespace(), o.GetName())
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.synced {
		m.resolve(controlPlane, listener)
	}
}

// resolve notifies the listener of the HostedCluster of a control plane.
func (m *Management) resolve(controlPlane string, listener Listener) {
	hc := m.hostedCluster(controlPlane)
	if known := m.known[controlPlane]; known != "" && (hc == nil || string(hc.UID) != known) {
		delete(m.known, controlPlane)
		listener.Remove(known)
	}
	if hc == nil {
		return
	}
	cluster := Cluster{UID: string(hc.UID), Namespace: hc.Namespace, Name: hc.Name, Written: hostedreport.DecodeInside(hc.Annotations[hostedreport.InsideAnnotation])}
	m.known[controlPlane] = cluster.UID
	target := probe.Target{Cluster: cluster.UID}
	address, port := m.address(controlPlane)
	if authority := m.authority(controlPlane); address != "" && authority != "" {
		host := managementcluster.APIServerService + "." + controlPlane + ".svc"
		target.URL, target.Address, target.Authorities = "https://"+net.JoinHostPort(host, port), net.JoinHostPort(address, port), authority
	}
	listener.Set(cluster, target)
}

// hostedCluster returns the HostedCluster of a control plane; nil if there is none, or if it is being deleted.
func (m *Management) hostedCluster(controlPlane string) *metav1.PartialObjectMetadata {
	found, err := m.hosted.GetIndexer().ByIndex(byControlPlane, controlPlane)
	if err != nil {
		return nil
	}
	for _, object := range found {
		if hc, ok := object.(*metav1.PartialObjectMetadata); ok && hc.DeletionTimestamp.IsZero() {
			return hc
		}
	}
	return nil
}

// address returns the address of the Service of an API server and its port; empty without one.
func (m *Management) address(controlPlane string) (host, port string) {
	service := get(m.services, controlPlane, managementcluster.APIServerService)
	if service == nil {
		return "", ""
	}
	ports, _, _ := unstructured.NestedSlice(service.Object, "spec", "ports")
	if len(ports) == 0 {
		return "", ""
	}
	first, _ := ports[0].(map[string]any)
	number, _, _ := unstructured.NestedInt64(first, "port")
	field := "clusterIP"
	if kind, _, _ := unstructured.NestedString(service.Object, "spec", "type"); kind == "ExternalName" {
		field = "externalName"
	}
	if host, _, _ = unstructured.NestedString(service.Object, "spec", field); host == "None" || number == 0 {
		return "", ""
	}
	return host, strconv.FormatInt(number, 10)
}

// authority returns the certificate of the authority of a control plane; empty without one.
func (m *Management) authority(controlPlane string) string {
	object := get(m.authorities, controlPlane, managementcluster.RootAuthorityConfigMap)
	if object == nil {
		return ""
	}
	certificate, _, _ := unstructured.NestedString(object.Object, "data", managementcluster.RootAuthorityKey)
	return certificate
}

func get(informer cache.SharedIndexInformer, namespace, name string) *unstructured.Unstructured {
	object, found, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !found {
		return nil
	}
	u, _ := object.(*unstructured.Unstructured)
	return u
}

// Write implements Writer. It changes nothing but the annotation, and nothing of another incarnation of the HostedCluster.
func (m *Management) Write(ctx context.Context, cluster Cluster, report hostedreport.InsideReport) error {
	text, err := report.Encode()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cluster.UID, "annotations": map[string]string{hostedreport.InsideAnnotation: text}}})
	if err != nil {
		return err
	}
	client := m.metadata.Resource(hostedClusters).Namespace(cluster.Namespace)
	_, err = client.Patch(ctx, cluster.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsInvalid(err) { // also the answer to another UID
		current, getErr := client.Get(ctx, cluster.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(getErr) || getErr == nil && string(current.GetUID()) != cluster.UID {
			return ErrGone
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return ErrGone
	case err != nil:
		return fmt.Errorf("writing the annotation of HostedCluster %s/%s: %w", cluster.Namespace, cluster.Name, err)
	}
	return nil
}

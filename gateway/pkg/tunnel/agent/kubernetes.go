package agent

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
)

// The resources of HostedClusters and of Services.
var (
	hostedClusters = schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}
	services       = schema.GroupVersionResource{Version: "v1", Resource: "services"}
)

// validID matches IDs of clusters.
var validID = regexp.MustCompile(`^[0-9a-z]{1,63}$`)

// kubernetesResolver finds API servers at the Services that HyperShift creates in the namespaces of control planes.
type kubernetesResolver struct {
	hosted metadata.Interface
	// objects reads Services. The typed client of Kubernetes would link the types of all its groups into the program.
	objects dynamic.Interface
}

// NewResolver returns a Resolver for the clusters of a management cluster. It reads from the API server for each connection: engineers open few.
func NewResolver(config *rest.Config) (Resolver, error) {
	hosted, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating the client of the management cluster: %w", err)
	}
	return &kubernetesResolver{hosted: hosted, objects: objects}, nil
}

// Address implements Resolver.
func (k *kubernetesResolver) Address(ctx context.Context, clusterID string) (string, error) {
	if !validID.MatchString(clusterID) {
		return "", ErrUnknownCluster
	}
	found, err := k.hosted.Resource(hostedClusters).List(ctx, metav1.ListOptions{LabelSelector: managementcluster.LabelClusterID + "=" + clusterID})
	if err != nil {
		return "", fmt.Errorf("reading the HostedCluster: %w", err)
	}
	if len(found.Items) != 1 {
		return "", ErrUnknownCluster
	}
	controlPlane := managementcluster.ControlPlaneNamespace(found.Items[0].Namespace, found.Items[0].Name)
	object, err := k.objects.Resource(services).Namespace(controlPlane).Get(ctx, managementcluster.APIServerService, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the Service of the API server: %w", err)
	}
	var service corev1.Service
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &service); err != nil {
		return "", fmt.Errorf("reading the Service of the API server: %w", err)
	}
	host := service.Spec.ClusterIP
	if service.Spec.Type == corev1.ServiceTypeExternalName {
		host = service.Spec.ExternalName
	}
	if host == "" || host == corev1.ClusterIPNone || len(service.Spec.Ports) == 0 {
		return "", fmt.Errorf("the Service of the API server in %s has no address", controlPlane)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(service.Spec.Ports[0].Port))), nil
}

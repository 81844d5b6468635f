// Package management reads objects of clusters from management clusters: the administrator kubeconfig in a local region, and the
// objects for must-gather. It is the only package of hcpctl that bypasses ARM and admin. It only reads.
package management

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/api/managementcluster"
)

// resourceIDAnnotation is set on each HostedCluster of an ARM resource.
const resourceIDAnnotation = managementcluster.AnnotationClusterResourceID

// NotFound reports that no management cluster has the cluster, or that its kubeconfig does not exist yet.
type NotFound struct{ Message string }

func (n *NotFound) Error() string { return n.Message }

// Kubeconfig returns the kubeconfig of the cluster with an ARM resource ID. kubeconfigs maps the names of management clusters to
// kubeconfig files.
func Kubeconfig(ctx context.Context, kubeconfigs map[string]string, resourceID string) ([]byte, error) {
	var failures []string
	for name, file := range kubeconfigs {
		mgmtClient, err := open(file)
		if err != nil {
			return nil, fmt.Errorf("opening the management cluster %s: %w", name, err)
		}
		hosted, err := find(ctx, mgmtClient, resourceID)
		if err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		if hosted != nil {
			return read(ctx, mgmtClient, hosted)
		}
	}
	if len(failures) > 0 {
		return nil, fmt.Errorf("searching the management clusters: %s", strings.Join(failures, "; "))
	}
	return nil, &NotFound{"no management cluster of the region has this cluster yet; see how far it is with `hcpctl cluster watch`"}
}

func open(file string) (dynamic.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "hcpctl"
	return dynamic.NewForConfig(config)
}

func find(ctx context.Context, mgmtClient dynamic.Interface, resourceID string) (*unstructured.Unstructured, error) {
	clusters := schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}
	list, err := mgmtClient.Resource(clusters).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if strings.EqualFold(list.Items[i].GetAnnotations()[resourceIDAnnotation], resourceID) {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

func read(ctx context.Context, mgmtClient dynamic.Interface, hosted *unstructured.Unstructured) ([]byte, error) {
	name, _, _ := unstructured.NestedString(hosted.Object, "status", "kubeconfig", "name")
	if name == "" {
		return nil, &NotFound{"the cluster has no kubeconfig yet: its control plane is still coming up; see `hcpctl cluster watch`"}
	}
	secret, err := mgmtClient.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).
		Namespace(hosted.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the cluster's kubeconfig: %w", err)
	}
	return decode(secret)
}
func decode(secret *unstructured.Unstructured) ([]byte, error) {
	encoded, _, _ := unstructured.NestedString(secret.Object, "data", "kubeconfig")
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(data) == 0 {
		return nil, errors.New("the kubeconfig Secret of the cluster has no kubeconfig")
	}
	return data, nil
}

// Package controlplane finds the HostedCluster of a control plane.
package controlplane

import (
	"context"
	"fmt"
	"strings"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
)

// HostedCluster returns the HostedCluster whose control plane is in a namespace; nil if there is none any more.
func HostedCluster(ctx context.Context, management client.Reader, namespace string) (*hyperv1.HostedCluster, error) {
	var planes hyperv1.HostedControlPlaneList
	if err := management.List(ctx, &planes, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the control planes of namespace %s: %w", namespace, err)
	}
	if len(planes.Items) != 1 {
		return nil, nil
	}
	owner, name, _ := strings.Cut(planes.Items[0].Annotations[contract.HostedClusterAnnotation], "/")
	var hc hyperv1.HostedCluster
	err := management.Get(ctx, client.ObjectKey{Namespace: owner, Name: name}, &hc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting the HostedCluster of %s: %w", namespace, err)
	}
	return &hc, nil
}

package logforwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// fieldManager is the name of the forwarder in the managed fields of HostedClusters.
const fieldManager = "log-forwarder"

// ReportWriter writes reports about the delivery of logs.
type ReportWriter interface {
	// Update replaces the report about a HostedCluster, namespace/name, with what next returns for the current one. A report is nil if there is
	// none. Update returns nil if the HostedCluster does not exist.
	Update(ctx context.Context, hostedCluster string, next func(*hostedreport.LogReport) *hostedreport.LogReport) error
}

// annotations is a ReportWriter to annotations of HostedClusters. The forwarder is the only writer of the annotation.
type annotations struct{ management metadata.Interface }

var hostedClusters = schema.GroupVersionResource{Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"}

// Update implements ReportWriter.
func (a annotations) Update(ctx context.Context, hostedCluster string, next func(*hostedreport.LogReport) *hostedreport.LogReport) error {
	namespace, name, _ := strings.Cut(hostedCluster, "/")
	client := a.management.Resource(hostedClusters).Namespace(namespace)
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting HostedCluster %s: %w", hostedCluster, err)
	}
	current, text := object.Annotations[hostedreport.LogAnnotation], ""
	if report := next(hostedreport.DecodeLogs(current)); report != nil {
		if text, err = report.Encode(); err != nil {
			return err
		}
	}
	if text == current {
		return nil
	}
	// The policy of a management cluster permits changing the annotation, and not removing it.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": object.UID, "annotations": map[string]string{hostedreport.LogAnnotation: text}}})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reporting on HostedCluster %s: %w", hostedCluster, err)
	}
	return nil
}

// report writes the report about a control plane.
func (f *Forwarder) report(ctx context.Context, name string) error {
	f.mu.Lock()
	c := f.controlPlanes[name]
	f.mu.Unlock()
	if f.options.Reports == nil || c == nil || c.hostedCluster == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return f.options.Reports.Update(ctx, c.hostedCluster, func(reported *hostedreport.LogReport) *hostedreport.LogReport {
		return f.metrics.deliveries.report(name, reported)
	})
}

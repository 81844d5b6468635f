// Package crd installs the CustomResourceDefinitions of HyperShift on a management cluster: the published files,
// unchanged, by server-side apply, because they are too large for anything that keeps a copy in an annotation.
package crd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// files are the definitions the runtime and its consumers need, in the variants without preview features.
var files = []string{
	"hypershift-operator/zz_generated.crd-manifests/hostedclusters-Hypershift-Default.crd.yaml",
	"hypershift-operator/zz_generated.crd-manifests/hostedcontrolplanes-Hypershift-Default.crd.yaml",
	"hypershift-operator/zz_generated.crd-manifests/nodepools-Default.crd.yaml",
	"hypershift-operator/zz_generated.crd-manifests/controlplanecomponents.crd.yaml",
	"hypershift-operator/certificates.hypershift.openshift.io_certificaterevocationrequests.yaml",
	"hypershift-operator/certificates.hypershift.openshift.io_certificatesigningrequestapprovals.yaml",
	"hypershift-operator/scheduling.hypershift.openshift.io_clustersizingconfigurations.yaml",
}

// manager owns the definitions' fields.
const manager = client.FieldOwner("hypershift-install")

// Read returns the definitions in folder.
func Read(folder string) ([]*unstructured.Unstructured, error) {
	var definitions []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			return nil, fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		definitions = append(definitions, definition)
	}
	return definitions, nil
}

// Install applies the definitions in folder and waits until the API server serves them.
func Install(ctx context.Context, c client.WithWatch, folder string) error {
	definitions, err := Read(folder)
	if err != nil {
		return err
	}
	for _, definition := range definitions {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), manager, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", definition.GetName(), err)
		}
	}
	for _, definition := range definitions {
		if err := awaitEstablished(ctx, c, definition.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// establishWithin bounds how long an API server may take to serve a definition.
const establishWithin = time.Minute

func awaitEstablished(ctx context.Context, c client.WithWatch, name string) error {
	ctx, cancel := context.WithTimeout(ctx, establishWithin)
	defer cancel()
	for {
		watcher, err := c.Watch(ctx, &apiextensionsv1.CustomResourceDefinitionList{}, client.MatchingFields{"metadata.name": name})
		if err != nil {
			return fmt.Errorf("watching CustomResourceDefinition %s: %w", name, err)
		}
		done := established(watcher)
		watcher.Stop()
		if done {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("CustomResourceDefinition %s was not established within %s", name, establishWithin)
		}
	}
}

// established reads events until one shows the definition established; false when the watch ended before.
func established(watcher watch.Interface) bool {
	for event := range watcher.ResultChan() {
		definition, ok := event.Object.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		for _, condition := range definition.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

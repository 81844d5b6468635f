// Package crd installs the CustomResourceDefinitions of HyperShift on a management cluster: the published files,
// unchanged, by server-side apply, because they are too large for anything that keeps a copy in an annotation. What is there as it
// was installed is left alone: a runtime that is started again has nothing to wait for.
package crd

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// files are the definitions the runtime and its consumers need, by their names, in the variants without preview features.
var files = []struct{ name, path string }{
	{"hostedclusters.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/hostedclusters-Hypershift-Default.crd.yaml"},
	{"hostedcontrolplanes.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/hostedcontrolplanes-Hypershift-Default.crd.yaml"},
	{"nodepools.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/nodepools-Default.crd.yaml"},
	{"controlplanecomponents.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/controlplanecomponents.crd.yaml"},
	{"certificaterevocationrequests.certificates.hypershift.openshift.io", "hypershift-operator/certificates.hypershift.openshift.io_certificaterevocationrequests.yaml"},
	{"certificatesigningrequestapprovals.certificates.hypershift.openshift.io", "hypershift-operator/certificates.hypershift.openshift.io_certificatesigningrequestapprovals.yaml"},
	{"clustersizingconfigurations.scheduling.hypershift.openshift.io", "hypershift-operator/scheduling.hypershift.openshift.io_clustersizingconfigurations.yaml"},
}

// manager owns the definitions' fields.
const manager = client.FieldOwner("hypershift-install")

// installed is the annotation of a definition that is served as a file has it: the file's digest, and the generation that the
// definition had then. Applying one again changes nothing, but for the largest it costs an API server the better part of a second.
const installed = "runtime.hcpmesh.io/installed"

// Install applies the definitions in folder that are not as they were installed, and waits until the API server serves them all.
func Install(ctx context.Context, c client.WithWatch, folder string) error {
	applied := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(folder, file.path))
		if err != nil {
			return fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		digest := fmt.Sprintf("%x", sha256.Sum256(text))
		there := metadataOf(file.name)
		if err := c.Get(ctx, client.ObjectKeyFromObject(there), there); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting CustomResourceDefinition %s: %w", file.name, err)
		}
		if there.Annotations[installed] == mark(digest, there.Generation) {
			continue
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			return fmt.Errorf("reading %s: %w", file.path, err)
		}
		if definition.GetName() != file.name {
			return fmt.Errorf("%s defines %s, not %s", file.path, definition.GetName(), file.name)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), manager, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", file.name, err)
		}
		applied[file.name] = mark(digest, definition.GetGeneration()) // as the API server answered
	}
	for name, mark := range applied {
		if err := awaitEstablished(ctx, c, name); err != nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, installed, mark)
		if err := c.Patch(ctx, metadataOf(name), client.RawPatch(types.MergePatchType, patch), manager); err != nil {
			return fmt.Errorf("noting that CustomResourceDefinition %s is installed: %w", name, err)
		}
	}
	return nil
}

// mark is what a definition says that was installed from a file with a digest. Any change of it has it be of another generation.
func mark(digest string, generation int64) string { return fmt.Sprintf("%s/%d", digest, generation) }

// metadataOf is for asking about a definition without its content.
func metadataOf(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
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

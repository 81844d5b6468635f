package app

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

// crdFiles lists the definitions that the runtime and its consumers need, by name, in the variants without preview
// features.
var crdFiles = []struct{ name, path string }{
	{"hostedclusters.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/hostedclusters-Hypershift-Default.crd.yaml"},
	{"hostedcontrolplanes.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/hostedcontrolplanes-Hypershift-Default.crd.yaml"},
	{"nodepools.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/nodepools-Default.crd.yaml"},
	{"controlplanecomponents.hypershift.openshift.io", "hypershift-operator/zz_generated.crd-manifests/controlplanecomponents.crd.yaml"},
	{"certificaterevocationrequests.certificates.hypershift.openshift.io", "hypershift-operator/certificates.hypershift.openshift.io_certificaterevocationrequests.yaml"},
	{"certificatesigningrequestapprovals.certificates.hypershift.openshift.io", "hypershift-operator/certificates.hypershift.openshift.io_certificatesigningrequestapprovals.yaml"},
	{"clustersizingconfigurations.scheduling.hypershift.openshift.io", "hypershift-operator/scheduling.hypershift.openshift.io_clustersizingconfigurations.yaml"},
}

// crdManager is the field manager of the definitions.
const crdManager = client.FieldOwner("hypershift-install")

// installedAnnotation is set on a definition that was installed from a file. Its value is the file's digest and the
// generation that the definition had then. Applying a definition again changes nothing, but takes an API server almost
// a second for the largest.
const installedAnnotation = "runtime.hcpmesh.io/installed"

// installCRDs applies HyperShift's CustomResourceDefinitions in folder that are not installed yet, and waits until the API server serves
// them. It applies the published files with one annotation and by server-side apply, because they are too large for the annotation of
// client-side apply. It skips definitions that are already installed, so that a runtime restarts quickly.
func installCRDs(ctx context.Context, c client.WithWatch, folder string) error {
	var applied []string
	for _, file := range crdFiles {
		text, err := os.ReadFile(filepath.Join(folder, file.path))
		if err != nil {
			return fmt.Errorf("reading a CustomResourceDefinition: %w", err)
		}
		digest := fmt.Sprintf("%x", sha256.Sum256(text))
		existing := metadataOnly(file.name)
		if err := c.Get(ctx, client.ObjectKeyFromObject(existing), existing); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting CustomResourceDefinition %s: %w", file.name, err)
		}
		if existing.Annotations[installedAnnotation] == installedValue(digest, existing.Generation) {
			continue
		}
		definition := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &definition.Object); err != nil {
			return fmt.Errorf("reading %s: %w", file.path, err)
		}
		if definition.GetName() != file.name {
			return fmt.Errorf("%s defines %s, not %s", file.path, definition.GetName(), file.name)
		}
		// A new definition gets generation 1. A changed one needs a second write, whose validation takes the API server as long as the first.
		mark := installedValue(digest, 1)
		if err := unstructured.SetNestedField(definition.Object, mark, "metadata", "annotations", installedAnnotation); err != nil {
			return fmt.Errorf("annotating %s: %w", file.path, err)
		}
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), crdManager, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying CustomResourceDefinition %s: %w", file.name, err)
		}
		applied = append(applied, file.name)
		if current := installedValue(digest, definition.GetGeneration()); current != mark { // of the API server's response
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, installedAnnotation, current)
			if err := c.Patch(ctx, metadataOnly(file.name), client.RawPatch(types.MergePatchType, patch), crdManager); err != nil {
				return fmt.Errorf("annotating CustomResourceDefinition %s as installed: %w", file.name, err)
			}
		}
	}
	for _, name := range applied {
		if err := awaitEstablished(ctx, c, name); err != nil {
			return err
		}
	}
	return nil
}

// installedValue returns the value of installedAnnotation for a file's digest. Any change of the definition increments
// its generation, so the value no longer matches.
func installedValue(digest string, generation int64) string {
	return fmt.Sprintf("%s/%d", digest, generation)
}

// metadataOnly returns an object for reading only the metadata of a definition.
func metadataOnly(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// establishWithin is the time limit for an API server to serve a definition.
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

// established reads events until one shows the definition as established. It returns false if the watch ends first.
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

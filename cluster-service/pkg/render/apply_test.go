package render_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1alpha1 "github.com/openshift/hypershift/api/certificates/v1alpha1"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// managementCluster starts a real API server with HyperShift's published CustomResourceDefinitions. It returns the clients of HyperShift and
// of Maestro's agent, which has only the rights that it has in a region.
func managementCluster(t *testing.T) (operatorClient, agentClient dynamic.Interface) {
	t.Helper()
	operator := must.Get(filepath.Abs("../../../.build/third-party/crds/hypershift/hypershift-operator"))(t)
	var wanted []string
	for _, pattern := range []string{"zz_generated.crd-manifests/hostedclusters-*-Default.crd.yaml", "zz_generated.crd-manifests/nodepools-Default.crd.yaml",
		"certificates.hypershift.openshift.io_*.yaml"} {
		files := must.Get(filepath.Glob(filepath.Join(operator, pattern)))(t)
		if len(files) == 0 {
			kubeapitest.SkipUnlessCI(t, "HyperShift's CustomResourceDefinitions are not built; run tooling/third-party/build.sh")
		}
		wanted = append(wanted, files...)
	}
	cluster := kubeapitest.Start(t)
	config := must.Get(clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig()))(t)
	must.Get(envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: wanted, ErrorIfPathMissing: true, CRDs: withoutSchema("SecretProviderClass", "SecretSync")}))(t)
	return dynamicClient(t, cluster.Kubeconfig()), dynamicClient(t, cluster.AgentKubeconfig(t))
}

// withoutSchema returns definitions of kinds that accept every field.
func withoutSchema(kinds ...string) []*apiextensionsv1.CustomResourceDefinition {
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range kinds {
		resource := resources[kind]
		definition := &apiextensionsv1.CustomResourceDefinition{}
		definition.Name = resource.GroupResource().String()
		definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{Group: resource.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: resource.Resource, Singular: strings.ToLower(kind)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: resource.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}}}}}
		definitions = append(definitions, definition)
	}
	return definitions
}

// dynamicClient returns a client with the certificate of a kubeconfig and without a limit of its rate.
func dynamicClient(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	config.QPS = -1
	return must.Get(dynamic.NewForConfig(config))(t)
}

var resources = map[string]schema.GroupVersionResource{
	"Namespace":     {Version: "v1", Resource: "namespaces"},
	"Secret":        {Version: "v1", Resource: "secrets"},
	"ConfigMap":     {Version: "v1", Resource: "configmaps"},
	"HostedCluster": hyperv1.GroupVersion.WithResource("hostedclusters"),
	"NodePool":      hyperv1.GroupVersion.WithResource("nodepools"),

	"CertificateSigningRequest":         certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"),
	"CertificateSigningRequestApproval": certificatesv1alpha1.SchemeGroupVersion.WithResource("certificatesigningrequestapprovals"),
	"CertificateRevocationRequest":      certificatesv1alpha1.SchemeGroupVersion.WithResource("certificaterevocationrequests"),

	"SecretProviderClass": {Group: "secrets-store.csi.x-k8s.io", Version: "v1", Resource: "secretproviderclasses"},
	"SecretSync":          {Group: "secret-sync.x-k8s.io", Version: "v1alpha1", Resource: "secretsyncs"},
}

// apply applies the manifests of all works as the work agent does.
func apply(t *testing.T, client dynamic.Interface, r *render.Renderer, aggregate *fleet.ClusterAggregate) {
	t.Helper()
	for _, found := range renderings(t, r, aggregate) {
		if _, err := applyTo(t, client, found, metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: %v", found.resource, err)
		}
	}
}

// TestRealAPIServerAcceptsManifests applies the renderings to a real API server with HyperShift's CRDs and their CEL rules.
// It then applies the rendering of an update, after a write of the HyperShift operator. The CRDs are of a newer release
// than the Go types (see go.mod), so this test also proves that the two fit together.
func TestRealAPIServerAcceptsManifests(t *testing.T) {
	client, agent := managementCluster(t)
	for name, settle := range allVariants(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			r, aggregate := settle()
			// HyperShift creates this namespace before anything is applied to the control plane.
			createNamespace(t, client, fleet.ControlPlaneNamespace(r.Environment, aggregate.Cluster))
			apply(t, agent, r, aggregate)

			namespace, clusterName := fleet.Namespace(r.Environment, aggregate.Cluster.ID()), fleet.HostedClusterName(aggregate.Cluster)
			operatorWrite := `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"annotations":{"hypershift.openshift.io/HasBeenAvailable":"true"},
				"finalizers":["hypershift.openshift.io/finalizer"]}}`
			hostedClusters := client.Resource(resources["HostedCluster"]).Namespace(namespace)
			must.Get(hostedClusters.Patch(ctx, clusterName, types.MergePatchType, []byte(operatorWrite), metav1.PatchOptions{FieldManager: "hypershift-operator-manager"}))(t)

			// As many ranges as the frontend accepts leave no room for those of the region.
			r.Config.InternalAPICIDRs = []string{"10.11.0.0/16", "10.12.0.0/16"}
			aggregate.Cluster.Spec.Api.AuthorizedCidrs = nil
			for i := range 500 {
				aggregate.Cluster.Spec.Api.AuthorizedCidrs = append(aggregate.Cluster.Spec.Api.AuthorizedCidrs, fmt.Sprintf("203.0.%d.%d/32", i/256, i%256))
			}
			aggregate.Cluster.Spec.Autoscaling.MaxNodesTotal = 7
			aggregate.Pools[0].Spec.Size = &csv1.NodePoolSpec_Replicas{Replicas: 5}
			aggregate.Pools[0].Spec.Taints = nil
			before := aggregate.Work(fleet.HostedCluster, "").Digest
			must.Do(t, r.Region.Settle(aggregate.Cluster.CreateTime, aggregate, r))
			apply(t, agent, r, aggregate)

			object := must.Get(hostedClusters.Get(ctx, clusterName, metav1.GetOptions{}))(t)
			if allowed, _, err := unstructured.NestedStringSlice(object.Object, "spec", "networking", "apiServer", "allowedCIDRBlocks"); err != nil || !slices.Equal(allowed, aggregate.Cluster.Spec.Api.AuthorizedCidrs) {
				t.Errorf("%d ranges may reach the API, want those of the customer: %v", len(allowed), err)
			}
			if object.GetAnnotations()["hypershift.openshift.io/HasBeenAvailable"] != "true" || len(object.GetFinalizers()) != 1 {
				t.Error("an update removed fields that HyperShift owns")
			}
			bundle := must.Get(r.Bundle(aggregate, aggregate.Work(fleet.HostedCluster, "")))(t)
			if bundle.Digest == before {
				t.Error("the update did not change the digest")
			}
			read := map[string]string{}
			for _, config := range bundle.Configs {
				for _, rule := range config.FeedbackRules {
					for _, path := range rule.JsonPaths {
						p := jsonpath.New(path.Name).AllowMissingKeys(true)
						if err := p.Parse("{" + path.Path + "}"); err != nil {
							t.Fatalf("%s: %v", path.Path, err)
						}
						results, err := p.FindResults(object.Object)
						if err != nil {
							t.Errorf("%s on an object without status: %v", path.Path, err)
						}
						if len(results) > 0 && len(results[0]) > 0 {
							read[path.Name], _ = results[0][0].Interface().(string)
						}
					}
				}
			}
			if read["digest"] != bundle.Digest || read["image"] != aggregate.Cluster.Release.Image {
				t.Errorf("read back %v, want digest %s", read, bundle.Digest)
			}
		})
	}
}

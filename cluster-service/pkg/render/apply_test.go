package render_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	workv1 "open-cluster-management.io/api/work/v1"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"k8s.io/client-go/util/jsonpath"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
)

// managementCluster is a real API server with HyperShift's real CRDs.
func managementCluster(t *testing.T) dynamic.Interface {
	t.Helper()
	thirdParty, err := filepath.Abs("../../../.build/third-party")
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob(filepath.Join(thirdParty, "crds/hypershift/hypershift-operator/zz_generated.crd-manifests/*-Default.crd.yaml"))
	if err != nil || len(crds) == 0 {
		t.Skipf("HyperShift's CRDs are not built: run tooling/third-party/build.sh (%v)", err)
	}
	var wanted []string
	for _, path := range crds {
		if strings.Contains(path, "hostedclusters-") || strings.Contains(path, "nodepools-") {
			wanted = append(wanted, path)
		}
	}
	certificates, err := filepath.Glob(filepath.Join(thirdParty, "crds/hypershift/hypershift-operator/certificates.hypershift.openshift.io_*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	wanted = append(wanted, certificates...)
	config, err := clientcmd.BuildConfigFromFlags("", kubeapitest.Start(t).Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: wanted, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

var kinds = map[string]schema.GroupVersionResource{
	"Namespace":     {Version: "v1", Resource: "namespaces"},
	"Secret":        {Version: "v1", Resource: "secrets"},
	"ConfigMap":     {Version: "v1", Resource: "configmaps"},
	"HostedCluster": {Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "hostedclusters"},
	"NodePool":      {Group: "hypershift.openshift.io", Version: "v1beta1", Resource: "nodepools"},

	"CertificateSigningRequest":         {Group: "certificates.k8s.io", Version: "v1", Resource: "certificatesigningrequests"},
	"CertificateSigningRequestApproval": {Group: "certificates.hypershift.openshift.io", Version: "v1alpha1", Resource: "certificatesigningrequestapprovals"},
	"CertificateRevocationRequest":      {Group: "certificates.hypershift.openshift.io", Version: "v1alpha1", Resource: "certificaterevocationrequests"},
}

// apply applies a work's manifests as the work agent does, and has the server refuse unknown fields.
func apply(ctx context.Context, t *testing.T, client dynamic.Interface, r *render.Renderer, tenancy *fleet.ClusterAggregate) {
	t.Helper()
	force := true
	for _, w := range tenancy.Works {
		bundle, err := r.Bundle(tenancy, w)
		if err != nil {
			t.Fatal(err)
		}
		for i, manifest := range bundle.Manifests {
			if bundle.Configs[i].UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly {
				continue
			}
			var object struct {
				Kind     string
				Metadata metav1.ObjectMeta
			}
			if err := json.Unmarshal(manifest, &object); err != nil {
				t.Fatal(err)
			}
			_, err := client.Resource(kinds[object.Kind]).Namespace(object.Metadata.Namespace).Patch(ctx, object.Metadata.Name, types.ApplyPatchType,
				manifest, metav1.PatchOptions{FieldManager: workv1.DefaultFieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict})
			if err != nil {
				t.Errorf("%s %s: %v", object.Kind, object.Metadata.Name, err)
			}
		}
	}
}

// TestRealAPIServerAccepts applies what is rendered to a real API server, CEL rules and all, and then what an update
// renders over it, with HyperShift's operator having written fields of its own in between.
func TestRealAPIServerAccepts(t *testing.T) {
	client := managementCluster(t)
	r := renderer()
	for name, change := range variants {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			tenancy := settled(t, r, func(tenancy *fleet.ClusterAggregate) {
				change(tenancy)
				// Each variant is a cluster of its own.
				tenancy.Cluster.Status.ClusterId = fleet.ClusterID(name)
			})
			// HyperShift makes it, before anything is asked of the control plane.
			controlPlane := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
				"metadata": map[string]any{"name": fleet.ControlPlaneNamespace(r.Environment, tenancy.Cluster)}}}
			if _, err := client.Resource(kinds["Namespace"]).Create(ctx, controlPlane, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			apply(ctx, t, client, r, tenancy)

			namespace, clusterName := fleet.Namespace(r.Environment, tenancy.Cluster.ID()), fleet.HostedClusterName(tenancy.Cluster)
			theirs := `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"annotations":{"hypershift.openshift.io/HasBeenAvailable":"true"},
				"finalizers":["hypershift.openshift.io/finalizer"]}}`
			hostedClusters := client.Resource(kinds["HostedCluster"]).Namespace(namespace)
			if _, err := hostedClusters.Patch(ctx, clusterName, types.MergePatchType, []byte(theirs), metav1.PatchOptions{FieldManager: "hypershift-operator-manager"}); err != nil {
				t.Fatal(err)
			}

			tenancy.Cluster.Spec.Api.AuthorizedCidrs = []string{"203.0.113.0/24"}
			tenancy.Cluster.Spec.Autoscaling.MaxNodesTotal = 7
			tenancy.Pools[0].Spec.Size = &csv1.NodePoolSpec_Replicas{Replicas: 5}
			tenancy.Pools[0].Spec.Taints = nil
			before := tenancy.Work(fleet.HostedCluster, "").Digest
			if err := r.Region.Settle(tenancy.Cluster.CreateTime, tenancy, r); err != nil {
				t.Fatal(err)
			}
			apply(ctx, t, client, r, tenancy)

			object, err := hostedClusters.Get(ctx, clusterName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if object.GetAnnotations()["hypershift.openshift.io/HasBeenAvailable"] != "true" || len(object.GetFinalizers()) != 1 {
				t.Error("an update took away what is HyperShift's")
			}
			bundle, err := r.Bundle(tenancy, tenancy.Work(fleet.HostedCluster, ""))
			if err != nil {
				t.Fatal(err)
			}
			if bundle.Digest == before {
				t.Error("the update changed nothing")
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
			if read["digest"] != bundle.Digest || read["image"] != tenancy.Cluster.Release.Image {
				t.Errorf("read back %v, want digest %s", read, bundle.Digest)
			}
		})
	}
}

package installation_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// hypershiftName is the chart, the namespace and the label of the pods of the HyperShift runtime.
const hypershiftName = string(mesh.Hypershift)

// installHypershift installs the HyperShift runtime.
func (r *region) installHypershift(installer *installation.Installer) {
	r.t.Helper()
	began := time.Now()
	if _, err := installer.Install(r.ctx, hypershiftName); err != nil {
		r.printPods(hypershiftName)
		r.t.Fatal(err)
	}
	r.log("the HyperShift runtime was ready after %v", time.Since(began).Round(time.Millisecond))
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.printPods(hypershiftName)
		}
	})
}

// runHostedCluster publishes a HostedCluster, expects that it becomes available, and deletes it.
func (m *maestro) runHostedCluster(consumer string, keys *seal.PublicKeys) {
	m.t.Helper()
	const namespace, name = "ocm-test-hosted", "hosted"
	text := must.Get(os.ReadFile(filepath.Join("../..", "hypershift/pkg/app/testdata/hostedcluster.yaml")))(m.t)
	var cluster map[string]any
	must.Do(m.t, yaml.Unmarshal(text, &cluster))
	metadata := cluster["metadata"].(map[string]any)
	metadata["namespace"], metadata["name"] = namespace, name
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(m.t)
	signing := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	secret := func(name, kind, key string, value []byte) map[string]any {
		made := object("v1", "Secret", namespace, name, map[string]any{"type": kind, "data": map[string]any{key: base64.StdEncoding.EncodeToString(value)}})
		must.Do(m.t, seal.SealSecret(made, consumer, keys))
		return made
	}
	identifier := map[string]any{"group": "hypershift.openshift.io", "resource": "hostedclusters", "namespace": namespace, "name": name}
	bundle := newBundle(consumer, identifier, `.status.conditions[?(@.type=="Available")].status`, object("v1", "Namespace", "", namespace, nil),
		secret("pull-secret", "kubernetes.io/dockerconfigjson", ".dockerconfigjson", []byte(`{"auths":{}}`)), secret("sa-signing-key", "Opaque", "key", signing), cluster)
	m.t.Cleanup(func() {
		if m.t.Failed() {
			m.printPods(namespace + "-" + name)
		}
	})
	began := time.Now()
	version := m.publish("create", bundle)
	m.awaitStatus(bundle, version, "the availability of the HostedCluster", reports("True"))
	m.log("the HostedCluster was reported as available after %v", time.Since(began).Round(time.Millisecond))
	controlPlane := namespace + "-" + name
	m.useHostedCluster(controlPlane)
	m.deleteBundle(bundle, namespace)
	if _, err := m.cluster.Client().CoreV1().Namespaces().Get(m.ctx, controlPlane, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		m.t.Errorf("the namespace of the deleted control plane: %v", err)
	}
}

// useHostedCluster reads and writes the hosted cluster of a control plane with kubectl, and expects that the data survives its pods.
func (r *region) useHostedCluster(controlPlane string) {
	r.t.Helper()
	secret := must.Get(r.cluster.Client().CoreV1().Secrets(controlPlane).Get(r.ctx, "admin-kubeconfig", metav1.GetOptions{}))(r.t)
	kubeconfig := filepath.Join(r.dir, controlPlane+".kubeconfig")
	must.Do(r.t, os.WriteFile(kubeconfig, secret.Data["kubeconfig"], 0o600))
	address := r.forwardPod(controlPlane, "app=kube-apiserver", "6443")
	kubectl := func(arguments ...string) (string, error) {
		arguments = append([]string{"--kubeconfig=" + kubeconfig, "--server=https://" + address, "--request-timeout=10s"}, arguments...)
		output, err := exec.CommandContext(r.ctx, "../../.build/third-party/bin/kubectl", arguments...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, output)
		}
		return string(output), err
	}
	if output, err := kubectl("get", "namespaces", "--output=name"); err != nil || !strings.Contains(output, "namespace/kube-system") {
		r.t.Fatalf("the namespaces of the hosted cluster: %q, %v", output, err)
	}
	if output, err := kubectl("create", "configmap", "customer", "--from-literal=key=value"); err != nil {
		r.t.Fatalf("writing to the hosted cluster: %s, %v", output, err)
	}
	pods := r.cluster.Client().CoreV1().Pods(controlPlane)
	list, err := pods.List(r.ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		r.t.Fatalf("%d pods of the control plane, want etcd and an API server: %v", len(list.Items), err)
	}
	old := map[types.UID]bool{}
	for _, pod := range list.Items {
		old[pod.UID] = true
		must.Do(r.t, pods.Delete(r.ctx, pod.Name, metav1.DeleteOptions{}))
	}
	eventually.Before(r.ctx, r.t, "new pods of the control plane", func() error {
		list, err := pods.List(r.ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if old[pod.UID] || !installation.PodReady(&pod) {
				return fmt.Errorf("%s: %s %v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
			}
		}
		if len(list.Items) != 2 {
			return fmt.Errorf("%d pods", len(list.Items))
		}
		return nil
	})
	eventually.Before(r.ctx, r.t, "what was written to the hosted cluster", func() error {
		output, err := kubectl("get", "configmap", "customer", "--output=jsonpath={.data.key}")
		if err == nil && output != "value" {
			err = fmt.Errorf("the value is %q", output)
		}
		return err
	})
}

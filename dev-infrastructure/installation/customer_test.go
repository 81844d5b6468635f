package installation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// runHcpctl runs hcpctl with the endpoints of the region. It returns the standard output; the error has the other one.
func (p *pipelines) runHcpctl(arguments ...string) (string, error) {
	var out, problems bytes.Buffer
	command := exec.CommandContext(p.ctx, p.hcpctl, append(arguments, "--state-dir="+p.dir)...)
	command.Stdout, command.Stderr = &out, &problems
	err := command.Run()
	if err != nil {
		err = fmt.Errorf("hcpctl %s: %w: %s", strings.Join(arguments, " "), err, problems.Bytes())
	}
	return out.String(), err
}

// hcpctlOrFail runs hcpctl, which must succeed.
func (p *pipelines) hcpctlOrFail(arguments ...string) string {
	p.t.Helper()
	began := time.Now()
	output, err := p.runHcpctl(arguments...)
	if err != nil {
		if explained, failed := p.runHcpctl("explain", "demo"); failed == nil {
			p.t.Log(explained)
		}
		p.t.Fatal(err)
	}
	p.log("hcpctl %s: succeeded after %v", strings.Join(arguments, " "), time.Since(began).Round(time.Millisecond))
	return output
}

// hosted runs kubectl with a kubeconfig of a hosted cluster.
func (p *pipelines) hosted(kubeconfig string, arguments ...string) (string, error) {
	command := exec.CommandContext(p.ctx, "../../.build/third-party/bin/kubectl", append([]string{"--kubeconfig=" + kubeconfig, "--request-timeout=10s"}, arguments...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, output)
	}
	return string(output), err
}

// clusterSpaces returns the namespaces of clusters on the management cluster.
func (p *pipelines) clusterSpaces() []string {
	p.t.Helper()
	list := must.Get(p.management.cluster.Client().CoreV1().Namespaces().List(p.ctx, metav1.ListOptions{}))(p.t)
	var names []string
	for _, space := range list.Items {
		if strings.HasPrefix(space.Name, "ocm-") {
			names = append(names, space.Name)
		}
	}
	return names
}

// azureResources returns what the Azure of the region has.
func (p *pipelines) azureResources() []string {
	p.t.Helper()
	left := must.Get(p.azure.Leftovers())(p.t)
	// Audit records are added constantly.
	left = slices.DeleteFunc(left, func(id string) bool {
		return strings.HasPrefix(id, "blobs/") && !strings.HasPrefix(id, "blobs/"+p.text("oidc", "storageAccount"))
	})
	slices.Sort(left)
	return left
}

// runCustomer creates a cluster with a node pool through Azure Resource Manager, as a customer of the machine does, uses it with kubectl and as
// an engineer, and deletes it. Nothing of it may stay.
func (p *pipelines) runCustomer() {
	p.t.Helper()
	endpoints := must.Get(p.entra.Endpoints(p.proxy))(p.t)
	endpoints.Kubeconfigs[shard] = p.management.cluster.Kubeconfig()
	must.Do(p.t, local.WriteEndpoints(p.dir, endpoints))
	p.t.Cleanup(func() {
		if p.t.Failed() {
			p.printPods("monitor")
			for _, space := range p.clusterSpaces() {
				p.management.printPods(space)
			}
		}
	})
	before := p.azureResources()
	p.hcpctlOrFail("region", "demo")
	if created := p.azureResources(); len(created) <= len(before) {
		p.t.Errorf("Azure has %v for the cluster", created)
	}
	p.awaitProbed()
	p.useAsCustomer()
	p.useAsEngineer()
	p.useThroughTunnel()
	p.useManagementCluster()
	p.useServiceCluster()
	p.hcpctlOrFail("cluster", "delete", "demo")
	p.awaitForgotten()
	if diff := cmp.Diff(before, p.azureResources()); diff != "" {
		p.t.Errorf("the deleted cluster left in Azure (-before +after):\n%s", diff)
	}
	if left := p.clusterSpaces(); len(left) > 0 {
		p.t.Errorf("the deleted cluster left the namespaces %v on the management cluster", left)
	}
	volumes := must.Get(p.management.cluster.Client().CoreV1().PersistentVolumes().List(p.ctx, metav1.ListOptions{}))(p.t)
	for _, volume := range volumes.Items {
		if claim := volume.Spec.ClaimRef; claim != nil && strings.HasPrefix(claim.Namespace, "ocm-") && volume.Status.Phase == corev1.VolumeBound {
			p.t.Errorf("the deleted cluster left the volume %s of %s/%s", volume.Name, claim.Namespace, claim.Name)
		}
	}
	if listed := p.hcpctlOrFail("cluster", "list", "-o", "json"); strings.Contains(listed, "demo") {
		p.t.Errorf("the deleted cluster is listed: %s", listed)
	}
}

// useAsCustomer reads and writes the cluster with kubectl and a credential that the customer requested through Azure Resource Manager. The
// kubeconfig of a developer, which hcpctl reads from the management cluster, works too.
func (p *pipelines) useAsCustomer() {
	p.t.Helper()
	customer, developer := filepath.Join(p.dir, "customer.kubeconfig"), filepath.Join(p.dir, "developer.kubeconfig")
	p.hcpctlOrFail("cluster", "credential", "request", "demo", "-f", customer)
	if nodes, err := p.hosted(customer, "get", "nodes", "--output=name"); err != nil || strings.Count(nodes, "node/") != 2 {
		p.t.Errorf("the nodes of the cluster: %q, %v", nodes, err)
	}
	if output, err := p.hosted(customer, "create", "configmap", "customer", "--from-literal=key=value"); err != nil {
		p.t.Errorf("writing to the cluster: %s, %v", output, err)
	}
	p.hcpctlOrFail("cluster", "kubeconfig", "demo", "-f", developer)
	if output, err := p.hosted(developer, "get", "configmap", "customer", "--output=jsonpath={.data.key}"); err != nil || output != "value" {
		p.t.Errorf("reading from the cluster: %q, %v", output, err)
	}
}

// useAsEngineer explains the cluster, changes the size of its node pool in the customer's place, and gets access to its API server, whose
// certificate is revoked.
func (p *pipelines) useAsEngineer() {
	p.t.Helper()
	if explained := p.hcpctlOrFail("explain", "demo", "--as", "reader"); !strings.Contains(explained, "Cluster demo is ready") {
		p.t.Errorf("the explanation of the cluster: %s", explained)
	}
	p.hcpctlOrFail("nodepool", "scale", "demo", "workers", "--replicas", "3", "--as-sre", "--as", "operator", "--reason", "more load", "--ticket", "INC-42")
	access := filepath.Join(p.dir, "sre.kubeconfig")
	p.hcpctlOrFail("break-glass", "request", "demo", "-f", access, "--reason", "pods are pending", "--ticket", "INC-42")
	eventually.Before(p.ctx, p.t, "three nodes of the cluster", func() error {
		nodes, err := p.hosted(access, "get", "nodes", "--output=name")
		if count := strings.Count(nodes, "node/"); err == nil && count != 3 {
			err = fmt.Errorf("%d nodes", count)
		}
		return err
	})
	if output, err := p.hosted(access, "delete", "configmap", "customer"); err == nil || !strings.Contains(output, "forbidden") {
		p.t.Errorf("a reader deletes an object of the customer: %s, %v", output, err)
	}
	revoked := p.withCertificate(access)
	if output, err := p.hosted(revoked, "get", "nodes"); err != nil {
		p.t.Errorf("the certificate before its revocation: %s, %v", output, err)
	}
	began := time.Now()
	// A loaded node can need longer than hcpctl waits.
	if _, err := p.runHcpctl("break-glass", "revoke", "demo", "--reason", "the incident has ended", "--ticket", "INC-42"); err != nil && !strings.Contains(err.Error(), "is still in progress") {
		p.t.Fatal(err)
	}
	eventually.Before(p.ctx, p.t, "the end of the revoked certificate", func() error {
		if output, err := p.hosted(revoked, "get", "nodes"); err == nil {
			return fmt.Errorf("it reads: %s", output)
		}
		return nil
	})
	p.log("the certificate of a break-glass access was rejected %v after the request to revoke it", time.Since(began).Round(time.Millisecond))
}

// withCertificate returns a kubeconfig with the current certificate of an engineer's access. kubectl would renew that of the access itself.
func (p *pipelines) withCertificate(access string) (kubeconfig string) {
	p.t.Helper()
	text := must.Get(os.ReadFile(access))(p.t)
	stored := must.Get(os.ReadFile(access + ".access"))(p.t)
	var issued struct{ Certificate, Key string }
	var config map[string]any
	must.Do(p.t, errors.Join(json.Unmarshal(stored, &issued), yaml.Unmarshal(text, &config)))
	config["users"].([]any)[0].(map[string]any)["user"] = map[string]any{"client-certificate-data": []byte(issued.Certificate), "client-key-data": []byte(issued.Key)}
	text = must.Get(yaml.Marshal(config))(p.t)
	kubeconfig = access + ".static"
	must.Do(p.t, os.WriteFile(kubeconfig, text, 0o600))
	return kubeconfig
}

package installation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// afterLoss is the namespace of a bundle that the Maestro server accepts right before the loss of the service cluster.
const afterLoss = "ocm-test-2"

// serviceClusterSteps are the steps that deploy to the service cluster.
var serviceClusterSteps = []string{"admin/deploy", "backend/deploy", "cluster-service/deploy", "frontend/deploy", "gateway-access/deploy", "gateway-grants/deploy", "maestro-server/deploy", "monitor/deploy", "service-cluster/namespaces"}

// loseServiceCluster destroys the service cluster with all its nodes, volumes and etcd, and deploys a new one with the pipelines over the same databases,
// the same broker and the same management cluster. Nothing that was accepted may be lost.
func (p *pipelines) loseServiceCluster() {
	p.t.Helper()
	m := p.startServiceClusterSource()
	kept := newBundle(shard, map[string]any{"resource": "configmaps", "namespace": worksSpace, "name": workName}, valuePath,
		object("v1", "Namespace", "", worksSpace, nil), configMap(worksSpace, "one"))
	m.awaitStatus(kept, m.publish("create", kept), "the status of a bundle before the loss", reports("one"))
	stopWaiting := p.beginCluster()
	// The server accepts a change and a new bundle, and does not live long enough to wait for their statuses.
	kept["Manifests"].([]map[string]any)[1] = configMap(worksSpace, "two")
	changed := m.publish("update", kept)
	accepted := newBundle(shard, map[string]any{"resource": "configmaps", "namespace": afterLoss, "name": workName}, valuePath, object("v1", "Namespace", "", afterLoss, nil),
		configMap(afterLoss, "three"))
	created := m.publish("create", accepted)
	lost := time.Now()
	since := func() time.Duration { return time.Since(lost).Round(time.Millisecond) }
	p.destroyServiceCluster()
	stopWaiting()
	p.t.Logf("the service cluster was destroyed after %v", since())
	p.startNewServiceCluster()
	p.t.Logf("a new cluster was ready %v after the loss", since())
	m.source.ignore() // statuses that the lost server has sent; the new one sends them again when the source has subscribed to it
	p.forget("service-cluster")
	p.runAndSupply(serviceClusterSteps)
	p.log("the services were deployed %v after the loss of the service cluster", since())
	p.awaitTunnels()
	p.log("the management cluster had tunnels to the new session gateway %v after the loss", since())

	m.awaitStatus(kept, changed, "the status of the bundle that was changed before the loss", reports("two"))
	m.awaitStatus(accepted, created, "the status of the bundle that was created before the loss", reports("three"))
	p.log("the bundles that were accepted before the loss were applied %v after it", since())
	p.endCluster()
	p.awaitProbed()
	p.log("the cluster that was being created was complete %v after the loss", since())
	p.listShards(p.onTwoNodes("cluster-service"))
	p.countGroups(p.onTwoNodes("backend"))
	p.callFrontend(p.onTwoNodes("frontend"))
	p.callAdmin(p.onTwoNodes("admin"))
	m.deleteBundle(kept, worksSpace)
	m.deleteBundle(accepted, afterLoss)
	p.hcpctlOrFail("cluster", "delete", "demo")
	if left := p.clusterSpaces(); len(left) > 0 {
		p.t.Errorf("the deleted clusters left the namespaces %v on the management cluster", left)
	}
	if count := p.countBundles(); count != 0 {
		p.t.Errorf("%d bundles exist, and all were deleted", count)
	}
}

// beginCluster requests a cluster through ARM as a customer, and returns when its first works are applied. The returned function ends the program that waits
// for the cluster.
func (p *pipelines) beginCluster() (stop func()) {
	p.t.Helper()
	before := len(p.clusterSpaces())
	command := exec.Command(p.hcpctl, "region", "demo", "--state-dir="+p.dir)
	command.Stdout, command.Stderr = p.t.Output(), p.t.Output()
	process := must.Get(spawn.Start(command, syscall.SIGKILL))(p.t)
	p.t.Cleanup(process.Kill)
	eventually.Before(p.ctx, p.t, "the first works of a cluster", func() error {
		select {
		case <-process.Exited():
			p.t.Fatalf("the customer's program ended before: %v", process.Err())
		default:
		}
		if len(p.clusterSpaces()) == before {
			return errors.New("the management cluster has no namespace for the cluster")
		}
		return nil
	})
	return process.Kill
}

// endCluster waits for the cluster of beginCluster, and uses it.
func (p *pipelines) endCluster() {
	p.t.Helper()
	p.hcpctlOrFail("cluster", "watch", "demo")
	kubeconfig := filepath.Join(p.dir, "demo.kubeconfig")
	p.hcpctlOrFail("cluster", "kubeconfig", "demo", "-f", kubeconfig)
	if output, err := p.hosted(kubeconfig, "get", "namespaces", "--output=name"); err != nil || !strings.Contains(output, "namespace/kube-system") {
		p.t.Errorf("the namespaces of the cluster: %q, %v", output, err)
	}
}

// startServiceClusterSource starts a source of the Maestro server in the service cluster, whose bundles are applied on the management cluster.
func (p *pipelines) startServiceClusterSource() *maestro {
	p.t.Helper()
	m := &maestro{region: p.management}
	m.startSource(p.forwardPod("maestro-server", "app.kubernetes.io/name=maestro-server", "8090"))
	return m
}

// destroyServiceCluster kills the nodes and the control plane, and removes all data of the cluster.
func (p *pipelines) destroyServiceCluster() {
	p.t.Helper()
	dir := filepath.Dir(filepath.Dir(p.cluster.Kubeconfig()))
	must.Do(p.t, errors.Join(p.secrets.Close(), p.cluster.Close(), os.RemoveAll(dir)))
}

// startNewServiceCluster starts a cluster without charts in the place of the destroyed one. It has other authorities, so Entra ID accepts the tokens of
// its service accounts, and the pipelines get its kubeconfig.
func (p *pipelines) startNewServiceCluster() {
	p.t.Helper()
	cluster := startClusterWith(p.ctx, p.t, serviceClusterOptions(p.t, p.target))
	must.Get(installation.PushImages(p.ctx, cluster, imagesDir, installation.ServiceImages()...))(p.t)
	must.Do(p.t, p.outside.Move(p.ctx, cluster))
	p.cluster = cluster
	must.Do(p.t, p.entra.TrustCluster())
	p.secrets = must.Get(installation.KeepSecrets(p.ctx, cluster.Client(), slog.New(slog.NewTextHandler(p.t.Output(), nil))))(p.t)
	secrets := p.secrets
	p.t.Cleanup(func() { _ = secrets.Close() })
	p.supplier.Secrets = secrets
	p.applyDefinition(p.root)
	link := filepath.Join(p.kubeconfigs, p.text("serviceCluster", "name")+".kubeconfig")
	must.Do(p.t, errors.Join(os.Remove(link), os.Symlink(cluster.Kubeconfig(), link)))
}

// forget makes the next rollout run the steps of a group and of its children.
func (p *pipelines) forget(group string) {
	p.t.Helper()
	var out bytes.Buffer
	process := p.startProgram(&out, "forget", target, group, "--state-dir", p.stateDir)
	if err := process.Err(); err != nil {
		p.t.Fatalf("rollout forget %s: %v", group, err)
	}
	p.t.Logf("rollout forget %s:\n%s", group, out.String())
}

// runAndSupply runs the program, creates the Secrets of the services when it has created their namespaces, and expects the steps that run.
func (p *pipelines) runAndSupply(want []string) {
	p.t.Helper()
	var out bytes.Buffer
	process := p.start(&out, "run")
	for _, service := range installation.ServiceImages() {
		eventually.Before(p.ctx, p.t, "the namespace of "+service, func() error {
			select {
			case <-process.Exited():
				p.printLogs()
				p.t.Fatalf("the rollout ended before: %v", process.Err())
			default:
			}
			space, err := p.cluster.Client().CoreV1().Namespaces().Get(p.ctx, service, metav1.GetOptions{})
			if err == nil && space.Status.Phase != corev1.NamespaceActive {
				err = fmt.Errorf("it is %s", space.Status.Phase)
			}
			return err
		})
		p.supply(service)
	}
	if err := process.Err(); err != nil {
		p.printLogs()
		p.t.Fatalf("rollout run: %v", err)
	}
	var result rolledOut
	if err := json.Unmarshal(out.Bytes(), &result); err != nil || !slices.Equal(withoutInfrastructure(result.Succeeded), want) {
		p.t.Errorf("the rollout to the new cluster: %+v, %v, want %v to succeed", result, err, want)
	}
}

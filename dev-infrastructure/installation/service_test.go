package installation_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/transcript"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// target is the region whose configuration is for a machine.
const target = "public/local/westus3"

// regionTimeout bounds a test that installs and upgrades all services.
const regionTimeout = 30 * time.Minute

// region is what surrounds the services of a region: the authority, and the services that Azure has elsewhere.
type region struct {
	t       *testing.T
	ctx     context.Context
	cluster *kubernetes.Cluster
	target  values.Target
	// root is the root of the repository.
	root      string
	dir       string
	authority *mesh.Authority
	secrets   *installation.Secrets
	supplier  *installation.Supplier
	installer *installation.Installer
	// outside are the services of the machine, with Entra ID.
	outside *installation.Outside
	entra   *installation.Entra
	// mqtt is the address of the MQTT broker on loopback.
	mqtt string
	// loadProgram is the program of the load, which pushLoad builds.
	loadProgram string
	// section is the section of the transcript.
	section transcript.Section
}

// log adds a text to the transcript.
func (r *region) log(format string, arguments ...any) {
	r.t.Helper()
	transcript.Log(r.t, r.section, format, arguments...)
}

// text returns a key of the configuration.
func (r *region) text(path ...string) string { return textOf(r.t, r.target, path...) }

func textOf(t *testing.T, target values.Target, path ...string) string {
	t.Helper()
	n := target.Configuration.Get(path...)
	if n == nil {
		t.Fatalf("the configuration has no %v", path)
	}
	return fmt.Sprint(n.Value)
}

// identity issues a certificate for a test or a program outside of the cluster, and returns its folder. The services have others.
func (r *region) identity(peer mesh.Peer, hosts ...string) string {
	r.t.Helper()
	dir := filepath.Join(r.dir, "outside", string(peer))
	must.Do(r.t, r.authority.Issue(dir, peer, hosts...))
	return dir
}

// applyDefinition installs the CustomResourceDefinition of the kind that charts use on all clusters.
func (r *region) applyDefinition(root string) {
	r.t.Helper()
	definitions := must.Get(installation.Definitions(r.ctx, root))(r.t)
	must.Do(r.t, r.cluster.Apply(r.ctx, bytes.NewReader(definitions)))
}

// TestServicesRunOnNodes installs the services of a service cluster with their charts.
func TestServicesRunOnNodes(t *testing.T) {
	transcript.Outcome(t, transcript.Installation)
	ctx, cancel := context.WithTimeout(t.Context(), regionTimeout)
	t.Cleanup(cancel)
	r := startRegion(ctx, t, "maestro-server", "cluster-service", "frontend", "backend", "admin")
	r.entra = r.startEntra()
	r.addWorkloads()
	r.installCluster()
	services := []struct {
		name string
		// install installs the service, and check uses it through its pods.
		install func(name string) []corev1.Pod
		check   func(pods []corev1.Pod)
	}{
		{"maestro-server", r.install, r.registerConsumer},
		{"cluster-service", r.install, r.listShards},
		{"frontend", r.installBeforeStore, r.callFrontend},
		{"backend", r.install, r.countGroups},
		{"admin", r.install, r.callAdmin},
	}
	for _, service := range services {
		began := time.Now()
		r.supply(service.name)
		pods := service.install(service.name)
		r.log("%s was installed and ready after %v", service.name, time.Since(began).Round(time.Millisecond))
		service.check(pods)
	}
	r.renewIdentity()

	for _, service := range services {
		if result, err := r.installer.Install(ctx, service.name); err != nil || result.Changed {
			t.Errorf("a second installation of %s: %+v, %v, want no change", service.name, result, err)
		}
	}
	r.section = transcript.Upgrade
	r.rollOutUnderLoad()
	names := []string{"maestro-server", "cluster-service", "frontend", "backend", "admin"}
	r.upgradeAllAtOnce(names)
	r.section = transcript.NodeLoss
	r.drainAndLoseNode(names)
}

// TestServiceIsUpgradedOnOneNode installs the chart of the Maestro server on one node with Helm and upgrades it under load. It is the part of
// the tests on nodes that runs in `make test`: it needs one image, which it builds.
func TestServiceIsUpgradedOnOneNode(t *testing.T) {
	const service = string(mesh.MaestroServer)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	r := newRegion(ctx, t, target, buildImages(ctx, t, service), []string{service}, func(configured values.Target) kubernetes.Options {
		o := serviceClusterOptions(t, configured)
		o.Nodes = o.Nodes[:1]
		return o
	})
	r.startOutside()
	r.installCluster()
	r.supply(service)
	if _, err := r.installer.Install(ctx, service); err != nil {
		r.printPods(service)
		t.Fatal(err)
	}
	r.registerConsumer(r.pods(service))
	if result, err := r.installer.Install(ctx, service); err != nil || result.Changed {
		t.Errorf("a second installation: %+v, %v, want no change", result, err)
	}
	r.changeLogLevel()
	r.pushLoad()
	l := r.maestroLoad()
	l.disturb("node-1")
	if created, exist := l.stop("publish"), r.countBundles(); created != exist {
		t.Errorf("%d bundles exist, and %d were created", exist, created)
	}
}

// installCluster creates the installer and installs the namespaces and the PriorityClass.
func (r *region) installCluster() {
	r.t.Helper()
	r.installer = &installation.Installer{Root: r.root, Cluster: r.cluster.Config(), Target: r.target, ReadyWithin: 4 * time.Minute, Log: r.t.Output()}
	must.Get(r.installer.Install(r.ctx, "cluster"))(r.t)
}

// startRegion starts a cluster of two nodes with images, or skips the test where none can run. PostgreSQL, the broker and the update service
// are outside of the cluster, under the names that they have in Azure and at OpenShift.
func startRegion(ctx context.Context, t *testing.T, images ...string) *region {
	t.Helper()
	r := newRegion(ctx, t, target, builtImages(t), images, func(configured values.Target) kubernetes.Options { return serviceClusterOptions(t, configured) })
	r.startOutside()
	must.Do(t, r.outside.StartReleases(ctx))
	return r
}

// startOutside starts PostgreSQL and the broker, and the supplier of the Secrets.
func (r *region) startOutside() {
	r.t.Helper()
	given := must.Get(r.outside.GivenSecrets())(r.t)
	r.supplier = &installation.Supplier{Target: r.target, Authority: r.authority, Secrets: r.secrets, Dir: r.dir, Given: given}
	r.mqtt = r.startBroker()
	must.Do(r.t, r.outside.StartDatabases(r.ctx))
}

// serviceClusterOptions are the options of a service cluster.
func serviceClusterOptions(t *testing.T, configured values.Target) kubernetes.Options {
	t.Helper()
	return kubernetes.Options{
		Hosts: outsideHosts(t, configured), StorageClass: textOf(t, configured, "audit", "queueStorageClass"),
		Nodes: []kubernetes.Node{
			{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-1"}},
			{Name: "node-2", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-2"}},
		},
	}
}

// newRegion starts a cluster with images from a folder and with the options for the configuration of a region or a stamp, or skips the test
// where none can run. The cluster has neither namespaces nor charts yet.
func newRegion(ctx context.Context, t *testing.T, name, folder string, images []string, options func(values.Target) kubernetes.Options) *region {
	t.Helper()
	root := must.Get(chart.Root(workingFolder(t)))(t)
	list := must.Get(imagelist.Load(filepath.Join(folder, "images.json")))(t)
	configured := must.Get(installation.Target(root, name, list))(t)
	cluster := startClusterWith(ctx, t, options(configured))
	must.Get(installation.PushImages(ctx, cluster, folder, images...))(t)
	r := &region{t: t, ctx: ctx, cluster: cluster, target: configured, root: root, dir: t.TempDir(), section: transcript.Installation}
	r.authority = must.Get(mesh.OpenAuthority(filepath.Join(r.dir, "ca"), r.text("trustDomain")))(t)
	r.secrets = must.Get(installation.KeepSecrets(ctx, cluster.Client(), slog.New(slog.NewTextHandler(t.Output(), nil))))(t)
	t.Cleanup(func() { _ = r.secrets.Close() })
	r.outside = &installation.Outside{Cluster: cluster, Target: configured, Authority: r.authority, Dir: r.dir}
	t.Cleanup(func() {
		if err := r.outside.Close(); err != nil {
			t.Error(err)
		}
	})
	r.applyDefinition(root)
	return r
}

// supply creates what the chart of a service expects in its namespace.
func (r *region) supply(service string) {
	r.t.Helper()
	must.Do(r.t, r.supplier.Supply(r.ctx, service))
}

func workingFolder(t *testing.T) string {
	t.Helper()
	return must.Get(os.Getwd())(t)
}

// install installs the chart of a service and expects its two pods on two nodes.
func (r *region) install(service string) []corev1.Pod {
	r.t.Helper()
	if _, err := r.installer.Install(r.ctx, service); err != nil {
		r.printPods(service)
		r.t.Fatal(err)
	}
	return r.onTwoNodes(service)
}

// onTwoNodes returns the two pods of a service, which must be on two nodes.
func (r *region) onTwoNodes(service string) []corev1.Pod {
	r.t.Helper()
	pods, nodes := r.pods(service), map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
	}
	if len(pods) != 2 || len(nodes) != 2 {
		r.t.Fatalf("%d pods of %s on %d nodes, want 2 on 2", len(pods), service, len(nodes))
	}
	return pods
}

// installBeforeStore installs the chart of a service whose store does not respond yet. Its pods run, and become ready when the store responds.
func (r *region) installBeforeStore(service string) []corev1.Pod {
	r.t.Helper()
	installed, err := make(chan struct{}), error(nil)
	go func() {
		defer close(installed)
		_, err = r.installer.Install(r.ctx, service)
	}()
	r.t.Cleanup(func() { <-installed })
	eventually.Before(r.ctx, r.t, "pods of "+service+" that wait for the store", func() error {
		waiting := 0
		for _, pod := range r.pods(service) {
			status, text, err := r.send(nil, http.MethodGet, "http://"+pod.Status.PodIP+":9090/readyz", http.Header{}, "")
			if err != nil {
				return err
			}
			if status == http.StatusServiceUnavailable && strings.Contains(text, `"notReady":{"cosmos-db":`) && !installation.PodReady(&pod) {
				waiting++
			}
		}
		if waiting != 2 {
			return fmt.Errorf("%d pods wait", waiting)
		}
		return nil
	})
	r.startCosmos()
	<-installed
	if err != nil {
		r.printPods(service)
		r.t.Fatal(err)
	}
	return r.onTwoNodes(service)
}

// pods returns the pods of a service.
func (r *region) pods(service string) []corev1.Pod {
	r.t.Helper()
	list := must.Get(r.cluster.Client().CoreV1().Pods(service).List(r.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + service}))(r.t)
	return list.Items
}

// printPods prints the states and logs of all pods of the namespace.
func (r *region) printPods(namespace string) {
	core := r.cluster.Client().CoreV1()
	list, err := core.Pods(namespace).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Log(err)
		return
	}
	for _, pod := range list.Items {
		output, err := core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(r.ctx)
		r.t.Logf("%s: %s %+v\n%s%v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses, output, err)
	}
	events, err := core.Events(namespace).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Log(err)
		return
	}
	for _, event := range events.Items {
		r.t.Logf("%s %s: %s", event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

package installation_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const (
	// loadImage is the reference of the image of the load.
	loadImage = "registry.example/hcpmesh/load:v1"
	// consumer is the consumer that registerConsumer registers.
	consumer = "mgmt-1"
	// someCalls is the number of calls of each kind that a pod makes before and after each disturbance.
	someCalls = 20
)

// load is a pod on each node that calls a service constantly, through the name and the address of its Service.
type load struct {
	*region
	service string
	// arguments are those of the program. Its folder /load has files, by their paths.
	arguments []string
	files     map[string]string
	// addresses are those of the pods.
	addresses []string
	// tolerated are the numbers of failed calls of the pods that were expected, by address.
	tolerated map[string]int
}

// loadReport is the report of a pod of the load.
type loadReport struct {
	Succeeded, Failed map[string]int
	Failures          []string
}

// failed returns the number of failed calls.
func (r loadReport) failed() (count int) {
	for _, failed := range r.Failed {
		count += failed
	}
	return count
}

// pod returns the pod on a node. The key of a file in the Secret has dots for the slashes of its path.
func (l *load) pod(node string) *corev1.Pod {
	yes, no, grace, mode := true, false, int64(15), int32(0o440)
	secret := &corev1.SecretVolumeSource{SecretName: "load", DefaultMode: &mode}
	for path := range l.files {
		secret.Items = append(secret.Items, corev1.KeyToPath{Key: strings.ReplaceAll(path, "/", "."), Path: path})
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "load-" + node, Namespace: l.service},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, FSGroup: new(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Volumes:         []corev1.Volume{{Name: "load", VolumeSource: corev1.VolumeSource{Secret: secret}}},
			Containers: []corev1.Container{{
				Name: "load", Image: loadImage, Args: append([]string{l.service}, l.arguments...),
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
				},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/report", Port: intstr.FromInt32(8080)}}},
				VolumeMounts:   []corev1.VolumeMount{{Name: "load", MountPath: "/load", ReadOnly: true}},
			}},
		},
	}
}

// addIdentity adds the identity of a client to the files.
func (l *load) addIdentity(peer mesh.Peer) {
	l.t.Helper()
	for name, file := range installation.IdentityFiles(l.identity(peer)) {
		l.files[string(peer)+"/"+name] = file
	}
}

// pushLoad builds the image of the load.
func (r *region) pushLoad() {
	r.t.Helper()
	program := filepath.Join(r.t.TempDir(), "load")
	build := exec.CommandContext(r.ctx, "go", "build", "-o", program, "./testdata/load")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, output)
	}
	r.loadProgram = program
	image := must.Get(kubernetes.ProgramImage(program))(r.t)
	must.Do(r.t, r.cluster.Push(r.ctx, loadImage, image))
}

// maestroLoad is Cluster Service, which publishes bundles, and admin, which lists them.
func (r *region) maestroLoad() *load {
	r.t.Helper()
	l := &load{region: r, service: string(mesh.MaestroServer), files: map[string]string{}, arguments: []string{
		"--grpc=maestro-server.maestro-server.svc:8090", "--rest=https://maestro-server.maestro-server.svc:8000", "--consumer=" + consumer,
		"--cluster-service=/load/cluster-service", "--admin=/load/admin"}}
	l.addIdentity(mesh.ClusterService)
	l.addIdentity(mesh.Admin)
	return l
}

// frontendLoad is ARM, which reads operations and clusters, and registers subscriptions.
func (r *region) frontendLoad() *load {
	r.t.Helper()
	l := &load{region: r, service: string(mesh.Frontend), files: map[string]string{"client-secret": r.armSecretFile()}, arguments: []string{
		"--url=https://frontend.frontend.svc:8443", "--identity=/load/arm-frontdoor", "--subscription=" + subscription, "--location=" + r.text("region"),
		"--authority=" + r.text("endpoints", "authority"), "--tenant=" + r.text("tenantId"), "--client-id=" + r.armClientID(),
		"--client-secret-file=/load/client-secret", "--audience=" + r.text("frontend", "authentication", "audience")}}
	l.addIdentity(mesh.ARMFrontDoor)
	return l
}

// adminLoad is an engineer, who reads keys and shards, and begins and ends elevations.
func (r *region) adminLoad() *load {
	r.t.Helper()
	l := &load{region: r, service: string(mesh.Admin), files: map[string]string{"client-secret": r.engineerSecretFile("operator"), "ca.crt": filepath.Join(r.dir, "ca", mesh.CAFile)}, arguments: []string{
		"--url=https://admin.admin.svc:8444", "--ca-file=/load/ca.crt",
		"--authority=" + r.text("endpoints", "authority"), "--tenant=" + r.text("tenantId"), "--client-id=" + r.engineerClientID(),
		"--client-secret-file=/load/client-secret", "--audience=" + r.text("admin", "authentication", "audience")}}
	return l
}

// start starts a pod on each node and returns when each has made calls of all kinds.
func (l *load) start(nodes ...string) {
	l.t.Helper()
	keys := map[string]string{}
	for path, file := range l.files {
		keys[strings.ReplaceAll(path, "/", ".")] = file
	}
	must.Do(l.t, l.secrets.Keep(l.ctx, l.service, "load", keys))
	pods := l.cluster.Client().CoreV1().Pods(l.service)
	for _, node := range nodes {
		eventually.Before(l.ctx, l.t, "the creation of the load on "+node, func() error {
			// One that was stopped before still ends.
			_, err := pods.Create(l.ctx, l.pod(node), metav1.CreateOptions{})
			return err
		})
	}
	for _, node := range nodes {
		eventually.Before(l.ctx, l.t, "the load on "+node, func() error {
			pod, err := pods.Get(l.ctx, "load-"+node, metav1.GetOptions{})
			if err == nil && !installation.PodReady(pod) {
				err = fmt.Errorf("%s: %v", pod.Status.Phase, pod.Status.ContainerStatuses)
			}
			if err == nil {
				l.addresses = append(l.addresses, pod.Status.PodIP)
			}
			return err
		})
	}
	l.continueCalls("before all")
}

// request sends a request to a pod and returns its report.
func (l *load) request(method, address, path string) (loadReport, error) {
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return l.cluster.Dial(ctx, address) }}
	request, err := http.NewRequestWithContext(l.ctx, method, "http://"+address+":8080"+path, nil)
	if err != nil {
		return loadReport{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return loadReport{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var report loadReport
	return report, json.NewDecoder(response.Body).Decode(&report)
}

// continueCalls waits until each pod has made some more calls of each kind, and fails the test for each call that failed until then, without those
// that were tolerated before.
func (l *load) continueCalls(after string) {
	l.t.Helper()
	for _, address := range l.addresses {
		tolerated := l.tolerated[address]
		report := l.awaitCalls(address, after, func(report loadReport) bool { return report.failed() > tolerated })
		l.log("%s, the load on %s at %s: %v succeeded, %v failed", after, l.service, address, report.Succeeded, report.Failed)
		if count := report.failed(); count > tolerated {
			l.t.Errorf("%s: %d calls of %s failed, want %d", after, count, l.service, tolerated)
			for _, failure := range report.Failures[min(tolerated, len(report.Failures)):] {
				l.t.Log(failure)
			}
		}
	}
}

// awaitCalls waits until a pod has made some more calls of each kind, or until a condition holds. It returns the last report.
func (l *load) awaitCalls(address, after string, enough func(loadReport) bool) (report loadReport) {
	l.t.Helper()
	begin := must.Get(l.request(http.MethodGet, address, "/report"))(l.t)
	eventually.Before(l.ctx, l.t, "more calls "+after, func() error {
		var err error
		if report, err = l.request(http.MethodGet, address, "/report"); err != nil || enough(report) {
			return err
		}
		for kind, before := range begin.Succeeded {
			if report.Succeeded[kind] < before+someCalls {
				return fmt.Errorf("%s: %d calls, %d at the begin", kind, report.Succeeded[kind], before)
			}
		}
		return nil
	})
	return report
}

// tolerateFailures waits until each pod has made some more calls of each kind, and tolerates those that failed until then.
func (l *load) tolerateFailures(since time.Time) {
	l.t.Helper()
	l.tolerated = map[string]int{}
	for _, address := range l.addresses {
		report := l.awaitCalls(address, "that succeed", func(loadReport) bool { return false })
		l.tolerated[address] = report.failed()
		l.t.Logf("the load on %s: %v succeeded, %v failed", l.service, report.Succeeded, report.Failed)
		for _, failure := range report.Failures {
			moment, text, _ := strings.Cut(failure, " ")
			began := must.Get(time.Parse(time.RFC3339Nano, moment))(l.t)
			l.t.Logf("begun %v after the loss: %s", began.Sub(since).Round(time.Millisecond), text)
		}
	}
}

// stop ends the calls, deletes the pods and returns the number of successful calls of a kind, with those on new connections.
func (l *load) stop(kind string) (succeeded int) {
	l.t.Helper()
	for _, address := range l.addresses {
		report := must.Get(l.request(http.MethodPost, address, "/stop"))(l.t)
		succeeded += report.Succeeded[kind] + report.Succeeded[kind+" on a new connection"]
	}
	pods := l.cluster.Client().CoreV1().Pods(l.service)
	for _, node := range []string{"node-1", "node-2"} {
		if err := pods.Delete(l.ctx, "load-"+node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			l.t.Fatal(err)
		}
	}
	return succeeded
}

// logEndpoints logs each change of the endpoints and pods of a service with its time, until the test ends.
func (r *region) logEndpoints(service string) {
	r.t.Helper()
	endpoints := must.Get(r.cluster.Client().DiscoveryV1().EndpointSlices(service).Watch(r.ctx, metav1.ListOptions{}))(r.t)
	pods := must.Get(r.cluster.Client().CoreV1().Pods(service).Watch(r.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + service}))(r.t)
	var logging sync.WaitGroup
	r.t.Cleanup(func() {
		endpoints.Stop()
		pods.Stop()
		logging.Wait()
	})
	logging.Go(func() { logEvents(r.t, endpoints) })
	logging.Go(func() { logEvents(r.t, pods) })
}

// readyPods returns the ready pods of a service by their UIDs.
func (r *region) readyPods(service string) map[types.UID]string {
	r.t.Helper()
	uids := map[types.UID]string{}
	for _, pod := range r.pods(service) {
		if installation.PodReady(&pod) {
			uids[pod.UID] = pod.Name
		}
	}
	return uids
}

// upgrade upgrades a service with the current configuration, which must replace both of its pods.
func (r *region) upgrade(service string) {
	r.t.Helper()
	before := r.readyPods(service)
	if result, err := r.installer.Install(r.ctx, service); err != nil || !result.Changed {
		r.printPods(service)
		r.t.Fatalf("the upgrade of %s: %+v, %v", service, result, err)
	}
	r.awaitNewPods(service, before)
}

// awaitNewPods waits until a service has as many ready pods as before, all of them new.
func (r *region) awaitNewPods(service string, before map[types.UID]string) {
	r.t.Helper()
	eventually.Before(r.ctx, r.t, "new pods of "+service, func() error {
		after := r.readyPods(service)
		for uid, name := range after {
			if before[uid] != "" {
				return fmt.Errorf("%s is ready and was before", name)
			}
		}
		if len(after) != len(before) {
			return fmt.Errorf("%d pods are ready, want %d", len(after), len(before))
		}
		return nil
	})
}

// evict evicts one pod of a service and waits for another one.
func (r *region) evict(service string) {
	r.t.Helper()
	evicted := r.pods(service)[0]
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: evicted.Name, Namespace: evicted.Namespace}}
	eventually.Before(r.ctx, r.t, "the eviction of "+evicted.Name, func() error {
		// The disruption budget refuses it until its controller has counted the new pods.
		return r.cluster.Client().PolicyV1().Evictions(evicted.Namespace).Evict(r.ctx, eviction)
	})
	eventually.Before(r.ctx, r.t, "a new pod for the evicted one", func() error {
		if ready := r.readyPods(service); len(ready) != 2 || ready[evicted.UID] != "" {
			return fmt.Errorf("ready: %v", ready)
		}
		return nil
	})
}

// rollOutUnderLoad upgrades the services with a change of their configuration, and then evicts one of their pods. No call may fail, and
// nothing may be lost.
func (r *region) rollOutUnderLoad() {
	r.t.Helper()
	r.changeLogLevel()
	r.pushLoad()

	l := r.maestroLoad()
	l.disturb("node-1", "node-2")
	if created, exist := l.stop("publish"), r.countBundles(); created != exist {
		r.t.Errorf("%d bundles exist, and %d were created", exist, created)
	}

	l = r.frontendLoad()
	l.disturb("node-1", "node-2")
	// The frontend serves while the backend and Cluster Service are replaced. Each replica of the backend gives its groups to the other.
	for _, service := range []mesh.Peer{mesh.Backend, mesh.ClusterService} {
		r.upgrade(string(service))
		l.continueCalls("after the upgrade of " + string(service))
	}
	r.countGroups(r.pods(string(mesh.Backend)))
	l.stop("register")

	l = r.adminLoad()
	l.disturb("node-1", "node-2")
	l.stop("elevate")
}

// upgradeAllAtOnce upgrades all services at the same time with a change of their configuration, while the region is called from outside. No call may
// fail.
func (r *region) upgradeAllAtOnce(services []string) {
	r.t.Helper()
	admin := must.Get(r.outside.StartIngress())(r.t)
	l := r.startOutsideLoad(admin, "", "")
	l.enter("in the quiet phase")
	l.await(phaseCalls)
	r.target.Configuration.Get("logLevel").Value = "warn"
	before := map[string]map[types.UID]string{}
	for _, service := range services {
		before[service] = r.readyPods(service)
	}
	began := time.Now()
	l.enter("during the upgrade of all services at once")
	installing, ctx := errgroup.WithContext(r.ctx)
	for _, service := range services {
		installing.Go(func() error {
			result, err := r.installer.Install(ctx, service)
			if err == nil && !result.Changed {
				err = fmt.Errorf("the upgrade of %s has changed nothing", service)
			}
			return err
		})
	}
	must.Do(r.t, installing.Wait())
	for _, service := range services {
		r.awaitNewPods(service, before[service])
	}
	r.log("all services were upgraded at once within %v", time.Since(began).Round(time.Millisecond))
	l.await(phaseCalls)
	l.end()
	l.describe("in the quiet phase", "in the quiet phase")
	l.describe("during the upgrade of all services at once", "in the quiet phase")
}

// changeLogLevel changes a value of the configuration that all programs have.
func (r *region) changeLogLevel() {
	r.t.Helper()
	level := r.target.Configuration.Get("logLevel")
	if level == nil || level.Value == "info" {
		r.t.Fatal("the upgrade does not change the configuration")
	}
	level.Value = "info"
}

// disturb starts the load on nodes, upgrades its service and evicts a pod of it.
func (l *load) disturb(nodes ...string) {
	l.t.Helper()
	l.logEndpoints(l.service)
	l.start(nodes...)
	l.upgrade(l.service)
	l.continueCalls("after the upgrade of " + l.service)
	l.evict(l.service)
	l.continueCalls("after the eviction of a pod of " + l.service)
}

// countBundles returns the number of bundles that the Maestro server has.
func (r *region) countBundles() int {
	r.t.Helper()
	identity := must.Get(mesh.LoadIdentity(r.identity(mesh.Admin)))(r.t)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: identity.ClientTLS(mesh.MaestroServer),
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return r.cluster.Dial(ctx, address) }}
	request := must.Get(http.NewRequestWithContext(r.ctx, http.MethodGet, "https://"+r.pods("maestro-server")[0].Status.PodIP+":8000"+maestroapi.RESTPath+"/resource-bundles?size=1", nil))(r.t)
	response := must.Get((&http.Client{Transport: transport}).Do(request))(r.t)
	defer func() { _ = response.Body.Close() }()
	var list struct{ Total int }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != http.StatusOK {
		r.t.Fatalf("listing bundles: %s, %v", response.Status, err)
	}
	return list.Total
}

// logEvents logs the states of endpoints and pods.
func logEvents(t *testing.T, events watch.Interface) {
	for event := range events.ResultChan() {
		now := time.Now().UTC().Format(time.RFC3339Nano)
		switch object := event.Object.(type) {
		case *discoveryv1.EndpointSlice:
			var states []string
			for _, e := range object.Endpoints {
				c := e.Conditions
				states = append(states, fmt.Sprintf("%s ready=%t serving=%t terminating=%t", e.TargetRef.Name, *c.Ready, *c.Serving, *c.Terminating))
			}
			t.Logf("%s endpoints %v", now, states)
		case *corev1.Pod:
			t.Logf("%s %s %s on %s: ready=%t deletion=%v", now, event.Type, object.Name, object.Spec.NodeName, installation.PodReady(object), object.DeletionTimestamp)
		}
	}
}

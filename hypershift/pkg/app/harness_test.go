package app

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/pki"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// thirdParty is the folder of the programs and CustomResourceDefinitions that `make third-party` builds.
const thirdParty = "../../../.build/third-party"

// runtimeEnvironment is an environment variable that makes the test binary run as the runtime, so that tests can kill
// it.
const runtimeEnvironment = "HCPMESH_TEST_RUNTIME"

func TestMain(m *testing.M) {
	if os.Getenv(runtimeEnvironment) != "" {
		os.Exit(runtimeMain())
	}
	code := m.Run()
	clusters.Close()
	sweepClusters.Close()
	os.Exit(code)
}

func runtimeMain() int {
	var options Options
	flags := flag.NewFlagSet("runtime", flag.ExitOnError)
	options.AddFlags(flags)
	_ = flags.Parse(os.Args[1:])
	if err := options.Validate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := New(options, slog.New(slog.NewTextHandler(os.Stderr, nil))).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// managementCluster is a real etcd, kube-apiserver and its controllers. A runtime reconciles all objects on it,
// so one test uses it at a time.
type managementCluster struct {
	*kubeapitest.Cluster
	config *rest.Config
	client client.WithWatch
}

// clusters is reused by one test after another. Each test removes its objects, and the cleanup checks that.
var clusters kubeapitest.Pool

func newManagementCluster(t testing.TB) *managementCluster {
	t.Helper()
	return connectTo(t, clusters.Cluster(t, func(ctx context.Context, c *kubeapitest.Cluster) error { return c.RunControllers(ctx) }))
}

// connectTo returns a management cluster for a test. The test must delete its HostedClusters.
func connectTo(t testing.TB, cluster *kubeapitest.Cluster) *managementCluster {
	t.Helper()
	m := &managementCluster{Cluster: cluster}
	m.config = must.Get(clientcmd.BuildConfigFromFlags("", m.Kubeconfig()))(t)
	m.config.QPS, m.config.Burst, m.config.WarningHandler = -1, 0, rest.NoWarnings{}
	scheme := must.Get(contract.NewScheme())(t)
	m.client = must.Get(client.NewWithWatch(m.config, client.Options{Scheme: scheme}))(t)
	t.Cleanup(func() { m.expectNoHostedClusters(t) })
	return m
}

// expectNoHostedClusters fails if the test has left HostedClusters, which the runtime of the next test would reconcile.
func (m *managementCluster) expectNoHostedClusters(t testing.TB) {
	t.Helper()
	var left hyperv1.HostedClusterList
	if err := m.client.List(context.Background(), &left); err != nil {
		t.Errorf("listing HostedClusters after the test: %v", err)
	}
	for _, hc := range left.Items {
		t.Errorf("HostedCluster %s/%s was not deleted", hc.Namespace, hc.Name)
	}
}

// options returns the options of a runtime on the cluster.
func (m *managementCluster) options(stateDir string, change func(*Options)) Options {
	options := Options{
		Kubeconfig: m.Kubeconfig(), CRDDir: filepath.Join(thirdParty, "crds/hypershift"), Fidelity: "status",
		APIServer: filepath.Join(m.Programs, "kube-apiserver"), EtcdServers: m.Etcd, EtcdAuthority: m.EtcdAuthority, StateDir: stateDir,
		Ports: hostedapi.DefaultPortRange, ConcurrentStarts: 2,
	}
	if change != nil {
		change(&options)
	}
	return options
}

// startRuntime runs a runtime inside the test until the returned function is called, or the test ends.
func (m *managementCluster) startRuntime(t testing.TB, options Options) (stop func()) {
	t.Helper()
	must.Do(t, options.Validate())
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelInfo
	}
	runtime := New(options, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level})))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- runtime.RunWith(ctx, m.config) }()
	eventually.Soon(t, "the runtime is ready", func() error { return runtime.Ready(ctx) })
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		if t.Failed() {
			_ = pprof.Lookup("goroutine").WriteTo(t.Output(), 1) // shows what it waits for
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the runtime failed: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// spawnRuntime runs a runtime as a separate process.
func (m *managementCluster) spawnRuntime(t testing.TB, options Options) *spawn.Process {
	t.Helper()
	self := must.Get(os.Executable())(t)
	command := exec.Command(self, "--kubeconfig="+options.Kubeconfig, "--crd-dir="+options.CRDDir, "--fidelity="+options.Fidelity,
		"--time-scale="+strconv.FormatFloat(options.TimeScale, 'f', -1, 64), "--kube-apiserver="+options.APIServer,
		"--etcd-servers="+options.EtcdServers, "--etcd-authority-dir="+options.EtcdAuthority, "--state-dir="+options.StateDir)
	command.Env = append(os.Environ(), runtimeEnvironment+"=1")
	command.Stdout, command.Stderr = t.Output(), t.Output()
	process, err := spawn.Start(command, syscall.SIGKILL)
	if err != nil {
		t.Fatalf("starting the runtime: %v", err)
	}
	t.Cleanup(process.Kill)
	return process
}

func readExample(t testing.TB, file string, into client.Object) {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("testdata", file)))(t)
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// workAgent is the field manager that applies manifests in a region.
const workAgent = client.FieldOwner("work-agent")

// sample is the hosted cluster of the example manifests with other names. It is applied as a work agent does.
type sample struct {
	*managementCluster
	namespace, name string
	cluster, pool   *unstructured.Unstructured
}

func (m *managementCluster) sample(t testing.TB, id string) *sample {
	t.Helper()
	s := &sample{managementCluster: m, namespace: "ocm-test-" + id, name: "hc-" + id, cluster: &unstructured.Unstructured{}, pool: &unstructured.Unstructured{}}
	readExample(t, "hostedcluster.yaml", s.cluster)
	readExample(t, "nodepool.yaml", s.pool)
	s.cluster.SetNamespace(s.namespace)
	s.cluster.SetName(s.name)
	s.pool.SetNamespace(s.namespace)
	s.pool.SetName(s.name + "-np1")
	s.setPool(t, s.name, "spec", "clusterName")
	return s
}

func (s *sample) key() client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: s.name}
}

func (s *sample) controlPlane() string { return contract.ControlPlaneNamespace(s.namespace, s.name) }

func (s *sample) set(t testing.TB, value any, path ...string) {
	t.Helper()
	must.Do(t, unstructured.SetNestedField(s.cluster.Object, value, path...))
}

func (s *sample) setPool(t testing.TB, value any, path ...string) {
	t.Helper()
	must.Do(t, unstructured.SetNestedField(s.pool.Object, value, path...))
}

func (s *sample) annotate(key, value string) {
	annotations := s.cluster.GetAnnotations()
	annotations[key] = value
	s.cluster.SetAnnotations(annotations)
}

func (s *sample) apply(t testing.TB, object *unstructured.Unstructured) {
	t.Helper()
	if err := s.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(object.DeepCopy()), workAgent, client.ForceOwnership); err != nil {
		t.Fatalf("applying %s: %v", object.GetKind(), err)
	}
}

// create creates namespace and secrets, and applies the HostedCluster.
func (s *sample) create(t testing.TB) {
	t.Helper()
	s.createPrerequisites(t)
	s.apply(t, s.cluster)
}

// createWithPool creates the HostedCluster with its NodePool.
func (s *sample) createWithPool(t testing.TB) {
	t.Helper()
	s.create(t)
	s.apply(t, s.pool)
}

// available creates a sample and waits until it is available.
func (m *managementCluster) available(t testing.TB, id string) *sample {
	t.Helper()
	s := m.sample(t, id)
	s.create(t)
	s.waitCluster(t, available)
	return s
}

// signingKey returns a key for service-account tokens, which all tests share.
var signingKey = sync.OnceValues(func() ([]byte, error) {
	key, _, err := pki.NewSigningKey()
	return key, err
})

func (s *sample) createPrerequisites(t testing.TB) {
	t.Helper()
	key := must.Get(signingKey())(t)
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "pull-secret"}, Type: corev1.SecretTypeDockerConfigJson,
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "sa-signing-key"}, Data: map[string][]byte{"key": key}},
	} {
		if err := s.client.Create(t.Context(), object, workAgent); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatalf("creating %T: %v", object, err)
		}
	}
}

// get reads an object that must exist.
func get[T any, P interface {
	*T
	client.Object
}](t testing.TB, c client.Reader, key client.ObjectKey) T {
	t.Helper()
	var object T
	must.Do(t, c.Get(t.Context(), key, P(&object)))
	return object
}

func (s *sample) hostedCluster(t testing.TB) *hyperv1.HostedCluster {
	t.Helper()
	hc := get[hyperv1.HostedCluster](t, s.client, s.key())
	return &hc
}

// waitCluster watches the HostedCluster until check returns nil.
func (s *sample) waitCluster(t testing.TB, check func(*hyperv1.HostedCluster) error) *hyperv1.HostedCluster {
	t.Helper()
	return await(t, s.client, &hyperv1.HostedClusterList{}, s.key(), check)
}

func (s *sample) waitPool(t testing.TB, check func(*hyperv1.NodePool) error) *hyperv1.NodePool {
	t.Helper()
	return await(t, s.client, &hyperv1.NodePoolList{}, client.ObjectKeyFromObject(s.pool), check)
}

// await watches one object until check returns nil for one of its states.
func await[T client.Object](t testing.TB, c client.WithWatch, list client.ObjectList, key client.ObjectKey, check func(T) error) (object T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	states := make(chan observed[T], 16)
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			watchStates(ctx, c, list, key, states)
		}
	})
	defer watching.Wait()
	defer cancel()
	last := fmt.Errorf("%s did not appear", key)
	eventually.Soon(t, fmt.Sprintf("the condition of %T %s", object, key), func() error {
		for {
			select {
			case state := <-states:
				if last = state.err; last == nil {
					last = check(state.object)
				}
				if last == nil {
					object = state.object
					return nil
				}
			default:
				return last
			}
		}
	})
	return object
}

// observed is a state of an object, or an error of the watch.
type observed[T client.Object] struct {
	object T
	err    error
}

// watchStates sends the states of one object until the watch or ctx ends. It begins with a list because the API server can start a watch
// without a version from a cache that is older than the caller's last write.
func watchStates[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, key client.ObjectKey, states chan<- observed[T]) {
	send := func(state observed[T]) {
		select {
		case states <- state:
		case <-ctx.Done():
		}
	}
	list = list.DeepCopyObject().(client.ObjectList) // the receiver keeps the objects of the previous list
	selected := &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)}
	if err := c.List(ctx, list, selected); err != nil {
		send(observed[T]{err: err})
		return
	}
	listed, err := meta.ExtractList(list)
	if err != nil {
		send(observed[T]{err: err})
		return
	}
	for _, object := range listed {
		send(observed[T]{object: object.(T)})
	}
	selected.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	watcher, err := c.Watch(ctx, list, selected)
	if err != nil {
		send(observed[T]{err: err})
		return
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if object, ok := event.Object.(T); ok {
			send(observed[T]{object: object})
		}
	}
}

// delete deletes the HostedCluster and waits until all its objects are gone.
func (s *sample) delete(t testing.TB) {
	t.Helper()
	hc := &hyperv1.HostedCluster{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name}}
	if err := s.client.Delete(t.Context(), hc); err != nil {
		t.Fatalf("deleting the HostedCluster: %v", err)
	}
	s.awaitGone(t)
}

// remainingObjects describes the objects of the unfinished steps of a deletion, in the order of the steps.
func (s *sample) remainingObjects(t testing.TB) (remains string) {
	t.Helper()
	note := func(object client.Object, key client.ObjectKey) bool {
		if err := s.client.Get(t.Context(), key, object); err != nil {
			remains += fmt.Sprintf("; %T: %v", object, err)
			return false
		}
		remains += fmt.Sprintf("; %T %s: finalizers %v, deleted %v", object, key, object.GetFinalizers(), object.GetDeletionTimestamp())
		return true
	}
	note(&hyperv1.NodePool{}, client.ObjectKeyFromObject(s.pool))
	note(&hyperv1.HostedControlPlane{}, client.ObjectKey{Namespace: s.controlPlane(), Name: s.name})
	var namespace corev1.Namespace
	if note(&namespace, client.ObjectKey{Name: s.controlPlane()}) {
		for _, c := range namespace.Status.Conditions { // the namespace controller reports what it waits for
			remains += fmt.Sprintf(", %s is %s, %s: %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return remains
}

func (s *sample) awaitGone(t testing.TB) {
	t.Helper()
	gone := func(key client.ObjectKey, object client.Object) {
		t.Helper()
		eventually.Soon(t, fmt.Sprintf("%T %s is gone", object, key), func() error {
			switch err := s.client.Get(t.Context(), key, object); {
			case apierrors.IsNotFound(err):
				return nil
			case err != nil:
				return err
			}
			return fmt.Errorf("%T %s still exists: finalizers %v, deleted %v%s", object, key, object.GetFinalizers(), object.GetDeletionTimestamp(), s.remainingObjects(t))
		})
	}
	gone(s.key(), &hyperv1.HostedCluster{})
	gone(client.ObjectKeyFromObject(s.pool), &hyperv1.NodePool{})
	gone(client.ObjectKey{Name: s.controlPlane()}, &corev1.Namespace{})
	for _, name := range []string{contract.AdminKubeconfig(s.name), contract.CustomKubeconfig(s.name), contract.KubeadminPassword(s.name), "kube-apiserver-tls-cert"} {
		gone(client.ObjectKey{Namespace: s.namespace, Name: name}, &corev1.Secret{})
	}
	for _, name := range []string{"pull-secret", "sa-signing-key"} {
		var secret corev1.Secret
		if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, &secret); err != nil {
			t.Errorf("a secret that the runtime did not create was deleted: %v", err)
		}
		for annotation := range secret.Annotations {
			if strings.HasPrefix(annotation, contract.ReferencedResourcePrefix) {
				t.Errorf("Secret %s still has the annotation %s", name, annotation)
			}
		}
	}
}

// etcdKeys returns the number of etcd keys of a hosted control plane.
func (s *sample) etcdKeys(t testing.TB) int {
	t.Helper()
	return len(s.etcdValues(t, hostedapi.Prefix(s.controlPlane())))
}

// etcdValues returns all keys below a prefix with their values.
func (s *sample) etcdValues(t testing.TB, prefix string) map[string][]byte {
	t.Helper()
	return must.Get(s.EtcdUsers(t).Read(t.Context(), prefix))(t)
}

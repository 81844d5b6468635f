package installation_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgresserver"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/eventgrid-emulator/pkg/broker"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
)

// target is the region whose configuration is for a machine.
const target = "public/local/westus3"

// region is what surrounds the services of a region: the authority, and the services that Azure has elsewhere.
type region struct {
	t         *testing.T
	ctx       context.Context
	cluster   *kubernetes.Cluster
	target    values.Target
	dir       string
	authority *mesh.Authority
	secrets   *installation.Secrets
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

// identity issues the certificate of a workload and returns its folder.
func (r *region) identity(peer mesh.Peer, hosts ...string) string {
	r.t.Helper()
	dir := filepath.Join(r.dir, "identities", string(peer))
	if err := r.authority.Issue(dir, peer, hosts...); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// write writes a file and returns its path.
func (r *region) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

func (r *region) keep(namespace, name string, files map[string]string) {
	r.t.Helper()
	if err := r.secrets.Keep(r.ctx, namespace, name, files); err != nil {
		r.t.Fatal(err)
	}
}

// startBroker serves MQTT under the name of the Event Grid namespace.
func (r *region) startBroker() {
	r.t.Helper()
	host, port, err := net.SplitHostPort(r.text("eventGrid", "mqttAddress"))
	if err != nil {
		r.t.Fatal(err)
	}
	listener, err := r.cluster.ListenHost(r.ctx, host, port)
	if err != nil {
		r.t.Fatal(err)
	}
	identity, err := broker.LoadIdentity(r.identity(mesh.EventGridEmulator, host))
	if err != nil {
		r.t.Fatal(err)
	}
	b, err := broker.Start(listener, broker.Options{TLS: identity.TLS(), Source: r.text("maestro", "sourceId"), MaxSessions: 10, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = b.Close() })
}

// startDatabase serves PostgreSQL under the name of the flexible server. It returns the files with the URLs for the program and for the
// command migrate.
func (r *region) startDatabase() (program, owner string) {
	r.t.Helper()
	host := postgresHost(r.t, r.target)
	identity := r.identity(mesh.PostgreSQL, host, "127.0.0.1")
	// The user of PostgreSQL must be able to enter the folder.
	data, err := os.MkdirTemp("", "hcpmesh-postgres-")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = os.RemoveAll(data) })
	if err := os.Chmod(data, 0o755); err != nil {
		r.t.Fatal(err)
	}
	database := postgresserver.Database{
		Name:    r.text("postgres", "maestro", "database"),
		Owner:   postgresserver.Role{Name: "maestro_owner", Password: "ownerpassword"},
		Runtime: postgresserver.Role{Name: r.text("maestro", "server", "databaseRole"), Password: "runtimepassword"},
	}
	server, err := postgresserver.Start(r.ctx, postgresserver.Options{
		DataDir: filepath.Join(data, "server"), Throwaway: true, Databases: []postgresserver.Database{database},
		TLS: &postgresserver.TLS{Passwords: true, CertificateFile: filepath.Join(identity, mesh.CertificateFile),
			KeyFile: filepath.Join(identity, mesh.KeyFile), CAFile: filepath.Join(identity, mesh.CAFile)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(server.Kill)
	if err := server.Provision(r.ctx); err != nil {
		r.t.Fatal(err)
	}
	var files []string
	for _, role := range []postgresserver.Role{database.Runtime, database.Owner} {
		location, err := url.Parse(server.URL(database.Name, role))
		if err != nil {
			r.t.Fatal(err)
		}
		if len(files) == 0 {
			local := location.Host
			err := r.cluster.ForwardHost(r.ctx, host, "5432", func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", local)
			})
			if err != nil {
				r.t.Fatal(err)
			}
		}
		location.Host, location.RawQuery = host+":5432", "sslmode=verify-full"
		files = append(files, r.write(role.Name+".url", location.String()))
	}
	return files[0], files[1]
}

// postgresHost is the name of the flexible server of Maestro.
func postgresHost(t *testing.T, target values.Target) string {
	return textOf(t, target, "postgres", "maestro", "server") + ".postgres.database.azure.com"
}

// supply creates what the chart of the Maestro server expects in its namespace.
func (r *region) supply() {
	r.t.Helper()
	const space = "maestro-server"
	key, err := audit.GenerateKey()
	if err != nil {
		r.t.Fatal(err)
	}
	signing := filepath.Join(r.dir, "audit-signing-key")
	if err := key.Create(signing); err != nil {
		r.t.Fatal(err)
	}
	program, owner := r.startDatabase()
	identity := r.identity(mesh.MaestroServer, "maestro-server", "maestro-server.maestro-server.svc")
	pair := map[string]string{"tls.crt": filepath.Join(identity, mesh.CertificateFile), "tls.key": filepath.Join(identity, mesh.KeyFile)}
	r.keep(space, "maestro-server-mqtt-identity", pair)
	r.keep(space, "maestro-server-identity", map[string]string{"tls.crt": pair["tls.crt"], "tls.key": pair["tls.key"], "ca.crt": filepath.Join(identity, mesh.CAFile)})
	r.keep(space, "maestro-server-keys", map[string]string{"audit-signing-key": signing, "database-url": program})
	r.keep(space, "maestro-server-migration-keys", map[string]string{"database-url": owner})
	authorities := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: values.AuthoritiesName}, Data: map[string]string{"region.crt": string(r.authority.CertificatePEM())}}
	if _, err := r.cluster.Client().CoreV1().ConfigMaps(space).Create(r.ctx, authorities, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// applyDefinition installs the CustomResourceDefinition of the kind that charts use on all clusters.
func (r *region) applyDefinition(root string) {
	r.t.Helper()
	command := exec.CommandContext(r.ctx, "go", "mod", "download", "-json", "github.com/prometheus-operator/prometheus-operator")
	command.Dir, command.Env = filepath.Join(root, "tooling/third-party/crds"), append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	output, err := command.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(output, &module); err != nil {
		r.t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"))
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.cluster.Apply(r.ctx, bytes.NewReader(text)); err != nil {
		r.t.Fatal(err)
	}
}

// TestServiceRunsOnNodes installs the Maestro server with its chart on two nodes. PostgreSQL and the broker are outside of the cluster,
// under the names that they have in Azure.
func TestServiceRunsOnNodes(t *testing.T) {
	if !*all {
		t.Skip("it needs the images: make deploy-test runs it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	root, err := chart.Root(workingFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	list, err := imagelist.Load(filepath.Join(imagesDir, "images.json"))
	if err != nil {
		t.Fatal(err)
	}
	configured, err := installation.Target(root, target, list)
	if err != nil {
		t.Fatal(err)
	}
	mqttHost, _, err := net.SplitHostPort(textOf(t, configured, "eventGrid", "mqttAddress"))
	if err != nil {
		t.Fatal(err)
	}
	cluster := startClusterWith(ctx, t, kubernetes.Options{
		Hosts: []string{mqttHost, postgresHost(t, configured)}, StorageClass: textOf(t, configured, "audit", "queueStorageClass"),
		Nodes: []kubernetes.Node{
			{Name: "node-1", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-1"}},
			{Name: "node-2", Labels: map[string]string{"topology.kubernetes.io/zone": "zone-2"}},
		},
	})
	if _, err := installation.PushImages(ctx, cluster, imagesDir, "maestro-server"); err != nil {
		t.Fatal(err)
	}
	r := &region{t: t, ctx: ctx, cluster: cluster, target: configured, dir: t.TempDir()}
	if r.authority, err = mesh.OpenAuthority(filepath.Join(r.dir, "ca"), r.text("trustDomain")); err != nil {
		t.Fatal(err)
	}
	if r.secrets, err = installation.KeepSecrets(ctx, cluster.Client(), slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.secrets.Close() })
	r.applyDefinition(root)
	r.startBroker()

	installer := &installation.Installer{Root: root, Cluster: cluster.Config(), Target: configured, ReadyWithin: 4 * time.Minute, Log: t.Output()}
	began := time.Now()
	if _, err := installer.Install(ctx, "cluster"); err != nil {
		t.Fatal(err)
	}
	r.supply()
	if _, err := installer.Install(ctx, "maestro-server"); err != nil {
		r.printPods()
		t.Fatal(err)
	}
	t.Logf("the Maestro server was ready after %v", time.Since(began).Round(time.Millisecond))
	pods := r.pods()
	nodes := map[string]bool{}
	for _, pod := range pods {
		nodes[pod.Spec.NodeName] = true
	}
	if len(pods) != 2 || len(nodes) != 2 {
		t.Errorf("%d pods on %d nodes, want 2 on 2", len(pods), len(nodes))
	}
	r.registerConsumer(pods)
	r.renewIdentity()

	if result, err := installer.Install(ctx, "maestro-server"); err != nil || result.Changed {
		t.Errorf("a second installation: %+v, %v, want no change", result, err)
	}
}

func workingFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (r *region) pods() []corev1.Pod {
	r.t.Helper()
	list, err := r.cluster.Client().CoreV1().Pods("maestro-server").List(r.ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=maestro-server"})
	if err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// printPods prints the states and logs of all pods of the namespace.
func (r *region) printPods() {
	core := r.cluster.Client().CoreV1()
	list, err := core.Pods("maestro-server").List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Log(err)
		return
	}
	for _, pod := range list.Items {
		output, err := core.Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(r.ctx)
		r.t.Logf("%s: %s %+v\n%s%v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses, output, err)
	}
	events, err := core.Events("maestro-server").List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.t.Log(err)
		return
	}
	for _, event := range events.Items {
		r.t.Logf("%s %s: %s", event.InvolvedObject.Name, event.Reason, event.Message)
	}
}

// registerConsumer registers a consumer through one pod, as hcpctl does, and again through the other, which has the same database. A
// workload that no rule allows is refused.
func (r *region) registerConsumer(pods []corev1.Pod) {
	r.t.Helper()
	post := func(client mesh.Peer, pod corev1.Pod) int {
		identity, err := mesh.LoadIdentity(r.identity(client))
		if err != nil {
			r.t.Fatal(err)
		}
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: identity.ClientTLS(mesh.MaestroServer),
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return r.cluster.Dial(ctx, address) }}
		request, err := http.NewRequestWithContext(r.ctx, http.MethodPost, "https://"+pod.Status.PodIP+":8000/api/maestro/v1/consumers", strings.NewReader(`{"name":"mgmt-1"}`))
		if err != nil {
			r.t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	if status := post(mesh.Hcpctl, pods[0]); status != http.StatusCreated {
		r.t.Errorf("registering a consumer: %d, want 201", status)
	}
	if status := post(mesh.Hcpctl, pods[len(pods)-1]); status != http.StatusConflict {
		r.t.Errorf("registering it again through another pod: %d, want 409", status)
	}
	if status := post(mesh.Admin, pods[0]); status != http.StatusForbidden {
		r.t.Errorf("registering a consumer as admin: %d, want 403", status)
	}
}

// renewIdentity replaces the certificate of the Maestro server, and expects that its Secret follows.
func (r *region) renewIdentity() {
	r.t.Helper()
	identity := r.identity(mesh.MaestroServer, "maestro-server", "maestro-server.maestro-server.svc")
	renewed, err := os.ReadFile(filepath.Join(identity, mesh.CertificateFile))
	if err != nil {
		r.t.Fatal(err)
	}
	eventually.Before(r.ctx, r.t, "the new certificate in the Secret", func() error {
		secret, err := r.cluster.Client().CoreV1().Secrets("maestro-server").Get(r.ctx, "maestro-server-identity", metav1.GetOptions{})
		if err == nil && !bytes.Equal(secret.Data["tls.crt"], renewed) {
			err = fmt.Errorf("the Secret has another certificate")
		}
		return err
	})
}

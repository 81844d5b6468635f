package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/observer"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/wheel"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// hostedServer is the API server of one customer, to be broken.
type hostedServer struct {
	t       *testing.T
	ctx     context.Context
	cluster *adminv1.Cluster
	// dir is the folder of the API server.
	dir string
}

// pid returns the process of the API server.
func (h *hostedServer) pid() int {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.dir, "pid"))
	if err != nil {
		h.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

// holdProbe stops the API server for a time in which monitor's next regular probe arrives.
func (h *hostedServer) holdProbe(hold time.Duration) {
	h.t.Helper()
	const margin = 300 * time.Millisecond
	pid, next := h.pid(), wheel.Next(h.cluster.UID, observer.Interval, time.Now().Add(margin))
	if err := backoff.Sleep(h.ctx, time.Until(next.Add(-margin))); err != nil {
		h.t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(backoff.Sleep(h.ctx, margin+hold), syscall.Kill(pid, syscall.SIGCONT)); err != nil {
		h.t.Fatal(err)
	}
}

// kill ends the API server, and keeps it from being restarted with a folder in place of its log.
func (h *hostedServer) kill() (undo func()) {
	log := filepath.Join(h.dir, "kube-apiserver.log")
	if err := errors.Join(os.Rename(log, log+".aside"), os.Mkdir(log, 0o700), syscall.Kill(h.pid(), syscall.SIGKILL)); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.Remove(log), os.Rename(log+".aside", log)); err != nil {
			h.t.Error(err)
		}
	}
}

// withoutEtcd takes the API server's rights in etcd away.
func (h *hostedServer) withoutEtcd() (undo func()) {
	e := region.Endpoints()
	config, err := e.EtcdTLS.Config()
	if err != nil {
		h.t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Etcd}, TLS: config, DialTimeout: 10 * time.Second})
	if err != nil {
		h.t.Fatal(err)
	}
	users, err := etcd.UserList(h.ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	i := slices.IndexFunc(users.Users, func(user string) bool { return strings.Contains(user, h.cluster.ClusterID) })
	if i < 0 {
		h.t.Fatalf("no user of etcd is of %s: %q", h.cluster.ClusterID, users.Users)
	}
	user := users.Users[i]
	if _, err := etcd.UserRevokeRole(h.ctx, user, user); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		if _, err := etcd.UserGrantRole(context.WithoutCancel(h.ctx), user, user); err != nil {
			h.t.Error(err)
		}
		if err := etcd.Close(); err != nil {
			h.t.Error(err)
		}
	}
}

// expire replaces the serving certificate by an expired one, and makes monitor open a new connection.
func (h *hostedServer) expire() (undo func()) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		h.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(-24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		h.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		h.t.Fatal(err)
	}
	before := map[string][]byte{}
	for name, content := range map[string][]byte{
		"serving.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		"serving.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	} {
		found, err := findFile(h.dir, name)
		if err != nil {
			h.t.Fatal(err)
		}
		if before[found], err = os.ReadFile(found); err == nil {
			err = os.WriteFile(found, content, 0o600)
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return func() {
		for name, content := range before {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				h.t.Error(err)
			}
		}
	}
}

// findFile returns the file with a name below a folder.
func findFile(dir, name string) (found string, err error) {
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == name {
			found = path
		}
		return err
	})
	if err == nil && found == "" {
		err = fmt.Errorf("no file %s is below %s", name, dir)
	}
	return found, err
}

// breakWay makes the HostedCluster report an endpoint at which nothing listens. The API server works.
func (h *hostedServer) breakWay() (undo func()) {
	management := kubectl{t: h.t, kubeconfig: region.Endpoints().Kubeconfigs[h.cluster.ProvisionShard], namespace: h.cluster.Namespace}
	annotate := func(ctx context.Context, fault string) error {
		_, err := management.run(ctx, "annotate", "hostedclusters", "--all", contract.FaultAnnotation+fault)
		return err
	}
	if err := annotate(h.ctx, "="+string(contract.FaultEndpointBroken)); err != nil {
		h.t.Fatal(err)
	}
	return func() {
		if err := annotate(context.WithoutCancel(h.ctx), "-"); err != nil {
			h.t.Error(err)
		}
	}
}

// TestMonitorNamesCauses breaks the APIs of customers in five ways. monitor, its alert, the explanation and the journal name the cause of
// each, and that it ended.
func TestMonitorNamesCauses(t *testing.T) {
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 12*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-0000000000c5", "causes")
	reader := engineer(t, "reader")
	for name, tc := range map[string]struct {
		concern adminv1.HealthConcern
		api     string
		begin   func(*hostedServer) (undo func())
		// during is repeated until the cause is named, and after until the API works again.
		during, after func(*hostedServer)
	}{
		"process": {adminv1.HealthConcern{Kind: "api_unreachable", Summary: "no connection to it can be opened"}, adminv1.HealthUnavailable, (*hostedServer).kill, nil, nil},
		"etcd":    {adminv1.HealthConcern{Kind: "etcd_fails", Summary: "its etcd does not answer"}, adminv1.HealthUnavailable, (*hostedServer).withoutEtcd, nil, nil},
		"certificate": {adminv1.HealthConcern{Kind: "certificate_expired", Summary: "its serving certificate has expired"}, adminv1.HealthUnavailable, (*hostedServer).expire,
			func(h *hostedServer) { h.holdProbe(3500 * time.Millisecond) }, nil},
		"way": {adminv1.HealthConcern{Kind: "way_broken", Summary: "the way to it is broken, and its control plane works"}, adminv1.HealthUnavailable, (*hostedServer).breakWay, nil, nil},
		// Probes are exempt from the API server's own limits: they wait longer.
		"overload": {adminv1.HealthConcern{Kind: "slow", Summary: "it answers slowly"}, adminv1.HealthAvailable, func(*hostedServer) func() { return func() {} },
			func(h *hostedServer) { h.holdProbe(1700 * time.Millisecond) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := c.ClusterID("broken-" + name)
			if _, err := c.Put(ctx, id, c.ClusterBody("broken-"+name)); err != nil {
				t.Fatal(err)
			}
			cluster, err := reader.Cluster(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			folders, err := filepath.Glob(filepath.Join(regionDir, "hosted", cluster.ProvisionShard, "*"+cluster.ClusterID+"*"))
			if err != nil || len(folders) != 1 {
				t.Fatalf("the folders of the API server: %v, %v", folders, err)
			}
			h := &hostedServer{t: t, ctx: ctx, cluster: cluster, dir: folders[0]}
			awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", nil)

			undo := tc.begin(h)
			defer func() { undo() }()
			repeated := func(again func(*hostedServer)) func() {
				return func() {
					if again != nil {
						again(h)
					}
				}
			}
			explained := awaitHealth(t, ctx, reader, id, tc.api, tc.concern.Kind, repeated(tc.during))
			if got := explained.Health.Concerns[0]; got.Summary != tc.concern.Summary || !strings.Contains(strings.Join(strings.Fields(explained.Text()), " "), tc.concern.Summary) {
				t.Errorf("the concern is %+v, and the explanation:\n%s", got, explained.Text())
			}
			labels := concernLabels(t, ctx, cluster.UID)
			if labels["concern"] != tc.concern.Kind || labels["fault"] != "service" {
				t.Errorf("monitor exports the concern %v, want %s", labels, tc.concern.Kind)
			}
			alertFires(t, labels)

			undo()
			undo = func() {}
			awaitHealth(t, ctx, reader, id, adminv1.HealthAvailable, "", repeated(tc.after))
			journal, err := reader.Journal(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, event := range []string{adminv1.JournalConcernBegan, adminv1.JournalConcernEnded} {
				if !slices.ContainsFunc(journal.Items, func(e adminv1.JournalEntry) bool { return e.Event == event && e.Kind == tc.concern.Kind }) {
					t.Errorf("the journal has no %s %s: %+v", event, tc.concern.Kind, journal.Items)
				}
			}
			if err := c.Delete(ctx, id); err != nil {
				t.Fatal(err)
			}
			awaitNotMonitored(t, ctx, cluster.UID)
		})
	}
}

// awaitHealth waits until the explanation of a cluster has a state of its API and a concern, or none. again runs before each attempt.
func awaitHealth(t *testing.T, ctx context.Context, reader *adminclient.Client, id, api, concern string, again func()) *adminv1.Explanation {
	t.Helper()
	var explained *adminv1.Explanation
	eventually.Before(ctx, t, fmt.Sprintf("the API is %s with the concern %q", api, concern), func() (err error) {
		if again != nil {
			again()
		}
		if explained, err = reader.Explanation(ctx, id); err != nil {
			return err
		}
		got := ""
		if h := explained.Health; h != nil && len(h.Concerns) > 0 {
			got = h.Concerns[0].Kind
		}
		if explained.Health == nil || explained.Health.API != api || got != concern {
			return fmt.Errorf("monitor states %+v", explained.Health)
		}
		return nil
	})
	return explained
}

// concernLabels returns the labels of the first concern that monitor exports for a cluster.
func concernLabels(t *testing.T, ctx context.Context, uid string) map[string]string {
	t.Helper()
	for _, metric := range scrape(t, ctx, region.Endpoints().Ops["monitor"])["monitor_cluster_concern"].GetMetric() {
		if labels := labelsOf(metric); labels["cluster_uid"] == uid {
			return labels
		}
	}
	return nil
}

func labelsOf(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// alertFires checks with promtool that the alert of concerns fires for a series after half an hour, and names the concern. Without
// promtool it checks nothing.
func alertFires(t *testing.T, labels map[string]string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := os.Getenv("HCPMESH_OBSERVABILITY")
	if folder == "" {
		folder = filepath.Join(root, ".build", "third-party", "observability")
	}
	promtool := filepath.Join(folder, "promtool")
	if _, err := os.Stat(promtool); err != nil {
		t.Log("promtool is not built: the alert is not evaluated; make alerts-test builds it")
		return
	}
	file := filepath.Join(t.TempDir(), "concern.yaml")
	test := fmt.Sprintf(`rule_files: [%q]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - series: monitor_cluster_concern{cluster_uid=%q,concern=%q,fault=%q}
    values: "0x40"
  promql_expr_test:
  - expr: ALERTS{alertname="ClustersWithConcern",alertstate="firing"}
    eval_time: 32m
    exp_samples:
    - labels: ALERTS{alertname="ClustersWithConcern",alertstate="firing",concern=%q,severity="ticket"}
      value: 1
`, filepath.Join(root, "monitor/deploy/alerts/hosted-apis.rules.yaml"), labels["cluster_uid"], labels["concern"], labels["fault"], labels["concern"])
	if err := os.WriteFile(file, []byte(test), 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("the alert of the series %v: %v\n%s", labels, err, output)
	}
}

package logforwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/rotatedlog"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/leaktest"
	"github.com/hcpmesh/hcpmesh/internal/testing/logtest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/arm"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		runChild(text)
	}
	os.Exit(leaktest.Check(m.Run()))
}

// The principals and the subscription of the tests.
const (
	forwarderID  = "5e000000-0000-4000-8000-000000000001"
	customerID   = "c0000000-0000-4000-8000-000000000002"
	subscription = "11111111-1111-1111-1111-111111111111"
	group        = "/subscriptions/" + subscription + "/resourceGroups/logs"
	armAudience  = "https://management.azure.com"
	blobAudience = "https://storage.azure.com"
)

// world has an emulated Azure with a customer, and the logs of control planes.
type world struct {
	t             *testing.T
	azure         *emulatortest.Azure
	hosted, state string
	// transport, if set, is asked before each request of the forwarder.
	transport policy.Transporter
	reports   reports
	// reportAfter is Options.ReportAfter.
	reportAfter time.Duration
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldAt(t, t.TempDir())
}

// newAuditWorld returns a world in which the audit log of cluster a is delivered to account one.
func newAuditWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.createAccount("one")
	w.set("a", "audit", to("one", customerlog.KubeAudit))
	return w
}

// newWorldAt returns a world with its state folder below dir.
func newWorldAt(t *testing.T, dir string) *world {
	t.Helper()
	w := &world{t: t, hosted: filepath.Join(t.TempDir(), "hosted"), state: filepath.Join(dir, "state")}
	role := customerlog.ForwarderRole()
	seed := emulatortest.Seed("example.com")
	seed.Roles = []rbac.Role{{ID: role.ID, Name: role.Name, Actions: role.Actions, DataActions: role.DataActions}}
	seed.Assignments = []arm.SeedAssignment{
		{PrincipalID: forwarderID, Role: role.ID, Scope: "/subscriptions/" + subscription},
		{PrincipalID: customerID, Role: arm.OwnerRole, Scope: "/subscriptions/" + subscription},
		{PrincipalID: customerID, Role: arm.BlobDataContributorRole, Scope: "/subscriptions/" + subscription},
	}
	w.azure = must.Get(emulatortest.Start(emulator.Options{DataDir: t.TempDir(), Seed: seed}))(t)
	t.Cleanup(func() {
		if err := w.azure.Close(); err != nil {
			t.Error(err)
		}
	})
	must.Do(t, os.Mkdir(w.hosted, 0o700))
	w.request("PUT", armAudience, group+"?api-version=2021-04-01", `{"location":"westus3"}`, http.StatusCreated)
	return w
}

// request sends a request as the customer and returns the body of the response.
func (w *world) request(method, audience, path, body string, wanted ...int) string {
	w.t.Helper()
	status, text, err := w.send(method, audience, path, body)
	if err != nil || !slices.Contains(wanted, status) {
		w.t.Fatalf("%s %s: %d %s, %v", method, path, status, text, err)
	}
	return text
}

func (w *world) send(method, audience, path, body string) (status int, text string, err error) {
	return w.azure.Send(context.Background(), w.azure.Tokens.Principal(customerID), audience, method, path, body)
}

func accountID(name string) string {
	return group + "/providers/Microsoft.Storage/storageAccounts/" + name
}
func clusterID(name string) string {
	return group + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters/" + name
}

// createAccount creates a storage account.
func (w *world) createAccount(name string) {
	w.t.Helper()
	w.request("PUT", armAudience, accountID(name)+"?api-version=2023-05-01", `{"location":"westus3"}`, http.StatusCreated)
}

func (w *world) deleteAccount(name string) {
	w.t.Helper()
	w.request("DELETE", armAudience, accountID(name)+"?api-version=2023-05-01", "", http.StatusOK)
}

// set writes a diagnostic setting of a cluster.
func (w *world) set(cluster, setting string, properties customerlog.SettingProperties) {
	w.t.Helper()
	body := must.Get(json.Marshal(customerlog.Setting{Properties: properties}))(w.t)
	w.request("PUT", armAudience, clusterID(cluster)+"/providers/Microsoft.Insights/diagnosticSettings/"+setting+"?api-version=2021-05-01-preview", string(body), http.StatusCreated, http.StatusOK)
}

// remove deletes a diagnostic setting of a cluster.
func (w *world) remove(cluster, setting string) {
	w.t.Helper()
	w.request("DELETE", armAudience, clusterID(cluster)+"/providers/Microsoft.Insights/diagnosticSettings/"+setting+"?api-version=2021-05-01-preview", "", http.StatusOK)
}

// to returns properties that deliver categories to an account.
func to(account string, categories ...customerlog.Category) customerlog.SettingProperties {
	p := customerlog.SettingProperties{StorageAccountID: accountID(account)}
	for _, c := range categories {
		p.Logs = append(p.Logs, customerlog.LogSelection{Category: string(c), Enabled: true})
	}
	return p
}

// write appends lines to a log of a control plane.
func (w *world) write(controlPlane, file string, lines ...string) {
	w.t.Helper()
	dir := filepath.Join(w.hosted, controlPlane)
	must.Do(w.t, os.MkdirAll(dir, 0o700))
	log := must.Get(os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(w.t)
	_, err := log.WriteString(strings.Join(lines, "\n") + "\n")
	must.Do(w.t, errors.Join(err, log.Close()))
}

// size returns the size of a log of a control plane.
func (w *world) size(controlPlane, file string) int64 {
	w.t.Helper()
	info := must.Get(os.Stat(filepath.Join(w.hosted, controlPlane, file)))(w.t)
	return info.Size()
}

// rotate renames the audit log of a control plane, as an API server does.
func (w *world) rotate(controlPlane string, n int) {
	w.t.Helper()
	must.Do(w.t, os.Rename(filepath.Join(w.hosted, controlPlane, auditFile), w.backup(controlPlane, n)))
}

func (w *world) backup(controlPlane string, n int) string {
	return filepath.Join(w.hosted, controlPlane, fmt.Sprintf("audit-2026-03-01T08-00-%02d.000.log", n))
}

// event returns an audit event.
func event(id, verb string) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":%q,"stage":"ResponseComplete","verb":%q,"user":{"username":"ada"},"objectRef":{"resource":"pods"},"stageTimestamp":"2026-03-01T08:30:00.123456Z"}`, id, verb)
}

func events(from, to int) []string {
	var lines []string
	for i := from; i < to; i++ {
		lines = append(lines, event(fmt.Sprint(i), "create"))
	}
	return lines
}

func ids(from, to int) []string {
	var all []string
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprint(i))
	}
	return all
}

// forwarder is a running Forwarder.
type forwarder struct {
	*Forwarder
	registry *prometheus.Registry
	logs     *logtest.Log
	stop     func()
}

// start starts a forwarder of the control planes with names, which are also those of their clusters.
func (w *world) start(names ...string) *forwarder {
	w.t.Helper()
	registry, logs := prometheus.NewRegistry(), &logtest.Log{}
	options := w.options(registry, slog.New(slog.NewTextHandler(logs, nil)))
	f := must.Get(New(options))(w.t)
	for _, name := range names {
		f.Set(ControlPlane{Name: name, UID: "uid-" + name, ResourceID: clusterID(name), HostedCluster: "clusters/" + name})
	}
	must.Do(w.t, f.Prune())
	ctx, cancel := context.WithCancel(w.t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		if err := f.Run(ctx); err != nil {
			w.t.Error(err)
		}
	})
	running := &forwarder{f, registry, logs, sync.OnceFunc(func() { cancel(); group.Wait() })}
	w.t.Cleanup(running.stop)
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Log(logs.String())
		}
	})
	return running
}

func (w *world) options(registry prometheus.Registerer, log *slog.Logger) Options {
	transport := w.transport
	if transport == nil {
		transport = w.azure.HTTP()
	}
	return Options{HostedDir: w.hosted, StateDir: w.state, Location: "westus3", SettingsAge: 200 * time.Millisecond, FlushInterval: time.Millisecond, Metrics: registry, Log: log,
		Reports: &w.reports, ReportAfter: w.reportAfter,
		Azure: Azure{ResourceManager: w.azure.URL, BlobURL: w.azure.URL + "/" + accountVariable, Credential: w.azure.Tokens.Principal(forwarderID), Transport: transport}}
}

// metric returns the sum of a metric's series that have a value of a label, or of its only series without labels.
func (f *forwarder) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families := must.Get(f.registry.Gather())(t)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		sum, found := 0.0, false
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 0 && label == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				sum, found = sum+value(m), true
			}
		}
		if found {
			return sum
		}
	}
	t.Fatalf("no metric %s with %q", name, label)
	return 0
}

func value(m *dto.Metric) float64 {
	if m.GetCounter() != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

// record is a record of a customer's blob.
type record struct {
	Time, ResourceID, Category string
	Properties                 struct{ Raw string }
}

// delivered returns the records of a category in an account, in their order. Each line must be a record of the cluster.
func (w *world) delivered(account string, category customerlog.Category, cluster string) ([]record, error) {
	status, text, err := w.send("GET", blobAudience, "/"+account+"/"+category.Container()+"?restype=container&comp=list", "")
	if err != nil || status == http.StatusNotFound {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("listing: %d %s", status, text)
	}
	var all []record
	for _, part := range strings.Split(text, "<Name>")[1:] {
		name, _, _ := strings.Cut(part, "</Name>")
		if !strings.HasPrefix(name, "resourceId="+strings.ToUpper(clusterID(cluster))+"/y=") {
			continue
		}
		status, content, err := w.send("GET", blobAudience, "/"+account+"/"+category.Container()+"/"+name, "")
		if err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("reading: %d %s %w", status, content, err)
		}
		for line := range strings.Lines(content) {
			var r record
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				return nil, fmt.Errorf("%q is not a record: %w", line, err)
			}
			if r.ResourceID != strings.ToUpper(clusterID(cluster)) || r.Category != string(category) {
				return nil, fmt.Errorf("a record of another cluster or category: %+v", r)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// auditIDs returns the IDs of the events that were delivered.
func (w *world) auditIDs(account string, category customerlog.Category, cluster string) ([]string, error) {
	records, err := w.delivered(account, category, cluster)
	var all []string
	for _, r := range records {
		var e struct{ AuditID string }
		if err := json.Unmarshal([]byte(r.Properties.Raw), &e); err != nil {
			return nil, err
		}
		all = append(all, e.AuditID)
	}
	return all, err
}

// await waits until exactly these events are delivered in this order.
func (w *world) await(account string, category customerlog.Category, cluster string, want ...string) {
	w.t.Helper()
	eventually.Soon(w.t, "the events are delivered", func() error {
		got, err := w.auditIDs(account, category, cluster)
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("delivered %d %q, want %d %q, %v", len(got), got, len(want), want, err)
		}
		return nil
	})
}

// awaitAll waits until these events are delivered, in their order if repetitions are ignored.
func (w *world) awaitAll(account string, category customerlog.Category, cluster string, want ...string) {
	w.t.Helper()
	eventually.Soon(w.t, "all events are delivered", func() error {
		got, err := w.auditIDs(account, category, cluster)
		if err != nil {
			return err
		}
		if got = distinct(got); !slices.Equal(got, want) {
			return fmt.Errorf("delivered %d events, want %d", len(got), len(want))
		}
		return nil
	})
}

// distinct returns all without the repetitions of earlier elements.
func distinct(all []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(id string) bool { again := seen[id]; seen[id] = true; return again })
}

// fail injects a fault and returns a function that ends it.
func (w *world) fail(rule faults.Rule) (end func()) {
	w.t.Helper()
	id := must.Get(w.azure.Faults().Add(rule))(w.t)
	return func() { w.azure.Faults().Remove(id) }
}

// awaitMetric waits until a metric has at least a value.
func (f *forwarder) awaitMetric(t *testing.T, name, label string, atLeast float64) {
	t.Helper()
	eventually.Soon(t, name+" "+label, func() error {
		if got := f.metric(t, name, label); got < atLeast {
			return fmt.Errorf("it is %v, want %v", got, atLeast)
		}
		return nil
	})
}

// awaitPosition waits until the position of a stream is stored. The storage has the lines earlier.
func (f *forwarder) awaitPosition(t *testing.T, key streamKey, offset int64) {
	t.Helper()
	eventually.Soon(t, "the position is stored", func() error {
		at, err := rotatedlog.Load(filepath.Join(f.stateDir(key.controlPlane), key.setting, string(key.category)+".json"))
		if err == nil && at.Offset != offset {
			err = fmt.Errorf("it is %d, want %d", at.Offset, offset)
		}
		return err
	})
}

// transport is a policy.Transporter that a test controls.
type transport func(*http.Request) (*http.Response, error)

func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

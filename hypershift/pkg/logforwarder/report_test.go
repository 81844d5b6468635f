package logforwarder

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi/kubeapitest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// reports is a ReportWriter in memory. Its writes fail while failing is set.
type reports struct {
	mu      sync.Mutex
	failing bool
	writes  int
	all     map[string]string
}

func (r *reports) Update(_ context.Context, hostedCluster string, next func(*hostedreport.LogReport) *hostedreport.LogReport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failing {
		return errors.New("the management cluster is away")
	}
	text := ""
	if report := next(hostedreport.DecodeLogs(r.all[hostedCluster])); report != nil {
		var err error
		if text, err = report.Encode(); err != nil {
			return err
		}
	}
	if text != r.all[hostedCluster] {
		r.writes++
	}
	if r.all == nil {
		r.all = map[string]string{}
	}
	r.all[hostedCluster] = text
	return nil
}

func (r *reports) of(name string) *hostedreport.LogReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	return hostedreport.DecodeLogs(r.all["clusters/"+name])
}

func (r *reports) fail(failing bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = failing
}

// awaitReport waits until the report about a cluster has these failures, by setting and reason, and returns it.
func (w *world) awaitReport(name string, settings int, failures map[string]string) (report *hostedreport.LogReport) {
	w.t.Helper()
	eventually.Soon(w.t, "the report has the failures", func() error {
		report = w.reports.of(name)
		if report == nil {
			return errors.New("there is no report")
		}
		got := map[string]string{}
		for _, f := range report.Failures {
			got[f.Setting] = f.Reason
		}
		if diff := cmp.Diff(failures, got); diff != "" || report.Settings != settings {
			return fmt.Errorf("%d settings, failures (-want +got):\n%s", report.Settings, diff)
		}
		return nil
	})
	return report
}

// awaitSettings writes events of a cluster until the report about it has a number of settings: settings are read again with a new line only.
func (w *world) awaitSettings(name string, settings int) {
	w.t.Helper()
	eventually.Soon(w.t, "the settings are read again", func() error {
		w.write(name, auditFile, event("more", "get"))
		if report := w.reports.of(name); report == nil && settings > 0 || report != nil && report.Settings != settings {
			return fmt.Errorf("the report is %+v", report)
		}
		return nil
	})
}

// TestFailuresAreReported: the report has the settings whose logs do not arrive, until the logs arrive.
func TestFailuresAreReported(t *testing.T) {
	t.Parallel()
	began := time.Now()
	w := newWorld(t)
	w.reportAfter = 100 * time.Millisecond
	w.createAccount("one")
	w.createAccount("two")
	w.set("a", "audit", to("one", customerlog.KubeAudit, customerlog.KubeAPIServer))
	w.set("a", "second", to("two", customerlog.KubeAudit))
	w.set("a", "workspace", customerlog.SettingProperties{WorkspaceID: "/subscriptions/x", Logs: []customerlog.LogSelection{{CategoryGroup: "allLogs", Enabled: true}}})
	w.write("a", auditFile, events(0, 3)...)
	w.deleteAccount("one")
	w.start("a", "b")
	report := w.awaitReport("a", 3, map[string]string{"audit": "MisdirectedRequest", "workspace": hostedreport.LogDestinationUnsupported})
	if f := report.Failures[0]; f.Account != "one" || f.Fault != hostedreport.LogFaultCustomer || f.Since.Before(began.Truncate(time.Second)) || f.Since.After(time.Now()) {
		t.Errorf("%+v", f)
	}
	w.createAccount("one")
	w.awaitReport("a", 3, map[string]string{"workspace": hostedreport.LogDestinationUnsupported})
	w.remove("a", "workspace")
	w.awaitSettings("a", 2)
	w.awaitReport("a", 2, map[string]string{})
	end := w.fail(faults.Rule{Services: []string{"blob"}, Methods: []string{"PUT"}, Status: 503, Code: "ServerBusy"})
	w.write("a", auditFile, event("last", "get"))
	if f := w.awaitReport("a", 2, map[string]string{"audit": "ServerBusy", "second": "ServerBusy"}).Failures[0]; f.Fault != hostedreport.LogFaultAzure {
		t.Errorf("%+v", f)
	}
	end()
	w.reports.fail(true)
	w.awaitAll("two", customerlog.KubeAudit, "a", "0", "1", "2", "more", "last")
	w.reports.fail(false)
	w.awaitReport("a", 2, map[string]string{})
	w.remove("a", "audit")
	w.remove("a", "second")
	w.awaitSettings("a", 0)
	if report := w.reports.of("b"); report != nil {
		t.Errorf("a cluster without settings: %+v", report)
	}
}

// TestReportedFailuresSurviveRestart: a failure that was reported before a restart stays reported with its beginning, until the logs arrive.
func TestReportedFailuresSurviveRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reportAfter = 100 * time.Millisecond
	w.createAccount("one")
	w.set("a", "audit", to("one", customerlog.KubeAudit))
	w.write("a", auditFile, event("1", "get"))
	w.deleteAccount("one")
	f := w.start("a")
	before := w.awaitReport("a", 1, map[string]string{"audit": "MisdirectedRequest"})
	f.stop()
	w.reportAfter = time.Hour
	writes := w.reports.writes
	f = w.start("a")
	f.awaitMetric(t, "customer_logs_appends_total", "customer", 2)
	if diff := cmp.Diff(before, w.reports.of("a")); diff != "" || w.reports.writes != writes {
		t.Errorf("the report has changed: %s", diff)
	}
	w.createAccount("one")
	w.awaitReport("a", 1, map[string]string{})
}

// TestPatience: a failure is reported when its oldest line has the age, and not before. What is not known remains as it was reported.
func TestPatience(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	start := now
	var due []time.Duration
	d := newDeliveries(func() time.Time { return now }, 5*time.Minute, func(_ string, after time.Duration) { due = append(due, after) })
	audit, text := streamKey{"a", "folder", customerlog.KubeAudit}, streamKey{"a", "folder", customerlog.KubeAPIServer}
	reported := &hostedreport.LogReport{Settings: 1}
	if got := d.report("a", reported); got != reported {
		t.Errorf("settings are not known: %+v", got)
	}
	d.add(audit)
	d.add(text)
	d.selected("a", map[string]selection{"folder": {setting: "s", account: "one"}})
	old := hostedreport.LogFailure{Setting: "s", Account: "one", Fault: hostedreport.LogFaultAzure, Reason: "Timeout", Since: now.Add(-time.Hour)}
	expect := func(reason string, reported []hostedreport.LogFailure, want ...hostedreport.LogFailure) {
		t.Helper()
		got := d.report("a", &hostedreport.LogReport{Settings: 1, Failures: reported})
		if diff := cmp.Diff(want, got.Failures); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	expect("no stream has ended an attempt", []hostedreport.LogFailure{old}, old)
	other := old
	other.Account = "two"
	expect("the report is about another account", []hostedreport.LogFailure{other})
	d.delivered(text)
	d.begin(audit)
	now = now.Add(time.Minute)
	expect("a stream has not ended an attempt", []hostedreport.LogFailure{old}, old)
	due = nil
	d.failed(audit, hostedreport.LogFaultCustomer, "AccountNotFound")
	d.failed(audit, hostedreport.LogFaultCustomer, "AccountNotFound")
	if diff := cmp.Diff([]time.Duration{4 * time.Minute}, due); diff != "" {
		t.Errorf("the next report (-want +got):\n%s", diff)
	}
	next := hostedreport.LogFailure{Setting: "s", Account: "one", Fault: hostedreport.LogFaultCustomer, Reason: "AccountNotFound", Since: start}
	now = start.Add(5*time.Minute - time.Nanosecond)
	due = nil
	expect("the line is too young", nil)
	if diff := cmp.Diff([]time.Duration{time.Nanosecond}, due); diff != "" {
		t.Errorf("the report after one that is too early (-want +got):\n%s", diff)
	}
	now = start.Add(5 * time.Minute)
	expect("the line is old enough", nil, next)
	earlier := next
	earlier.Since = old.Since
	expect("a known failure has another reason", []hostedreport.LogFailure{old}, earlier)
	d.delivered(audit)
	expect("all is delivered", []hostedreport.LogFailure{old})
	d.selected("a", nil)
	if got := d.report("a", reported); got != nil {
		t.Errorf("no settings: %+v", got)
	}
}

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

func dynamicOf(t *testing.T, kubeconfig string) dynamic.Interface {
	t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
	client := must.Get(dynamic.NewForConfig(config))(t)
	return client
}

// createObject creates an object when the API server serves its kind.
func createObject(t *testing.T, client dynamic.Interface, resource schema.GroupVersionResource, namespace, text string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	must.Do(t, json.Unmarshal([]byte(text), &object.Object))
	eventually.Soon(t, "the object is created", func() error {
		_, err := client.Resource(resource).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
		return err
	})
}

// TestReportsAreAnnotations writes reports to a real API server with the rights of the forwarder.
func TestReportsAreAnnotations(t *testing.T) {
	t.Parallel()
	cluster := kubeapitest.Start(t)
	admin := dynamicOf(t, cluster.Kubeconfig())
	createObject(t, admin, definitions, "", kubeapitest.HostedClusters)
	createObject(t, admin, hostedClusters, "default", `{"apiVersion":"hypershift.openshift.io/v1beta1","kind":"HostedCluster","metadata":{"name":"hc","annotations":{"kept":"yes"}},"spec":{"x":"y"}}`)
	limited := must.Get(clientcmd.BuildConfigFromFlags("", cluster.ForwarderKubeconfig(t)))(t)
	management := must.Get(metadata.NewForConfig(limited))(t)
	writer := annotations{management}
	var seen, next *hostedreport.LogReport
	update := func(name string) {
		t.Helper()
		must.Do(t, writer.Update(t.Context(), "default/"+name, func(current *hostedreport.LogReport) *hostedreport.LogReport { seen = current; return next }))
	}
	for _, report := range []*hostedreport.LogReport{
		nil,
		{Settings: 2, Failures: []hostedreport.LogFailure{{Setting: "audit", Account: "one", Fault: hostedreport.LogFaultCustomer, Reason: "AccountNotFound", Since: time.Unix(1700000000, 0).UTC()}}},
		{Settings: 1},
		nil,
	} {
		before := next
		next = report
		update("hc")
		if diff := cmp.Diff(before, seen); diff != "" {
			t.Errorf("the report before (-want +got):\n%s", diff)
		}
		hc := must.Get(admin.Resource(hostedClusters).Namespace("default").Get(t.Context(), "hc", metav1.GetOptions{}))(t)
		version := hc.GetResourceVersion()
		if diff := cmp.Diff(report, hostedreport.DecodeLogs(hc.GetAnnotations()[hostedreport.LogAnnotation])); diff != "" || hc.GetAnnotations()["kept"] != "yes" {
			t.Errorf("the annotations are %v: %s", hc.GetAnnotations(), diff)
		}
		update("hc")
		if hc = must.Get(admin.Resource(hostedClusters).Namespace("default").Get(t.Context(), "hc", metav1.GetOptions{}))(t); hc.GetResourceVersion() != version {
			t.Error("the same report was written again")
		}
	}
	update("missing")
}

package logforwarder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
)

func TestCategoriesAreDeliveredToTheirContainers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createAccount("one")
	w.set("a", "all", to("one", customerlog.KubeAudit, customerlog.KubeAuditAdmin, customerlog.KubeAPIServer, customerlog.KubeScheduler))
	w.write("a", auditFile, event("1", "get"), event("2", "create"), event("3", "watch"), event("4", "delete"))
	w.write("a", apiServerFile, "I0301 08:30:00 starting", "", "panic: \x00\xff")
	w.write("b", auditFile, event("other", "create")) // no settings
	f := w.start("a", "b")
	w.await("one", customerlog.KubeAudit, "a", "1", "2", "3", "4")
	w.await("one", customerlog.KubeAuditAdmin, "a", "2", "4")
	w.write("a", auditFile, event("5", "patch"))
	w.await("one", customerlog.KubeAudit, "a", "1", "2", "3", "4", "5")
	w.await("one", customerlog.KubeAuditAdmin, "a", "2", "4", "5")
	eventually.Soon(t, "lines of text are delivered", func() error {
		records, err := w.delivered("one", customerlog.KubeAPIServer, "a")
		if err != nil || len(records) != 2 || records[0].Properties.Raw != "I0301 08:30:00 starting" || records[1].Properties.Raw != "panic: \x00\uFFFD" {
			return fmt.Errorf("%+v, %w", records, err)
		}
		return nil
	})
	records, err := w.delivered("one", customerlog.KubeAudit, "a")
	if err != nil || records[0].Time != "2026-03-01T08:30:00.1234560Z" {
		t.Errorf("%+v, %v", records[0], err)
	}
	if records, err := w.delivered("one", customerlog.KubeScheduler, "a"); err != nil || len(records) > 0 {
		t.Errorf("a category without a source: %v, %v", records, err)
	}
	if got := f.metric(t, "customer_logs_records_total", "kube-audit"); got != 5 {
		t.Errorf("%v records", got)
	}
}

// TestRotationsWhileStopped: each line is delivered once, across restarts and rotations.
func TestRotationsWhileStopped(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.write("a", auditFile, event("1", "get"))
	f := w.start("a")
	w.await("one", customerlog.KubeAudit, "a", "1")
	w.write("a", auditFile, event("2", "get"))
	w.rotate("a", 1)
	w.write("a", auditFile, event("3", "get"))
	w.await("one", customerlog.KubeAudit, "a", "1", "2", "3")
	f.stop()
	w.write("a", auditFile, event("4", "get"))
	w.rotate("a", 2)
	w.write("a", auditFile, event("5", "get"))
	w.rotate("a", 3)
	w.write("a", auditFile, event("6", "get"))
	f = w.start("a")
	w.await("one", customerlog.KubeAudit, "a", "1", "2", "3", "4", "5", "6")
	if got := f.metric(t, "customer_logs_gaps_total", gapRotated); got != 0 {
		t.Errorf("%v gaps", got)
	}
}

// TestStorageFailuresLoseNothing: while the storage fails, a stream keeps its position and reports whose fault it is. Afterwards it delivers
// everything, in order. Only a lost response repeats lines.
func TestStorageFailuresLoseNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule  faults.Rule
		fault string
	}{
		"forbidden":       {faults.Rule{Status: 403, Code: "AuthorizationFailure"}, "customer"},
		"account missing": {faults.Rule{Status: 404, Code: "ResourceNotFound"}, "customer"},
		"immutable":       {faults.Rule{Status: 409, Code: "BlobImmutableDueToPolicy"}, "customer"},
		"throttled":       {faults.Rule{Status: 429, Code: "TooManyRequests"}, "azure"},
		"busy":            {faults.Rule{Status: 503, Code: "ServerBusy"}, "azure"},
		"token refused":   {faults.Rule{Status: 401, Code: "InvalidAuthenticationInfo"}, "service"},
		"lost request":    {faults.Rule{DropRequest: true}, "azure"},
		"lost response":   {faults.Rule{DropResponse: true}, "azure"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newAuditWorld(t)
			w.write("a", auditFile, events(0, 10)...)
			rule := c.rule
			rule.Services, rule.Methods = []string{"blob"}, []string{"PUT"}
			end := w.fail(rule)
			f := w.start("a")
			f.awaitMetric(t, "customer_logs_appends_total", c.fault, 1)
			f.awaitMetric(t, "customer_logs_waiting_seconds", c.fault, 0.001)
			for _, other := range []string{"azure", "customer", "service"} {
				if got := f.metric(t, "customer_logs_waiting_seconds", other); other != c.fault && got != 0 {
					t.Errorf("waiting because of %s: %v", other, got)
				}
			}
			w.write("a", auditFile, events(10, 20)...)
			end()
			w.awaitAll("one", customerlog.KubeAudit, "a", ids(0, 20)...)
			eventually.Soon(t, "nothing waits", func() error {
				if got := f.metric(t, "customer_logs_waiting_seconds", c.fault); got != 0 {
					return fmt.Errorf("%v seconds", got)
				}
				return nil
			})
			if got := f.metric(t, "customer_logs_poisoned_total", reasonRefused); got != 0 {
				t.Errorf("%v lines were poisoned", got)
			}
			if strings.Contains(f.logs.String(), "ada") {
				t.Error("the forwarder logged a line of the customer")
			}
		})
	}
}

// TestOneCustomerDoesNotDelayAnother: the account of one cluster responds to nothing, and that of another was deleted. A third gets its lines.
func TestOneCustomerDoesNotDelayAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan struct{})
	var hanging atomic.Int32
	w.transport = transport(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/slow/") {
			hanging.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return w.azure.HTTP().Do(r)
	})
	for _, name := range []string{"slow", "gone", "good"} {
		w.createAccount(name)
		w.set(name, "audit", to(name, customerlog.KubeAudit))
		w.write(name, auditFile, event("1", "get"))
	}
	w.deleteAccount("gone")
	f := w.start("slow", "gone", "good")
	eventually.Soon(t, "a request hangs", func() error {
		if hanging.Load() == 0 {
			return fmt.Errorf("no request")
		}
		return nil
	})
	f.awaitMetric(t, "customer_logs_appends_total", "customer", 1)
	for i := range 20 {
		w.write("good", auditFile, event(fmt.Sprint(i), "create"))
		w.await("good", customerlog.KubeAudit, "good", append([]string{"1"}, ids(0, i+1)...)...)
	}
	w.createAccount("gone")
	close(release)
	w.await("gone", customerlog.KubeAudit, "gone", "1")
	w.await("slow", customerlog.KubeAudit, "slow", "1")
}

// TestFullQueueIsTheLog: while an account refuses everything, the forwarder reads no further. The control plane removes files at last, and the
// forwarder reports that lines are missing.
func TestFullQueueIsTheLog(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	var sent atomic.Int64
	w.transport = transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("comp") == "appendblock" {
			sent.Store(max(sent.Load(), r.ContentLength))
		}
		return w.azure.HTTP().Do(r)
	})
	end := w.fail(faults.Rule{Services: []string{"blob"}, Status: 403, Code: "AuthorizationFailure"})
	for i := range 4 { // more than 4 batches
		w.write("a", auditFile, events(i*1000, (i+1)*1000)...)
	}
	f := w.start("a")
	f.awaitMetric(t, "customer_logs_appends_total", "customer", 1)
	if got := sent.Load(); got == 0 || got > 2*batchBytes {
		t.Errorf("an append of %d bytes", got)
	}
	w.rotate("a", 1)
	w.write("a", auditFile, event("second", "get"))
	w.rotate("a", 2)
	w.write("a", auditFile, event("third", "get"))
	must.Do(t, os.Remove(w.backup("a", 1)))
	end()
	// The file that the forwarder has open is delivered, although it was removed.
	w.awaitAll("one", customerlog.KubeAudit, "a", append(ids(0, 4000), "second", "third")...)
	if got := f.metric(t, "customer_logs_gaps_total", gapRotated); got != 1 {
		t.Errorf("%v gaps, want 1: the reader cannot exclude a file between the two", got)
	}
	if got := f.metric(t, "customer_logs_gaps_total", "customer"); got != 1 {
		t.Errorf("%v gaps are the customer's fault", got)
	}
}

// TestPoisonedLinesDoNotStopTheOthers: lines that are not audit events, that are too long, or that the storage refuses permanently.
func TestPoisonedLinesDoNotStopTheOthers(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.transport = transport(func(r *http.Request) (*http.Response, error) {
		if r.URL.Query().Get("comp") != "appendblock" {
			return w.azure.HTTP().Do(r)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(body, []byte("refuse-me")) {
			return &http.Response{StatusCode: http.StatusRequestEntityTooLarge, Header: http.Header{"X-Ms-Error-Code": {"RequestBodyTooLarge"}}, Body: http.NoBody, Request: r}, nil
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		return w.azure.HTTP().Do(r)
	})
	hostile := []string{
		"not JSON", `{"kind":"Event"`, `[]`, `{"kind":"Other","auditID":"x","verb":"get"}`, strings.Repeat("[", 100000), "\x00\xff\xfe", `"string"`, `{"kind":"Event","auditID":7,"verb":"get"}`,
		strings.Repeat("x", maxLine+1),
		event("refuse-me", "create"),
		`{"kind":"Event","auditID":"huge","verb":"get","a":"` + strings.Repeat("\x7f", maxLine) + `"}`,
	}
	lines := events(0, 5)
	for i, line := range hostile {
		lines = append(append(lines, line), events(5*(i+1), 5*(i+2))...)
	}
	w.write("a", auditFile, lines...)
	f := w.start("a")
	w.await("one", customerlog.KubeAudit, "a", ids(0, 5*(len(hostile)+1))...)
	var total float64
	for _, reason := range []string{reasonNotJSON, reasonTooLarge, reasonRefused} {
		total += f.metric(t, "customer_logs_poisoned_total", reason)
	}
	if total != float64(len(hostile)) || f.metric(t, "customer_logs_poisoned_total", reasonTooLarge) != 2 || f.metric(t, "customer_logs_poisoned_total", reasonRefused) != 1 {
		t.Errorf("%v lines were poisoned, want %d", total, len(hostile))
	}
	f.stop()
	text := must.Get(os.ReadFile(filepath.Join(w.state, "a", PoisonFile)))(t)
	var entries []Poisoned
	for line := range bytes.Lines(text) {
		var entry Poisoned
		must.Do(t, json.Unmarshal(line, &entry))
		entries = append(entries, entry)
	}
	if len(entries) != len(hostile) || string(entries[0].Content) != "not JSON" || entries[0].Account != "one" || entries[0].Category != "kube-audit" || entries[0].Setting != "audit" ||
		len(entries[8].Content) != poisonContent {
		t.Errorf("%+v", entries)
	}
	if strings.Contains(f.logs.String(), "not JSON") || strings.Contains(f.logs.String(), "refuse-me") {
		t.Error("the forwarder logged a line of the customer")
	}
	// A restart repeats none of them.
	w.start("a")
	w.write("a", auditFile, event("last", "get"))
	w.await("one", customerlog.KubeAudit, "a", append(ids(0, 5*(len(hostile)+1)), "last")...)
}

// TestPoisonBoxIsBounded: the box keeps two files.
func TestPoisonBoxIsBounded(t *testing.T) {
	t.Parallel()
	const limit = 10 * poisonContent
	dir := t.TempDir()
	discards := 0
	for range 30 {
		entry := Poisoned{Reason: reasonNotJSON}
		entry.keep(bytes.Repeat([]byte("x"), maxLine))
		discarded := must.Get(addPoison(dir, entry, limit))(t)
		if discarded {
			discards++
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 || discards == 0 {
		t.Errorf("%v, %v, %d discards", entries, err, discards)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Size() > limit+2*poisonContent {
			t.Errorf("%s has %d bytes, %v", e.Name(), info.Size(), err)
		}
	}
}

// TestFullDiskOfPositions: positions cannot be stored. Lines are delivered; after a restart they are delivered again, and none is lost. A line
// for the poison box waits until it can be stored.
func TestFullDiskOfPositions(t *testing.T) {
	smalldisk.Run(t, 1<<20, func(t *testing.T, disk string) {
		w := newWorldAt(t, disk)
		w.createAccount("one")
		w.set("a", "audit", to("one", customerlog.KubeAudit))
		w.write("a", auditFile, events(0, 3)...)
		f := w.start("a")
		w.await("one", customerlog.KubeAudit, "a", ids(0, 3)...)
		f.awaitPosition(t, streamKey{"a", settingFolder("audit"), customerlog.KubeAudit}, w.size("a", auditFile))
		filler := smalldisk.Fill(t, disk)
		w.write("a", auditFile, events(3, 6)...)
		w.await("one", customerlog.KubeAudit, "a", ids(0, 6)...)
		f.awaitMetric(t, "customer_logs_checkpoint_failures_total", "", 1)
		w.write("a", auditFile, "poison")
		w.write("a", auditFile, events(6, 9)...)
		f.awaitMetric(t, "customer_logs_waiting_seconds", "service", 0.001)
		w.await("one", customerlog.KubeAudit, "a", ids(0, 6)...)
		f.stop()
		must.Do(t, os.Remove(filler))
		f = w.start("a")
		w.await("one", customerlog.KubeAudit, "a", slices.Concat(ids(0, 6), ids(3, 9))...)
		if got := f.metric(t, "customer_logs_poisoned_total", reasonNotJSON); got != 1 {
			t.Errorf("%v lines were poisoned", got)
		}
	})
}

// TestChangedSettings: a setting names another account, another category, or is deleted.
func TestChangedSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createAccount("one")
	w.createAccount("two")
	w.set("a", "audit", to("one", customerlog.KubeAudit))
	w.set("a", "elsewhere", customerlog.SettingProperties{WorkspaceID: "/subscriptions/x/workspace", Logs: []customerlog.LogSelection{{CategoryGroup: "allLogs", Enabled: true}}})
	w.write("a", auditFile, event("1", "get"))
	f := w.start("a")
	w.await("one", customerlog.KubeAudit, "a", "1")

	w.set("a", "audit", to("two", customerlog.KubeAudit))
	n := 1
	// The change is read with a line that is written after the settings are old enough.
	eventually.Soon(t, "lines are delivered to the other account", func() error {
		n++
		w.write("a", auditFile, event(fmt.Sprint(n), "get"))
		got, err := w.auditIDs("two", customerlog.KubeAudit, "a")
		if err != nil || len(got) == 0 {
			return fmt.Errorf("delivered %v, %w", got, err)
		}
		return nil
	})

	// The old stream may end after its last append is stored and before it gets the response: then both accounts have these lines.
	eventually.Soon(t, "each line is in one of the accounts", func() error {
		first, err := w.auditIDs("one", customerlog.KubeAudit, "a")
		if err != nil {
			return err
		}
		second, err := w.auditIDs("two", customerlog.KubeAudit, "a")
		if got := distinct(append(first, second...)); err != nil || !slices.Equal(got, ids(1, n+1)) {
			return fmt.Errorf("%v, %v, want %d: %w", first, second, n, err)
		}
		return nil
	})
	w.remove("a", "audit")
	eventually.Soon(t, "nothing is delivered", func() error {
		w.write("a", auditFile, event("later", "get"))
		if got := f.metric(t, "customer_logs_streams", ""); got != 0 {
			return fmt.Errorf("%v streams", got)
		}
		return nil
	})

	// The control plane removes the state after the stream has ended.
	eventually.Soon(t, "the state of the deleted setting is removed", func() error {
		if entries, err := filepath.Glob(filepath.Join(w.state, "a", "setting-*")); err != nil || len(entries) > 0 {
			return fmt.Errorf("%v, %w", entries, err)
		}
		return nil
	})
}

// TestDeletedControlPlane: the control plane and its logs are removed while the account is away. The rest is delivered afterwards, and no state
// remains. A control plane with the name of the deleted one begins after that.
func TestDeletedControlPlane(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.write("a", auditFile, event("1", "get"))
	f := w.start("a")
	w.await("one", customerlog.KubeAudit, "a", "1")
	end := w.fail(faults.Rule{Services: []string{"blob"}, Methods: []string{"PUT"}, Status: 503})
	w.write("a", auditFile, event("2", "delete"))
	f.awaitMetric(t, "customer_logs_appends_total", "azure", 1)
	w.write("a", auditFile, event("3", "delete"))
	must.Do(t, os.RemoveAll(filepath.Join(w.hosted, "a")))
	f.Remove("a")
	w.write("a", auditFile, event("4", "create"))
	f.Set(ControlPlane{Name: "a", UID: "another", ResourceID: clusterID("a")})
	end()
	w.await("one", customerlog.KubeAudit, "a", "1", "2", "3", "4")
	f.Remove("a")
	eventually.Soon(t, "no state remains", func() error {
		entries, err := os.ReadDir(w.state)
		if err != nil || len(entries) > 0 {
			return fmt.Errorf("%v, %w", entries, err)
		}
		return nil
	})
	for _, reason := range []string{gapRotated, gapDeleted} {
		if got := f.metric(t, "customer_logs_gaps_total", reason); got != 0 {
			t.Errorf("%v gaps: %s", got, reason)
		}
	}
}

// TestDeletedWhileStopped: the state of a control plane that was deleted while no forwarder ran is removed, and reported as a gap.
func TestDeletedWhileStopped(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.write("a", auditFile, event("1", "get"))
	f := w.start("a")
	w.await("one", customerlog.KubeAudit, "a", "1")
	f.stop()
	f = w.start()
	if got := f.metric(t, "customer_logs_gaps_total", gapDeleted); got != 1 {
		t.Errorf("%v gaps", got)
	}
	if entries, err := os.ReadDir(w.state); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// TestSettingsCannotBeRead: Resource Manager is away at the start, and later. Delivery begins when it is back, and continues while it is away.
func TestSettingsCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newAuditWorld(t)
	w.write("a", auditFile, event("1", "get"))
	end := w.fail(faults.Rule{Services: []string{"arm"}, Methods: []string{"GET"}, Status: 503})
	f := w.start("a")
	f.awaitMetric(t, "customer_logs_waiting_seconds", "azure", 0.001)
	end()
	w.await("one", customerlog.KubeAudit, "a", "1")
	w.fail(faults.Rule{Services: []string{"arm"}, Methods: []string{"GET"}, Status: 503})
	f.awaitSettingsFailure(t, w)
	w.write("a", auditFile, event("last", "get"))
	eventually.Soon(t, "the line is delivered", func() error {
		got, err := w.auditIDs("one", customerlog.KubeAudit, "a")
		if err != nil || !slices.Contains(got, "last") {
			return fmt.Errorf("%v, %w", got, err)
		}
		return nil
	})
}

// awaitSettingsFailure writes lines until the settings are read again, which fails.
func (f *forwarder) awaitSettingsFailure(t *testing.T, w *world) {
	t.Helper()
	eventually.Soon(t, "the settings cannot be read", func() error {
		w.write("a", auditFile, event("more", "get"))
		if f.metric(t, "customer_logs_waiting_seconds", "azure") == 0 {
			return fmt.Errorf("they are not read")
		}
		return nil
	})
}

// TestIdleClustersCostNothing: the forwarder sends no requests about a cluster without new lines, also when its settings are old.
func TestIdleClustersCostNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createAccount("one")
	for _, name := range []string{"idle", "busy"} {
		w.set(name, "audit", to("one", customerlog.KubeAudit))
		w.write(name, auditFile, event("0", "create"))
	}
	var idle, busy atomic.Int32
	w.transport = transport(func(r *http.Request) (*http.Response, error) {
		if strings.Contains(strings.ToLower(r.URL.Path), "/hcpopenshiftclusters/idle/") {
			idle.Add(1)
		} else if strings.Contains(r.URL.Path, "/diagnosticSettings") {
			busy.Add(1)
		}
		return w.azure.HTTP().Do(r)
	})
	w.start("idle", "busy")
	w.await("one", customerlog.KubeAudit, "idle", "0")
	before := idle.Load()
	w.write("idle", "pid", "1") // not a log
	reads := busy.Load()
	eventually.Soon(t, "the settings of the other cluster are read again", func() error {
		w.write("busy", auditFile, event("1", "create"))
		if busy.Load() < reads+5 {
			return fmt.Errorf("%d times", busy.Load()-reads)
		}
		return nil
	})
	if got := idle.Load(); got != before {
		t.Errorf("%d requests about the idle cluster", got-before)
	}
}

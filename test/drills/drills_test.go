// Package drills proves alerts in a running region: a real Prometheus scrapes its processes and evaluates the rules of the repository, a real
// Alertmanager sends what fires to a webhook, and each drill injects a fault that must make its alerts arrive, and arrive as resolved when the
// fault has ended. A nightly run builds both programs and runs all drills. `make test` runs a part of them where both programs are built.
package drills

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/internal/testing/smalldisk"
	"github.com/hcpmesh/hcpmesh/test"
	"github.com/hcpmesh/hcpmesh/test/fault"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

var only = flag.String("drills-only", "", "`pattern` of the faults of the drills to run")

// inSlice is the drill that is part of make test.
const inSlice = "the Maestro server is away"

// deadline bounds each wait, on a busy machine, and firing the time until an alert fires while its fault lasts.
const (
	deadline = 15 * time.Minute
	firing   = 6 * time.Minute
)

// drill is a fault, and the alerts that it must cause.
type drill struct {
	// fault describes the fault for the table.
	fault string
	// settle makes the drill begin when all alerts of the drills before have ended: its own alerts would silence them, and their end.
	settle bool
	// background makes the next drills begin while the fault lasts. It affects nothing that they need.
	background bool
	// inject injects the fault, and returns what ends it: the command of the runbook if there is one.
	inject func(t *testing.T, ctx context.Context, r *region) (end func())
	// during fire while the fault lasts. then fire when it has ended: faster alerts silenced them, or they count what has ended.
	during, then []expected
	// silent are alerts that Alertmanager must get while the fault lasts, and must not send, because one of the others is their cause.
	silent []expected
}

// expected is an alert with some of its labels.
type expected = fault.Alert

// alert returns an expected alert. labels are names and values.
func alert(name string, labels ...string) expected {
	e := expected{Name: name, Labels: map[string]string{}}
	for i := 0; i+1 < len(labels); i += 2 {
		e.Labels[labels[i]] = labels[i+1]
	}
	return e
}

// away returns the drill of a component that is terminated, with the alerts of its row in the table of components.
func away(layer string) drill {
	c := fault.ComponentOf(layer)
	return drill{fault: c.Name + " is away", inject: hold(c.Process), during: append([]expected{c.Away()}, c.Alerts...), silent: c.Silent}
}

// burns returns the three alerts of an objective with a suffix for each speed.
func burns(prefix string, labels ...string) []expected {
	return []expected{alert(prefix+"Fast", labels...), alert(prefix+"Slow", labels...), alert(prefix+"3d", labels...)}
}

// received are the alerts that the webhook of Alertmanager has received, by name and labels.
type received struct {
	mu     sync.Mutex
	alerts map[string]notification
	// arrived are the times at which alerts arrived as firing first.
	arrived map[string]time.Time
}

// notification is an alert in the form of Alertmanager's webhook.
type notification struct {
	Status string            `json:"status"`
	Labels map[string]string `json:"labels"`
}

// ServeHTTP receives a group of alerts.
func (r *received) ServeHTTP(_ http.ResponseWriter, request *http.Request) {
	var group struct {
		Alerts []notification `json:"alerts"`
	}
	if json.NewDecoder(request.Body).Decode(&group) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, alert := range group.Alerts {
		key := fmt.Sprint(alert.Labels)
		if r.alerts[key].Status != alert.Status && alert.Status == "firing" {
			r.arrived[key] = time.Now()
		}
		r.alerts[key] = alert
	}
}

// matches reports whether a notification is for an expected alert.
func (n notification) matches(e expected) bool {
	for name, value := range e.Labels {
		if !strings.EqualFold(n.Labels[name], value) { // the case of a resource ID means nothing
			return false
		}
	}
	return n.Labels["alertname"] == e.Name
}

// status returns the status of an alert: firing, resolved, or empty if it has not arrived.
func (r *received) status(e expected) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := ""
	for _, a := range r.alerts {
		if a.matches(e) && found != "firing" {
			found = a.Status
		}
	}
	return found
}

// since returns the alerts with an expected name and labels that arrived after a time.
func (r *received) since(e expected, begun time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, a := range r.alerts {
		if a.matches(e) && r.arrived[key].After(begun) {
			return true
		}
	}
	return false
}

// pages returns the pages that arrived between two times.
func (r *received) pages(begun, ended time.Time) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]bool{}
	for key, a := range r.alerts {
		if at := r.arrived[key]; a.Labels["severity"] == string(rule.Page) && at.After(begun) && at.Before(ended) {
			names[a.Labels["alertname"]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// table is the result of all drills. It is safe for concurrent use.
type table struct {
	t        *testing.T
	observed *monitoring
	mu       sync.Mutex
	rows     []string
	failed   []error
	// waiting counts the alerts that have not ended.
	waiting sync.WaitGroup
}

func (r *table) add(err error, format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.t.Log(err)
		r.failed = append(r.failed, err)
		return
	}
	row := fmt.Sprintf(format, arguments...)
	r.t.Log(row)
	r.rows = append(r.rows, row)
}

// text returns the table in Markdown.
func (r *table) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.rows)
	return "| alert | fault | fired after | resolved after |\n|---|---|---|---|\n" + strings.Join(r.rows, "\n")
}

// TestDrills runs the drills in one region. Each begins when all alerts of the one before have fired; alerts end while the next drills run.
func TestDrills(t *testing.T) {
	programs := observability(t)
	test.DependOnCode(t)
	var selected []drill
	for _, d := range drills() {
		if nightly.Run() || d.fault == inSlice {
			if matched, err := regexp.MatchString(*only, d.fault); err != nil {
				t.Fatal(err)
			} else if matched {
				selected = append(selected, d)
			}
		}
	}
	// Disks of their own, in memory, can be filled.
	smalldisk.Run(t, 2<<30, func(t *testing.T, dir string) {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Minute)
		defer cancel()
		r := startRegion(t, ctx, dir, slices.ContainsFunc(selected, func(d drill) bool { return d.fault != inSlice }))
		webhook := &received{alerts: map[string]notification{}, arrived: map[string]time.Time{}}
		server := httptest.NewServer(webhook)
		t.Cleanup(server.Close)
		observed := startMonitoring(t, ctx, programs, r.Endpoints().Ops, server.URL, "127.0.0.1:0")
		eventually.Soon(t, "the alert that always fires arrives", func() error {
			if status := webhook.status(alert("Watchdog")); status != "firing" {
				return fmt.Errorf("its status is %q", status)
			}
			return nil
		})

		results := &table{t: t, observed: observed}
		for _, d := range selected {
			if d.settle {
				results.waiting.Wait()
			}
			d.run(t, ctx, r, webhook, results)
		}
		results.waiting.Wait()
		t.Logf("times on a scale of 1 to %d, see dev-infrastructure/alerts\n%s", scale, results.text())
		for _, err := range results.failed {
			t.Error(err)
		}
	})
}

// run injects the fault of a drill, waits until its alerts fire, unless it runs in the background, and ends the fault. It does not wait until the
// alerts have ended.
func (d *drill) run(t *testing.T, ctx context.Context, r *region, webhook *received, results *table) {
	t.Helper()
	// The drills before may have caused some of the alerts as well.
	eventually.Soon(t, "none of the alerts fires before the fault: "+d.fault, func() error {
		for _, e := range slices.Concat(d.during, d.then) {
			if webhook.status(e) == "firing" {
				return fmt.Errorf("%s fires", e.Name)
			}
		}
		return nil
	})

	begun := time.Now()
	t.Logf("%s: %s", begun.Format(time.TimeOnly), d.fault)
	end := d.inject(t, ctx, r)
	if d.background {
		results.waiting.Go(func() { d.finish(t, ctx, begun, end, webhook, results) })
		return
	}
	d.finish(t, ctx, begun, end, webhook, results)
}

// finish waits until the alerts of a fault that begun fire, and ends it.
func (d *drill) finish(t *testing.T, ctx context.Context, begun time.Time, end func(), webhook *received, results *table) {
	t.Helper()
	fired := make([]time.Duration, len(d.during))
	arrived := make([]error, len(d.during))
	var waiting sync.WaitGroup
	for i, e := range d.during {
		waiting.Go(func() { fired[i], arrived[i] = d.await(ctx, webhook, e, "firing", begun, firing) })
	}
	for _, e := range d.silent {
		waiting.Go(func() {
			limited, cancel := context.WithTimeout(ctx, firing)
			defer cancel()
			if err := eventually.Repeat(limited, func() error { return results.observed.inhibited(limited, e) }); err != nil {
				results.add(fmt.Errorf("%s: %s %v is not inhibited: %w", d.fault, e.Name, e.Labels, err), "")
			}
		})
	}
	waiting.Wait()
	ended := time.Now()
	end()
	t.Logf("%s: ended; pages: %v", ended.Format(time.TimeOnly), webhook.pages(begun, ended))
	for _, e := range d.silent {
		if webhook.since(e, begun) {
			results.add(fmt.Errorf("%s: %s arrived although its cause fired", d.fault, e.Name), "")
		}
	}
	for i, e := range d.during {
		if arrived[i] != nil {
			results.add(arrived[i], "")
			continue
		}
		results.waiting.Go(func() {
			resolved, err := d.await(ctx, webhook, e, "resolved", ended, deadline)
			results.add(err, "| %s | %s | %s | %s |", e.Name, d.fault, fired[i], resolved)
		})
	}
	for _, e := range d.then {
		results.waiting.Go(func() {
			fired, err := d.await(ctx, webhook, e, "firing", begun, deadline)
			if err != nil {
				results.add(err, "")
				return
			}
			resolved, err := d.await(ctx, webhook, e, "resolved", ended, deadline)
			results.add(err, "| %s | %s | %s | %s |", e.Name, d.fault, fired, resolved)
		})
	}
}

// await waits until an alert has arrived with a status, and returns the time since begun.
func (d *drill) await(ctx context.Context, webhook *received, e expected, want string, begun time.Time, limit time.Duration) (time.Duration, error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := eventually.Repeat(limited, func() error {
		if status := webhook.status(e); status != want {
			return errors.New("its status is " + status)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %s %v does not arrive as %s: %w", d.fault, e.Name, e.Labels, want, err)
	}
	return time.Since(begun).Round(time.Second), nil
}

// TestEveryAlertHasDrill checks that each alert has a drill or a reason why it has none, and not both.
func TestEveryAlertHasDrill(t *testing.T) {
	drilled := map[string]bool{}
	for _, d := range drills() {
		for _, e := range slices.Concat(d.during, d.then) {
			drilled[e.Name] = true
		}
	}
	alerts := map[string]bool{}
	for _, file := range ruleFiles(t) {
		for _, each := range file.Alerts() {
			alerts[each.Alert] = true
			switch reason := withoutDrill[each.Alert]; {
			case drilled[each.Alert] && reason != "":
				t.Errorf("%s has a drill, and withoutDrill has a reason why it has none", each.Alert)
			case !drilled[each.Alert] && reason == "" && notifies(each):
				t.Errorf("%s has no drill: add one, or the reason to withoutDrill", each.Alert)
			}
		}
	}
	for _, name := range slices.Concat(slices.Collect(maps.Keys(withoutDrill)), slices.Collect(maps.Keys(drilled))) {
		if !alerts[name] {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// notifies reports whether somebody reacts to an alert.
func notifies(alert rule.Rule) bool {
	return slices.Contains([]rule.Severity{rule.Page, rule.Ticket}, rule.Severity(alert.Labels["severity"]))
}

// observability returns the folder with Prometheus and Alertmanager. Without them, the test is skipped.
func observability(t *testing.T) string {
	t.Helper()
	return filepath.Dir(nightly.Program(t, "observability", "observability/amtool"))
}

// root returns the folder of the repository.
func root(t *testing.T) string {
	t.Helper()
	return must.Get(filepath.Abs(filepath.Join("..", "..")))(t)
}

// startRegion starts a region in a folder. The drills that are not in the slice need clusters of a customer, who uses them.
func startRegion(t *testing.T, ctx context.Context, dir string, used bool) *region {
	t.Helper()
	smalldisk.Mount(t, filepath.Join(dir, "audit", "queue", fullQueue), 32<<20)
	r := &region{Region: fault.Start(t, ctx, local.Config{StateDir: dir, ManagementClusters: 1, Build: test.BuildRegion(), Faults: true})}
	if used {
		r.use(t, ctx)
	}
	return r
}

package drills

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/alerts"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/alertmanager"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
)

// scale divides the windows and hold times of rules, and the times of Alertmanager, so that a drill takes minutes at most. What is longer than
// an hour is divided by longScale beyond that hour: 6h are 198 s and 3d are 7 minutes. shortHold has the scale of hold times.
const (
	scale     = 20
	longScale = 1000
)

var (
	// window matches the range of a selector or subquery and an offset.
	window = regexp.MustCompile(`\[([0-9]+[smhd])(?::([0-9]+[smhd]))?\]|offset ([0-9]+[smhd])`)
	amount = regexp.MustCompile(`[0-9]+[smhd]`)
	// waiting matches the times of a route of Alertmanager.
	waiting = regexp.MustCompile(`((?:group_wait|group_interval|repeat_interval): )([0-9]+[smhd])`)
	// listening matches the log record with the address of a server.
	listening = regexp.MustCompile(`msg="Listening on" (?:component=[a-z]+ )?address=(\S+)`)
)

// probeWindows replace the windows of rules that count probes of hosted API servers. Monitor probes every 30 s, and every 10 s after a failure,
// so shorter windows would not have enough probes.
var probeWindows = map[string]string{"5m": "100s", "30m": "180s", "1h": "200s", "6h": "300s", "3d": "400s"}

// short returns a duration in seconds on the scale of the drills; at least a second remains of one that is not 0.
func short(seconds int) int {
	const hour = 3600
	if seconds == 0 {
		return 0
	}
	return max(1, min(seconds, hour)/scale+max(0, seconds-hour)/longScale)
}

// shorten is short for durations in the notation of Prometheus.
func shorten(text string) string {
	units := map[byte]int{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}
	var count int
	if _, err := fmt.Sscanf(text[:len(text)-1], "%d", &count); err != nil || count == 0 {
		return text
	}
	return fmt.Sprintf("%ds", short(count*units[text[len(text)-1]]))
}

var (
	// age matches a limit of at least a quarter of an hour for the age of something. Limits for the remaining time, after <, stay as they are,
	// and so do shorter ages, which depend on how often processes report.
	age = regexp.MustCompile(`> ([0-9]{3,}|[0-9]+ \* 3600)\b`)
	// step matches the step of a subquery. Halving it counts all events twice, and none is between two steps.
	step = regexp.MustCompile(`:[0-9]+s\]`)
	// bucket matches the bounds of the objectives of durations of operations.
	bucket = regexp.MustCompile(`le=~"(1200|1500)\b`)
)

// shortAge returns a limit of an age on the scale of the drills.
func shortAge(match string) string {
	limit := strings.TrimPrefix(match, "> ")
	hours, inHours := strings.CutSuffix(limit, " * 3600")
	seconds, err := strconv.Atoi(hours)
	if err != nil {
		return match
	}
	if inHours {
		seconds *= 3600
	}
	if seconds < 900 {
		return match
	}
	return fmt.Sprintf("> %d", max(leastAge, short(seconds)))
}

// leastAge is the least limit of an age in seconds: some ages grow to a minute without a fault.
const leastAge = 120

// shortHold returns a time for which a condition must hold: 10 minutes are divided by scale, and what is longer by holdScale.
func shortHold(text string) string {
	const (
		part      = 10 * time.Minute
		holdScale = 60
	)
	hold, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return fmt.Sprintf("%ds", max(1, int((min(hold, part)/scale+max(0, hold-part)/holdScale).Seconds())))
}

// shortExpression returns an expression with short windows and ages.
func shortExpression(expression string) string {
	probes := strings.Contains(expression, "monitor_cluster_probe")
	expression = window.ReplaceAllStringFunc(expression, func(match string) string {
		return amount.ReplaceAllStringFunc(match, func(duration string) string {
			if replacement := probeWindows[duration]; probes && replacement != "" {
				return replacement
			}
			return shorten(duration)
		})
	})
	expression = step.ReplaceAllStringFunc(expression, func(match string) string {
		var seconds int
		if _, err := fmt.Sscanf(match, ":%ds]", &seconds); err != nil {
			return match
		}
		return fmt.Sprintf(":%ds]", max(1, seconds/2))
	})
	expression = age.ReplaceAllStringFunc(expression, shortAge)
	return bucket.ReplaceAllString(expression, `le=~"60`) // the nearest bucket to a twentieth of 20 minutes
}

// monitoring has the URLs of a running Prometheus and Alertmanager.
type monitoring struct{ prometheus, alertmanager string }

// inhibited returns an error unless Alertmanager has an alert and does not send it, because another one that fires is its cause.
func (m *monitoring) inhibited(ctx context.Context, e expected) error {
	var alerts []struct {
		Labels map[string]string
		Status struct{ InhibitedBy []string }
	}
	if err := get(ctx, m.alertmanager+"/api/v2/alerts", &alerts); err != nil {
		return err
	}
	for _, each := range alerts {
		if (notification{Labels: each.Labels}).matches(e) {
			if len(each.Status.InhibitedBy) == 0 {
				return errors.New("no other alert inhibits it")
			}
			return nil
		}
	}
	return errors.New("Alertmanager does not have it")
}

// startMonitoring starts Alertmanager with the configuration of a production environment, and Prometheus with all rules of the repository. ops
// are the addresses of the processes, and listen is that of Prometheus.
func startMonitoring(t *testing.T, ctx context.Context, programs string, ops map[string]string, webhook, listen string) *monitoring {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string { return writeFile(t, dir, name, text) }
	for _, receiver := range []string{alertmanager.Pages, alertmanager.Tickets, alertmanager.Heartbeats} {
		write(receiver+"-url", webhook)
	}
	config := strings.ReplaceAll(alertmanager.Config(alertmanager.Environment{Name: "drill", Production: true}), alertmanager.Folder, dir)
	config = waiting.ReplaceAllStringFunc(config, func(match string) string { return amount.ReplaceAllStringFunc(match, shorten) })
	receiver := serve(t, ctx, filepath.Join(programs, "alertmanager"), "--config.file="+write("alertmanager.yaml", config), "--storage.path="+filepath.Join(dir, "alertmanager"),
		"--web.listen-address=127.0.0.1:0", "--cluster.listen-address=")

	var scrapes []map[string]any
	for process, address := range ops {
		scrapes = append(scrapes, map[string]any{"job_name": process, "static_configs": []any{map[string]any{"targets": []string{address}}}})
	}
	prometheus := must.Get(json.MarshalIndent(map[string]any{
		"global":         map[string]any{"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "2s"},
		"rule_files":     []string{write("rules.yaml", shortRules(t))},
		"scrape_configs": scrapes,
		"alerting":       map[string]any{"alertmanagers": []any{map[string]any{"static_configs": []any{map[string]any{"targets": []string{receiver}}}}}},
	}, "", "  "))(t)
	m := &monitoring{alertmanager: "http://" + receiver, prometheus: "http://" + serve(t, ctx, filepath.Join(programs, "prometheus"),
		"--config.file="+write("prometheus.yaml", string(prometheus)), "--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+listen)}
	eventually.Soon(t, "Prometheus has the metrics of all processes", func() error { return m.scrapes(ctx, len(ops)) })
	return m
}

// writeFile writes a file in a folder and returns its path.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(file, []byte(text), 0o644))
	return file
}

// startPrometheus starts a Prometheus that has rules and scrapes nothing, and returns what admin reads from it.
func startPrometheus(t *testing.T, programs string, rules []rule.Rule) *alerts.History {
	t.Helper()
	dir := t.TempDir()
	file := writeFile(t, dir, "rules.yaml", rule.Text("Rules of a test.", []rule.Group{{Name: "test", Rules: rules}}))
	config := writeFile(t, dir, "prometheus.yaml", fmt.Sprintf("global: {evaluation_interval: 1s}\nrule_files: [%q]\n", file))
	address := serve(t, t.Context(), filepath.Join(programs, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	transport := must.Get(alerts.Transport(""))(t)
	return must.Get(alerts.New("http://"+address, transport))(t)
}

// scrapes returns an error while Prometheus has scraped fewer processes than given. A drill begins afterwards: the first sample of a counter is no increase of it.
func (m *monitoring) scrapes(ctx context.Context, processes int) error {
	var found struct{ Result []any }
	if err := query(ctx, m.prometheus+"/api/v1/query", url.Values{"query": {"up == 1"}}, &found); err != nil {
		return err
	}
	if got := len(found.Result); got < processes {
		return fmt.Errorf("it has those of %d, want %d", got, processes)
	}
	return nil
}

// shortRules returns all rules of the repository with short windows and hold times.
func shortRules(t *testing.T) string {
	t.Helper()
	var groups []rule.Group
	for _, file := range ruleFiles(t) {
		for _, group := range file.Groups {
			group.Interval = ""
			for i := range group.Rules {
				r := &group.Rules[i]
				r.Expr = shortExpression(r.Expr)
				if r.For != "" {
					r.For = shortHold(r.For)
				}
			}
			groups = append(groups, group)
		}
	}
	return rule.Text("Rules with short times.", groups)
}

// ruleFiles returns all rule files of the repository.
func ruleFiles(t *testing.T) []rule.File {
	t.Helper()
	var files []rule.File
	must.Do(t, filepath.WalkDir(root(t), func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), "."):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, rule.Suffix):
			return nil
		}
		relative, err := filepath.Rel(root(t), name)
		if err != nil {
			return err
		}
		file, err := rule.Read(os.DirFS(root(t)), filepath.ToSlash(relative))
		if err != nil {
			return err
		}
		files = append(files, file)
		return nil
	}))
	return files
}

// serve starts a server and returns its address when it listens. It ends with the test.
func serve(t *testing.T, ctx context.Context, program string, arguments ...string) string {
	t.Helper()
	log := &output{}
	command := exec.CommandContext(ctx, program, arguments...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	must.Do(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
		if t.Failed() {
			t.Logf("%s:\n%s", filepath.Base(program), log)
		}
	})
	address := ""
	eventually.Soon(t, filepath.Base(program)+" listens", func() error {
		found := listening.FindStringSubmatch(log.String())
		if found == nil {
			return fmt.Errorf("its log has no address: %s", log)
		}
		address = found[1]
		return nil
	})

	return address
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

var _ io.Writer = (*output)(nil)

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

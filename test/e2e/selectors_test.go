package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/lint"
	"github.com/hcpmesh/hcpmesh/tooling/alerts/pkg/rule"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/boards"
)

// scrapeInterval is the time between two reads of the metrics of all processes. Tests kill processes, whose series are gone then.
const scrapeInterval = 5 * time.Second

// series are all series that processes of the region have exported since its start, by metric.
type series struct {
	stop context.CancelFunc
	done sync.WaitGroup
	// seen has the labels of each series, by the name of the metric and by the text of the labels.
	seen map[string]map[string]map[string]string
}

// watchSeries reads the metrics of all processes until end is called.
func watchSeries(ops map[string]string) *series {
	ctx, stop := context.WithCancel(context.Background())
	s := &series{stop: stop, seen: map[string]map[string]map[string]string{}}
	s.done.Go(func() {
		ticker := time.NewTicker(scrapeInterval)
		defer ticker.Stop()
		for {
			for process, address := range ops {
				s.read(ctx, process, address)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return s
}

// end stops reading.
func (s *series) end() {
	s.stop()
	s.done.Wait()
}

// read adds the series of a process. One that does not answer has none.
func (s *series) read(ctx context.Context, process, address string) {
	ctx, cancel := context.WithTimeout(ctx, scrapeInterval)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", http.NoBody)
	if err != nil {
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return
	}
	defer func() { _ = response.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return
	}
	for name, family := range families {
		for _, one := range family.GetMetric() {
			labels := map[string]string{"job": process, "instance": address}
			for _, pair := range one.GetLabel() {
				labels[pair.GetName()] = pair.GetValue()
			}
			if family.GetType() != dto.MetricType_HISTOGRAM {
				s.add(name, labels, "")
				continue
			}
			s.add(name+"_sum", labels, "")
			s.add(name+"_count", labels, "")
			for _, bucket := range one.GetHistogram().GetBucket() {
				s.add(name+"_bucket", labels, strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64))
			}
		}
	}
	s.add("up", map[string]string{"job": process, "instance": address}, "")
}

// add adds a series. le is the bound of a bucket, or empty.
func (s *series) add(name string, labels map[string]string, le string) {
	labels = maps.Clone(labels)
	labels["__name__"] = name
	if le != "" {
		labels["le"] = le
	}
	if s.seen[name] == nil {
		s.seen[name] = map[string]map[string]string{}
	}
	s.seen[name][fmt.Sprint(labels)] = labels
}

// has reports whether a selector has selected a series.
func (s *series) has(selector lint.Selector) bool {
	for _, labels := range s.seen[selector.Name] {
		if selector.Matches(labels) {
			return true
		}
	}
	return false
}

// withoutSeries has the selectors of rules and dashboards that may select nothing during the tests, with the reason.
var withoutSeries = map[string]string{
	`admin_requests_total{status=~"5.."}`:                         "admin fails only while a test has killed a process",
	`backend_notifications_total`:                                 "no customer of the tests asks for notifications",
	`backend_reconciliation_sent_total`:                           "only TestRestoredFleetIsRepaired restores Cluster Service's database to an earlier state",
	`frontend_http_requests_total{code=~"5..",route!="/healthz"}`: "the frontend fails only while a test has killed a process",
	`frontend_http_requests_total{code=~"5.."}`:                   "the frontend fails only while a test has killed a process",
	`frontend_requests_refused_total`:                             "the tests send fewer requests than the frontend accepts",
	`frontend_requests_refused_total{reason="busy"}`:              "the tests send fewer requests than the frontend accepts",
	`gateway_grants_total`:                                        "only regions on Kubernetes have gateway-grants",
	`grpc_server_handled_total{grpc_code=~"Unknown|Internal|Unavailable|DataLoss|DeadlineExceeded",grpc_type="unary"}`: "Cluster Service fails only while a test has killed a process",
	`monitor_shard_unreachable`: "the API servers of a management cluster are never away together",
}

// check returns an error for each selector of a rule or a dashboard that selected no series although withoutSeries has no reason for that. It
// does nothing if only some tests ran: the others cause the events whose series it needs.
func (s *series) check() error {
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	used, err := usedSelectors()
	if err != nil {
		return err
	}
	var wrong []error
	for _, text := range slices.Sorted(maps.Keys(used)) {
		selector := used[text]
		if withoutSeries[text] == "" && !s.has(selector.Selector) {
			wrong = append(wrong, fmt.Errorf("%s: %s selected no series of the region", strings.Join(selector.users, ", "), text))
		}
	}
	for _, text := range slices.Sorted(maps.Keys(withoutSeries)) {
		if _, ok := used[text]; !ok {
			wrong = append(wrong, fmt.Errorf("withoutSeries: no rule and no dashboard has the selector %s", text))
		}
	}
	return errors.Join(wrong...)
}

// usedSelector is a selector and the rules and dashboards that use it.
type usedSelector struct {
	lint.Selector
	users []string
}

// usedSelectors returns the selectors of all rules and dashboards that select what programs export, by their text.
func usedSelectors() (map[string]usedSelector, error) {
	used, recorded := map[string]usedSelector{}, map[string]bool{}
	add := func(user, expression string) error {
		selectors, err := lint.Selectors(expression)
		if err != nil {
			return fmt.Errorf("%s: %w", user, err)
		}
		for _, selector := range selectors {
			entry := used[selector.String()]
			entry.Selector = selector
			if !slices.Contains(entry.users, user) {
				entry.users = append(entry.users, user)
			}
			used[selector.String()] = entry
		}
		return nil
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && name != root:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, rule.Suffix):
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		file, err := rule.Read(os.DirFS(root), filepath.ToSlash(relative))
		if err != nil {
			return err
		}
		for _, group := range file.Groups {
			for _, each := range group.Rules {
				recorded[each.Record] = true
				if err := add(each.Alert+each.Record, each.Expr); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, board := range boards.All() {
		for _, row := range board.Rows {
			for _, panel := range row.Panels {
				for _, query := range panel.Queries {
					if err := add("dashboard "+board.Name, board.Plain(query.Expression)); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	maps.DeleteFunc(used, func(_ string, selector usedSelector) bool { return recorded[selector.Name] })
	return used, nil
}

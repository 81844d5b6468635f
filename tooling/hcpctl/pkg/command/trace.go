package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
	"github.com/hcpmesh/hcpmesh/tooling/trace-store/pkg/spans"
)

const (
	// traceTimeout bounds a request to the trace store, maxTraceAnswer its response.
	traceTimeout   = 10 * time.Second
	maxTraceAnswer = 64 << 20
)

func (e *environment) trace() *cobra.Command {
	var store string
	var reads bool
	c := &cobra.Command{
		Use: "trace OPERATION", Short: "Show the trace of an operation through all services",
		Long: `Show the trace of an operation through all services, from the request of the customer to the reports of the agents: one line
for each span, below the span that caused it, with its beginning, duration and service.

OPERATION is the ID of an operation, its correlation ID, a trace ID of a log record, or the resource ID of a resource, which has a
trace for each change. A local region stores the traces of its last operations in memory.`,
		RunE: func(c *cobra.Command, args []string) error {
			if store == "" {
				endpoints, err := e.endpoints()
				if err != nil {
					return err
				}
				store = endpoints.Traces
			}
			traces, err := findTraces(c.Context(), strings.TrimSuffix(store, "/"), args[0], reads)
			if err != nil {
				return err
			}
			return e.printAs(spans.Answer{Traces: traces}, func() error { return e.printTraces(traces) })
		},
	}
	c.Flags().StringVar(&store, "store", "", "`URL` of the trace store (default: the local region)")
	c.Flags().BoolVar(&reads, "reads", false, "also show the traces of reads, for example of a client that polls the operation")
	return e.addOutputFlag(c)
}

// traceID matches the ID of a trace.
var traceID = regexp.MustCompile(`^[0-9a-fA-F]{32}$`)

// findTraces returns the traces of an identifier. Those of reads are left out unless reads is set or the identifier is a trace ID.
func findTraces(ctx context.Context, store, identifier string, reads bool) ([]*spans.Trace, error) {
	var queries []string
	switch {
	case traceID.MatchString(identifier):
		queries, reads = []string{"/api/traces/" + identifier}, true
	case strings.HasPrefix(identifier, "/"):
		queries = []string{"/api/traces?resource=" + url.QueryEscape(identifier)}
	default:
		queries = []string{"/api/traces?operation=" + url.QueryEscape(identifier), "/api/traces?correlation=" + url.QueryEscape(identifier)}
	}
	for _, query := range queries {
		traces, err := readTraces(ctx, store+query)
		if !reads {
			traces = slices.DeleteFunc(traces, isRead)
		}
		if err != nil || len(traces) > 0 {
			return traces, err
		}
	}
	return nil, notFound("no trace of %q: the store has only recent ones, and those of requests for changes a few seconds after each span ends", identifier)
}

// isRead reports whether a trace began with a read.
func isRead(trace *spans.Trace) bool {
	return slices.ContainsFunc(trace.Spans, func(s *spans.Span) bool {
		return s.ParentID == "" && s.Attributes["http.request.method"] == http.MethodGet
	})
}

// readTraces requests traces from the store. An unknown trace is an empty list.
func readTraces(ctx context.Context, target string) ([]*spans.Trace, error) {
	ctx, cancel := context.WithTimeout(ctx, traceTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, invalid("--store: %w", err)
	}
	client := &http.Client{Transport: transport.System()}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return nil, err
		}
		return nil, unreachableStore(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxTraceAnswer))
	switch {
	case err != nil:
		return nil, unreachableStore(err)
	case response.StatusCode == http.StatusNotFound:
		return nil, nil
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the trace store responded %s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	var answer spans.Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("reading the response of the trace store: %w", err)
	}
	return answer.Traces, nil
}

// unreachableStore reports that the trace store did not respond.
func unreachableStore(err error) error {
	return unavailable("reading from the trace store: %w; a local region has one if it was started with `--with traces`, which is the default", err)
}

// printTraces prints each trace as a tree.
func (e *environment) printTraces(traces []*spans.Trace) error {
	for i, trace := range traces {
		if i > 0 {
			fmt.Fprintln(e.out)
		}
		first := trace.Spans[0].Start
		fmt.Fprintf(e.out, "trace %s, began %s\n", trace.ID, first.UTC().Format(time.RFC3339))
		if trace.Dropped > 0 {
			fmt.Fprintf(e.err, "warning: the store dropped %d later spans of the trace\n", trace.Dropped)
		}
		var rows [][]string
		for _, line := range spanTree(trace.Spans) {
			s := line.span
			outcome := ""
			if s.Failed {
				outcome = "failed: " + cmp.Or(s.Message, "no reason is recorded")
			}
			rows = append(rows, []string{"+" + brief(s.Start.Sub(first)), brief(s.Duration()), s.Service, line.indent + titleOf(s), subjectOf(s), outcome})
		}
		if err := display.Table(e.out, []string{"BEGIN", "DURATION", "SERVICE", "SPAN", "SUBJECT", "ERROR"}, rows); err != nil {
			return err
		}
	}
	return nil
}

// titleOf returns a short name of a span: without the beginning of a route that all resources have, and without the package of a gRPC service.
func titleOf(s *spans.Span) string {
	const common = "/subscriptions/{subscriptionId}/"
	name := s.Name
	if method, route, ok := strings.Cut(name, " "+common); ok {
		if _, kind, ok := strings.Cut(route, "/providers/Microsoft.RedHatOpenShift/"); ok {
			route = kind
		}
		return method + " …/" + route
	}
	if service, method, ok := strings.Cut(name, "/"); ok && !strings.Contains(service, " ") {
		return service[strings.LastIndex(service, ".")+1:] + "/" + method
	}
	return name
}

// subjectOf returns the object of a span and where it is. That of a wait is the cluster or the node pool.
func subjectOf(s *spans.Span) string {
	if strings.HasPrefix(s.Name, "await ") {
		return path.Base(s.Attributes["hcpmesh.resource_id"])
	}
	parts := []string{s.Attributes["hcpmesh.work"], s.Attributes["hcpmesh.consumer"]}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " on ")
}

// brief returns a duration with a precision for people.
func brief(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// spanLine is a span with its indentation in the tree.
type spanLine struct {
	span   *spans.Span
	indent string
}

// spanTree returns spans in the order of a tree: each below its parent, siblings in order of their beginning. A span whose parent is unknown
// is at the top.
func spanTree(all []*spans.Span) []spanLine {
	known, children := map[string]bool{}, map[string][]*spans.Span{}
	for _, s := range all {
		known[s.SpanID] = true
	}
	for _, s := range all {
		parent := s.ParentID
		if !known[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	var lines []spanLine
	visited := map[*spans.Span]bool{}
	var add func(parent, above string)
	add = func(parent, above string) {
		for i, s := range children[parent] {
			if visited[s] { // spans that name each other as parents
				continue
			}
			visited[s] = true
			branch, below := "├ ", "│ "
			if i == len(children[parent])-1 {
				branch, below = "└ ", "  "
			}
			if parent == "" {
				branch, below = "", ""
			}
			lines = append(lines, spanLine{s, above + branch})
			add(s.SpanID, above+below)
		}
	}
	add("", "")
	return lines
}

package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/spf13/cobra"

	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/boards"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/dashboard"
	"github.com/hcpmesh/hcpmesh/tooling/dashboards/pkg/plot"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/display"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/transport"
)

// dashboardPeriod is the period of a dashboard if no flag sets its beginning.
const dashboardPeriod = time.Hour

// dashboardOptions are the flags of the commands that read a Prometheus.
type dashboardOptions struct {
	period
	prometheus string
	variables  []string
	selected   map[string][]string
}

func (e *environment) dashboard() *cobra.Command {
	return group("dashboard", "Show the dashboards of a region without Grafana", e.dashboardList(), e.dashboardShow(), e.dashboardRender())
}

func (e *environment) dashboardList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List dashboards and the questions that they answer",
		RunE: func(*cobra.Command, []string) error {
			type listed struct {
				Name      string   `json:"name"`
				Question  string   `json:"question"`
				Variables []string `json:"variables,omitempty"`
			}
			var list []listed
			for _, d := range boards.All() {
				list = append(list, listed{d.Name, d.Question, variableNames(d)})
			}
			return printList(e, list, func(l listed) display.Row {
				return display.Row{{"NAME", l.Name}, {"QUESTION", l.Question}, {"VARIABLES", strings.Join(l.Variables, ", ")}}
			})
		},
	}
	return e.addOutputFlag(c)
}

func variableNames(d *dashboard.Dashboard) []string {
	var names []string
	for _, v := range d.Variables {
		names = append(names, v.Name)
	}
	return names
}

func (e *environment) dashboardShow() *cobra.Command {
	var o dashboardOptions
	var onlyBad bool
	c := &cobra.Command{
		Use: "show NAME", Short: "Show the values of a dashboard as a table", ValidArgsFunction: completeDashboards(),
		Long: `Show the last and the largest value of each series of a dashboard within a period. A value beyond the limit of its panel is marked,
with the runbook that helps. 'hcpctl dashboard list' lists the dashboards.`,
		RunE: func(c *cobra.Command, args []string) error {
			selected, err := findDashboards(args)
			if err != nil {
				return err
			}
			page, err := e.page(c.Context(), selected[0], &o)
			if err != nil {
				return err
			}
			panels := summarize(selected[0], page, onlyBad)
			return e.printAs(panels, func() error { return e.printPanels(panels) })
		},
	}
	o.addFlags(c)
	e.addOutputFlag(c)
	c.Flags().BoolVar(&onlyBad, "bad", false, "only series with a value beyond the limit")
	return c
}

// panelSummary is a panel in the output of the command show.
type panelSummary struct {
	Row     string          `json:"row"`
	Title   string          `json:"title"`
	Meaning string          `json:"meaning"`
	Bad     string          `json:"bad,omitempty"` // the values that are bad
	Runbook string          `json:"runbook,omitempty"`
	Series  []seriesSummary `json:"series"`
}

// seriesSummary is a series in the output of the command show.
type seriesSummary struct {
	Name string `json:"name"`
	Last string `json:"last"`
	Max  string `json:"max,omitempty"`
	Bad  bool   `json:"bad"`
}

// summarize returns the panels of a page, or only what is beyond its limit.
func summarize(d *dashboard.Dashboard, page *plot.Page, onlyBad bool) []panelSummary {
	panels := []panelSummary{}
	for i, row := range d.Rows {
		for j, p := range row.Panels {
			summary := panelSummary{Row: row.Title, Title: p.Title, Meaning: p.Meaning, Bad: p.Limit.Text(p.Unit), Runbook: p.Runbook, Series: []seriesSummary{}}
			for _, r := range page.Sections[i].Drawings[j].Rows() {
				if r.Bad || !onlyBad {
					summary.Series = append(summary.Series, seriesSummary{r.Name, r.Last, r.Max, r.Bad})
				}
			}
			if !onlyBad || len(summary.Series) > 0 {
				panels = append(panels, summary)
			}
		}
	}
	return panels
}

// printPanels prints a line for each series.
func (e *environment) printPanels(panels []panelSummary) error {
	var rows [][]string
	for _, p := range panels {
		title := p.Row + ": " + p.Title
		if len(p.Series) == 0 {
			rows = append(rows, []string{title, "no data", "", "", ""})
		}
		for _, s := range p.Series {
			beyond := ""
			if s.Bad {
				beyond = "bad " + p.Bad + ", see " + p.Runbook
			}
			rows = append(rows, []string{title, s.Name, s.Last, s.Max, beyond})
		}
	}
	return display.Table(e.out, []string{"PANEL", "SERIES", "LAST", "MAX", "LIMIT"}, rows)
}

// The files of the command render.
const (
	formatSVG = "svg"
	formatPNG = "png"
)

func (e *environment) dashboardRender() *cobra.Command {
	var o dashboardOptions
	var into string
	var formats []string
	var dots float64
	c := &cobra.Command{
		Use: "render [NAME...]", Short: "Draw dashboards as SVG and PNG", ValidArgsFunction: completeDashboards(),
		Long: `Draw dashboards with the values of a Prometheus, as NAME.svg and NAME.png in a folder. Without NAME draw all dashboards.`,
		PreRunE: func(*cobra.Command, []string) error {
			for _, format := range formats {
				if format != formatSVG && format != formatPNG {
					return fmt.Errorf("--format: %q is not one of %s, %s", format, formatSVG, formatPNG)
				}
			}
			if dots < 0.5 || dots > 4 {
				return fmt.Errorf("--dots: %v is not between 0.5 and 4", dots)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			selected, err := findDashboards(args)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(into, 0o755); err != nil {
				return err
			}
			for _, d := range selected {
				page, err := e.page(c.Context(), d, &o)
				if err != nil {
					return err
				}
				for _, format := range formats {
					file := filepath.Join(into, d.Name+"."+format)
					if err := drawFile(file, format, page, d.Name, dots); err != nil {
						return err
					}
					fmt.Fprintln(e.out, file)
				}
			}
			return nil
		},
	}
	o.addFlags(c)
	c.Flags().StringVar(&into, "into", "", "`folder` of the files")
	c.Flags().StringSliceVar(&formats, "format", []string{formatSVG, formatPNG}, "`formats` of the files")
	c.Flags().Float64Var(&dots, "dots", 1, "`number` of dots of a PNG for each pixel, between 0.5 and 4")
	_ = c.MarkFlagRequired("into")
	return c
}

// drawFile writes a page to a file.
func drawFile(file, format string, page *plot.Page, id string, dots float64) error {
	text := plot.SVG(page, id, plot.PageWidth, page.Height())
	if format == formatPNG {
		var err error
		if text, err = plot.PNG(page, plot.PageWidth, page.Height(), dots); err != nil {
			return fmt.Errorf("drawing %s: %w", file, err)
		}
	}
	return os.WriteFile(file, text, 0o644) //nolint:gosec // a picture without secrets
}

// addFlags adds the flags to a command, and their check.
func (o *dashboardOptions) addFlags(c *cobra.Command) {
	o.period.addFlags(c, "an hour before the end")
	c.Flags().StringVar(&o.prometheus, "prometheus", "", "`URL` of the API of Prometheus (default: the local region)")
	c.Flags().StringArrayVar(&o.variables, "variable", nil, "only series with a `name=value` of a variable of the dashboard; can be repeated")
	alsoCheck(c, func(*cobra.Command, []string) error { return o.check(time.Now()) })
}

// check returns an error for invalid flags. Otherwise it sets the period and the variables.
func (o *dashboardOptions) check(now time.Time) error {
	if err := o.period.check(now); err != nil {
		return err
	}
	if o.to.IsZero() {
		o.to = now
	}
	if o.from.IsZero() {
		o.from = o.to.Add(-dashboardPeriod)
	}
	if !o.from.Before(o.to) {
		return fmt.Errorf("--from: %s is not before the end %s", o.from.UTC().Format(time.RFC3339), o.to.UTC().Format(time.RFC3339))
	}
	o.selected = map[string][]string{}
	for _, text := range o.variables {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || value == "" {
			return fmt.Errorf("--variable: %q is not of the form name=value", text)
		}
		o.selected[name] = append(o.selected[name], value)
	}
	if o.prometheus == "" {
		return nil
	}
	switch u, err := url.Parse(o.prometheus); {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return errors.New("--prometheus: the value is not an http or https URL")
	case u.User != nil:
		return errors.New("--prometheus: the URL must not have a password")
	}
	return nil
}

// page returns a dashboard with the values of Prometheus.
func (e *environment) page(ctx context.Context, d *dashboard.Dashboard, o *dashboardOptions) (*plot.Page, error) {
	address := o.prometheus
	if address == "" {
		endpoints, err := e.endpoints()
		if err != nil {
			return nil, err
		}
		if address = endpoints.Prometheus; address == "" {
			return nil, errors.New("the local region has no Prometheus: start it with `hcpctl region up --with observability`, or set --prometheus")
		}
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport.System()})
	if err != nil {
		return nil, err
	}
	page, err := dashboard.Fill(ctx, promv1.NewAPI(client), d, dashboard.Selection{From: o.from, To: o.to, Variables: o.selected})
	var problem *dashboard.Problem
	var unreachable *url.Error
	var refused *promv1.Error
	switch {
	case errors.As(err, &problem):
		return nil, fmt.Errorf("--variable: %w", err)
	case errors.Is(err, context.Canceled):
		return nil, err
	case errors.As(err, &unreachable), errors.As(err, &refused) && refused.Type == promv1.ErrServer:
		return nil, unavailable("reading from Prometheus: %w; a local region has one if it was started with `--with observability`", err)
	}
	return page, err
}

// findDashboards returns the dashboards with some names, or all.
func findDashboards(names []string) ([]*dashboard.Dashboard, error) {
	all := boards.All()
	if len(names) == 0 {
		return all, nil
	}
	var found []*dashboard.Dashboard
	for _, name := range names {
		i := slices.IndexFunc(all, func(d *dashboard.Dashboard) bool { return d.Name == name })
		if i < 0 {
			return nil, notFound("no dashboard is called %q; 'hcpctl dashboard list' lists them", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

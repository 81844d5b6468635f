package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

func printJSON(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// shownDecision is a decision in JSON.
type shownDecision struct {
	Step    string       `json:"step"`
	Target  string       `json:"target"`
	Action  string       `json:"action"`
	Verdict plan.Verdict `json:"verdict"`
	Reasons []string     `json:"reasons"`
}

func printPlan(out io.Writer, decisions []plan.Decision, losses []plan.Loss, format string) error {
	if format == "json" {
		shown := struct {
			Steps  []shownDecision `json:"steps"`
			Losses []string        `json:"losses"`
		}{[]shownDecision{}, []string{}}
		for _, d := range decisions {
			shown.Steps = append(shown.Steps, shownDecision{d.ID, d.Target.String(), d.Step.Action, d.Verdict, append([]string{}, d.Reasons...)})
		}
		for _, l := range losses {
			shown.Losses = append(shown.Losses, l.Name())
		}
		return printJSON(out, shown)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, d := range decisions {
		fmt.Fprintf(table, "%s\t%s\t%s\n", d.Verdict, d.ID, strings.Join(d.Reasons, "; "))
	}
	return table.Flush()
}

func printStatus(out io.Writer, instances []*plan.Instance, record func(*plan.Instance) (state.Record, bool), format string) error {
	if format == "json" {
		shown := map[string]state.Record{}
		for _, instance := range instances {
			if r, found := record(instance); found {
				shown[instance.ID] = r
			}
		}
		return printJSON(out, shown)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, instance := range instances {
		if instance.LeftOut {
			fmt.Fprintf(table, "%s\t%s\t\t\n", instance.ID, plan.LeftOut)
			continue
		}
		r, found := record(instance)
		if !found {
			fmt.Fprintf(table, "%s\tnot run\t\t\n", instance.ID)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", instance.ID, r.Status, r.Started.UTC().Format(time.DateTime), r.Error)
	}
	return table.Flush()
}

// progress prints one line for each change. On a terminal, running steps share the last line and each ended step has one line.
type progress struct {
	out      io.Writer
	terminal bool
	running  map[string]bool
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out, running: map[string]bool{}}
	if f, isFile := out.(*os.File); isFile {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.terminal = err == nil
	}
	return p
}

// clearLine moves to the start of the line and deletes it.
const clearLine = "\r\x1b[K"

func (p *progress) report(e runner.Event) {
	line := fmt.Sprintf("%s %s: %s\n", e.Time.UTC().Format(time.TimeOnly), e.Step, printable(e.Text))
	if !p.terminal {
		_, _ = io.WriteString(p.out, line)
		return
	}
	if e.Ended {
		delete(p.running, e.Step)
		_, _ = io.WriteString(p.out, clearLine+line)
	} else {
		p.running[e.Step] = true
	}
	p.drawRunning()
}

func (p *progress) drawRunning() {
	text := []rune(strings.Join(slices.Sorted(maps.Keys(p.running)), ", "))
	if len(text) > 70 {
		text = append(text[:69], '…')
	}
	if len(text) > 0 {
		text = append([]rune("running: "), text...)
	}
	_, _ = io.WriteString(p.out, clearLine+string(text))
}

// close ends the last line.
func (p *progress) close() {
	if p.terminal {
		_, _ = io.WriteString(p.out, clearLine)
	}
}

// printable replaces control characters, because the text may come from a program.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}

func printResult(out io.Writer, result runner.Result, format string) error {
	if format == "json" {
		return printJSON(out, map[string][]string{"succeeded": append([]string{}, result.Succeeded...), "upToDate": append([]string{}, result.Skipped...),
			"failed": append([]string{}, result.Failed...), "notRun": append([]string{}, result.NotRun...),
			"leftOut": append([]string{}, result.LeftOut...)})
	}
	text := fmt.Sprintf("%d steps succeeded, %d were up to date, %d failed, %d did not run", len(result.Succeeded), len(result.Skipped), len(result.Failed), len(result.NotRun))
	if len(result.LeftOut) > 0 {
		text += fmt.Sprintf(", %d are left out", len(result.LeftOut))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"
)

// compare measures this checkout and another commit alternately and prints, for each figure that both have, the median of each and the ratio of
// this checkout to the commit: the median over the rounds, and the least and the greatest. The programs of the commit are built in a worktree,
// which compare removes. arguments are those of the measurements. With a limit that is not 0, it returns an error that names the figures that
// were worse by more than this ratio in every round.
func compare(ctx context.Context, ref string, rounds int, limit float64, arguments []string, out io.Writer) (err error) {
	if rounds < 1 {
		return errors.New("-rounds: must be at least 1")
	}
	if limit != 0 && limit < 1 {
		return errors.New("-limit: must be at least 1")
	}
	// The path is always the same, so that Go's build cache has what an earlier comparison has compiled.
	worktree, err := filepath.Abs(filepath.Join(".build", "bench-compare"))
	if err != nil {
		return err
	}
	remove := func() error { return exec.Command("git", "worktree", "remove", "--force", worktree).Run() }
	_ = remove() // that of a comparison that was killed
	if _, err := command(ctx, ".", os.Stderr, "git", "worktree", "add", "--quiet", "--detach", "--force", worktree, ref); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	trees := []string{worktree, "."}
	if err := shareThirdParty(ctx, worktree); err != nil {
		return err
	}
	for _, tree := range trees {
		if _, err := command(ctx, tree, os.Stderr, "make", "build"); err != nil {
			return err
		}
		if _, err := command(ctx, tree, os.Stderr, "go", "build", "-o", benchProgram, "./test/bench"); err != nil {
			return err
		}
	}
	var figures figures
	for round := range rounds {
		for i, tree := range trees {
			fmt.Fprintf(out, "round %d of %d: %s\n", round+1, rounds, []string{ref, "this checkout"}[i])
			table := &bytes.Buffer{}
			used, err := command(ctx, tree, table, benchProgram, arguments...)
			if err != nil {
				return fmt.Errorf("%w\n%s", err, table)
			}
			figures.add(i, "CPU of the region and the benchmark", used.Seconds())
			figures.read(i, table)
		}
	}
	fmt.Fprintln(out)
	figures.print(ref, out)
	if worse := figures.worse(limit); limit != 0 && len(worse) > 0 {
		return fmt.Errorf("worse than %s by more than %.2f in every round: %s", ref, limit, strings.Join(worse, "; "))
	}
	return nil
}

// benchProgram is the path of this program in a checkout.
const benchProgram = ".build/bench"

// shareThirdParty lets a worktree use the third-party programs of this checkout. The worktree has links of its own, so that a build with other pins
// changes nothing here.
func shareThirdParty(ctx context.Context, worktree string) error {
	if _, err := os.Stat(".build/third-party"); err != nil {
		return nil //nolint:nilerr // nothing is built yet
	}
	build := filepath.Join(worktree, ".build")
	if err := os.Mkdir(build, 0o755); err != nil {
		return err
	}
	_, err := command(ctx, ".", os.Stderr, "cp", "--archive", ".build/third-party", build)
	return err
}

// command runs a program in a folder. It returns the CPU time of the program and of the processes that it has waited for.
func command(ctx context.Context, dir string, stdout io.Writer, name string, arguments ...string) (cpu time.Duration, err error) {
	c := exec.CommandContext(ctx, name, arguments...)
	c.Dir, c.Stdout, c.Stderr = dir, stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // the measurement stops its region
	if err := c.Run(); err != nil {
		return 0, fmt.Errorf("%s %s: %w", name, strings.Join(arguments, " "), err)
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime(), nil
}

// figures are the values of each figure of the commit and of this checkout, in the order of the table.
type figures struct {
	names  []string
	values map[string]*[2][]float64
	// rates are the names of the figures of which more is better.
	rates map[string]bool
}

func (f *figures) add(tree int, name string, value float64) {
	if f.values[name] == nil {
		if f.values == nil {
			f.values = map[string]*[2][]float64{}
		}
		f.names, f.values[name] = append(f.names, name), &[2][]float64{}
	}
	f.values[name][tree] = append(f.values[name][tree], value)
}

// part is one value of a figure: a label like p50, a number, and a unit.
var part = regexp.MustCompile(`(?:(p50|p99|after) )?([0-9.]+(?:m[0-9.]+s|ms|µs|s|/s| MiB| %| KiB)?)`)

// read adds the figures of the table that report prints.
func (f *figures) read(tree int, table io.Reader) {
	for lines := bufio.NewScanner(table); lines.Scan(); {
		columns := []rune(lines.Text())
		if len(columns) <= nameWidth {
			continue
		}
		name, figure := strings.TrimRight(string(columns[:nameWidth]), " "), string(columns[nameWidth+1:min(len(columns), nameWidth+1+figureWidth)])
		for _, match := range part.FindAllStringSubmatch(figure, -1) {
			value, err := valueOf(match[2])
			if err != nil {
				continue
			}
			labelled := strings.TrimRight(name+" "+match[1], " ")
			f.add(tree, labelled, value)
			if strings.HasSuffix(match[2], "/s") {
				if f.rates == nil {
					f.rates = map[string]bool{}
				}
				f.rates[labelled] = true
			}
		}
	}
}

// valueOf returns a duration in seconds, or the number before another unit.
func valueOf(text string) (float64, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), nil
	}
	number := text[:strings.LastIndexAny(text, "0123456789")+1]
	return strconv.ParseFloat(number, 64)
}

// print prints a line for each figure that was measured in all rounds of both.
func (f *figures) print(ref string, out io.Writer) {
	width := nameWidth
	for _, name := range f.names {
		width = max(width, utf8.RuneCountInString(name))
	}
	fmt.Fprintf(out, "%-*s %12s %12s  ratio (least to greatest)\n", width, "seconds, or the unit of the figure", ref, "now")
	for _, name := range f.names {
		ratios := f.ratios(name)
		if len(ratios) == 0 {
			continue
		}
		before, now := f.values[name][0], f.values[name][1]
		fmt.Fprintf(out, "%-*s %12.4g %12.4g  %.2f (%.2f to %.2f)\n", width, name, middle(before), middle(now), middle(ratios), slices.Min(ratios), slices.Max(ratios))
	}
}

// ratios returns the ratio of this checkout to the commit in each round, or nil if the figure was not measured in all rounds of both.
func (f *figures) ratios(name string) []float64 {
	before, now := f.values[name][0], f.values[name][1]
	if len(before) != len(now) {
		return nil
	}
	ratios := make([]float64, len(before))
	for i := range before {
		ratios[i] = now[i] / before[i]
	}
	return ratios
}

// worse returns the figures that were worse by more than the limit in every round, with their ratios. Those of the machine are not judged.
func (f *figures) worse(limit float64) []string {
	var worse []string
	for _, name := range f.names {
		ratios := f.ratios(name)
		if len(ratios) == 0 || strings.HasPrefix(name, machine) {
			continue
		}
		least, greatest := slices.Min(ratios), slices.Max(ratios)
		if least > limit || f.rates[name] && greatest < 1/limit {
			worse = append(worse, fmt.Sprintf("%s: %.2f (%.2f to %.2f)", name, middle(ratios), least, greatest))
		}
	}
	return worse
}

// middle returns the median; of an even number of values, the mean of the two in the middle.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

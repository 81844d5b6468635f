// Package display prints tables, JSON and YAML, and progress lines that are redrawn in place on a terminal. Without a terminal each
// line is printed when it changes, so that the output is readable in logs.
package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// Table writes rows in columns below a header.
func Table(out io.Writer, header []string, rows [][]string) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, strings.Join(header, "\t")); err != nil {
		return err
	}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			cells[i] = strings.Map(inCell, cell)
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Row is a row of a table: the header and the cell of each column.
type Row [][2]string

// List writes a table with a row for each item. row must accept the zero value of T, which has the headers of an empty list.
func List[T any](out io.Writer, items []T, row func(T) Row) error {
	var none T
	var header []string
	for _, column := range row(none) {
		header = append(header, column[0])
	}
	rows := make([][]string, len(items))
	for i, item := range items {
		for _, column := range row(item) {
			rows[i] = append(rows[i], column[1])
		}
	}
	return Table(out, header, rows)
}

// inCell replaces characters that would end a cell or a line.
func inCell(r rune) rune {
	switch r {
	case '\t', '\n', '\v', '\f', '\r':
		return ' '
	}
	return r
}

// Safe returns a writer that removes terminal control characters. Customers and their workloads choose part of the output.
func Safe(out io.Writer) io.Writer { return safe{out} }

type safe struct{ out io.Writer }

// Write implements io.Writer.
func (s safe) Write(text []byte) (int, error) {
	if _, err := s.out.Write(bytes.Map(harmless, text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// harmless replaces control characters, except tabs and line ends, and characters that change the direction of text.
func harmless(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return '\ufffd'
	}
	return r
}

// Object writes a value as JSON or YAML.
func Object(out io.Writer, format string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if format == "yaml" {
		if data, err = yaml.JSONToYAML(data); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(string(data), "\n"))
	return err
}

// Live redraws a block of lines.
type Live struct {
	out io.Writer
	// width is the width of the terminal; 0 without a terminal.
	width int
	drawn int
	last  map[string]string
}

// NewLive returns a Live that draws to out, in place if out is a terminal.
func NewLive(out io.Writer) *Live {
	live := &Live{out: out, last: map[string]string{}}
	if file, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			live.width = max(int(size.Col), 20)
		}
	}
	return live
}

// Line is a line of a block. Key identifies it across redraws.
type Line struct{ Key, Text string }

// Draw replaces the block. Without a terminal it prints the changed lines.
func (l *Live) Draw(lines []Line) {
	lines = slices.Clone(lines)
	for i := range lines {
		lines[i].Text = strings.Map(harmless, lines[i].Text)
	}
	if l.width == 0 {
		for _, line := range lines {
			if l.last[line.Key] != line.Text {
				l.last[line.Key] = line.Text
				fmt.Fprintln(l.out, line.Text)
			}
		}
		return
	}
	var b strings.Builder
	if l.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", l.drawn)
	}
	for _, line := range lines {
		b.WriteString("\x1b[2K" + shorten(line.Text, l.width-1) + "\n")
	}
	b.WriteString("\x1b[0J")
	l.drawn = len(lines)
	_, _ = io.WriteString(l.out, b.String())
}

// Terminal reports whether lines are drawn in place.
func (l *Live) Terminal() bool { return l.width > 0 }

// shorten truncates text to width characters, because wrapped lines would break redrawing.
func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

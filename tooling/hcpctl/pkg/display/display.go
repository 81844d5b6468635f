// Package display is how hcpctl shows things: tables, JSON and YAML of what is there, and a block of lines that is drawn
// over on a terminal while something is awaited. Where the output is no terminal, every line is printed once when it
// changes, so that a log reads well.
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

// Table writes rows below a header, in columns.
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

// inCell keeps what ends a cell or a line out of one.
func inCell(r rune) rune {
	switch r {
	case '\t', '\n', '\v', '\f', '\r':
		return ' '
	}
	return r
}

// Safe writes to out without the characters by which text can command a terminal. Much of what is shown was said by others: the
// names and messages of customers, and of what runs in their clusters.
func Safe(out io.Writer) io.Writer { return safe{out} }

type safe struct{ out io.Writer }

// Write implements io.Writer.
func (s safe) Write(text []byte) (int, error) {
	if _, err := s.out.Write(bytes.Map(harmless, text)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// harmless replaces control characters but for tabs and line ends, and what turns the direction of text round.
func harmless(r rune) rune {
	switch {
	case r == '\n' || r == '\t':
		return r
	case unicode.IsControl(r), r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069':
		return '\ufffd'
	}
	return r
}

// Object writes a value as json or yaml.
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

// Live draws lines over and over.
type Live struct {
	out io.Writer
	// width is the terminal's; 0 when it is none.
	width int
	drawn int
	last  map[string]string
}

// NewLive draws to out, in place if that is a terminal.
func NewLive(out io.Writer) *Live {
	live := &Live{out: out, last: map[string]string{}}
	if file, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil {
			live.width = max(int(size.Col), 20)
		}
	}
	return live
}

// Line is one line of a block. Key says which line it is from one drawing to the next.
type Line struct{ Key, Text string }

// Draw shows the lines in the place of those before. Without a terminal it prints those that changed.
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

// shorten cuts text to width characters, because a line that wraps would break the drawing.
func shorten(text string, width int) string {
	runes := []rune(text)
	if len(runes) <= width {
		return text
	}
	return string(runes[:width-1]) + "…"
}

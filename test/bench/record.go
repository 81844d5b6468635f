package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// record measures the commit of this checkout and adds a line for each figure to a file: date, commit, figure and value, separated by tabs.
// Durations are in seconds. It returns an error if the checkout differs from its commit.
func record(ctx context.Context, path string, measure func(table io.Writer) error) error {
	changes, commit := &bytes.Buffer{}, &bytes.Buffer{}
	if _, err := command(ctx, ".", changes, "git", "status", "--porcelain"); err != nil {
		return err
	}
	if changes.Len() > 0 {
		return errors.New("-record: the checkout differs from its commit: commit the changes, or measure without -record")
	}
	if _, err := command(ctx, ".", commit, "git", "rev-parse", "--short=8", "HEAD"); err != nil {
		return err
	}
	table := &bytes.Buffer{}
	if err := measure(table); err != nil {
		return err
	}
	var figures figures
	figures.read(0, table)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(figures.lines(time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(commit.String())))
	return errors.Join(err, file.Close())
}

// lines returns the lines of the figures that record adds.
func (f *figures) lines(date, commit string) string {
	var lines strings.Builder
	for _, name := range f.names {
		fmt.Fprintf(&lines, "%s\t%s\t%s\t%.4g\n", date, commit, strings.TrimSpace(name), f.values[name][0][0])
	}
	return lines.String()
}

package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/spf13/cobra"
)

// followEvery is the interval at which followed logs are read.
const followEvery = 200 * time.Millisecond

func (e *environment) regionLogs() *cobra.Command {
	var follow bool
	var tail int
	c := &cobra.Command{
		Use: "logs [PROCESS...]", Short: "Print the logs of processes", ValidArgsFunction: e.completeProcesses(),
		RunE: with(e.stateFolder, func(ctx context.Context, dir string, args []string) error {
			logs, err := openLogs(local.LogDir(dir), args)
			if err != nil {
				return err
			}
			defer func() {
				for _, log := range logs {
					_ = log.file.Close()
				}
			}()
			for _, log := range logs {
				if err := log.seekTail(tail); err != nil {
					return err
				}
				if err := log.copyTo(e.out, len(logs) > 1); err != nil {
					return err
				}
			}
			if !follow {
				return nil
			}
			return followLogs(ctx, e.out, logs)
		}),
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "follow the logs")
	c.Flags().IntVar(&tail, "tail", 100, "`number` of last lines of each log; 0 prints all")
	return c
}

// log is the log file of a process.
type log struct {
	name string
	file *os.File
	// partial is an incomplete last line.
	partial []byte
}

func openLogs(dir string, names []string) ([]*log, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, notFound("no logs in %s: the region was never started", dir)
	}
	var known []string
	for _, path := range paths {
		known = append(known, strings.TrimSuffix(filepath.Base(path), ".log"))
	}
	if len(names) == 0 {
		names = known
	}
	var logs []*log
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, notFound("unknown process %q; processes: %s", name, strings.Join(known, ", "))
		}
		file, err := os.Open(filepath.Join(dir, name+".log"))
		if err != nil {
			return nil, err
		}
		logs = append(logs, &log{name: name, file: file})
	}
	return logs, nil
}

// seekTail moves to the beginning of the last lines.
func (l *log) seekTail(lines int) error {
	size, err := l.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	start := int64(0)
	if lines > 0 {
		start, err = lastLines(l.file, size, lines)
	}
	if err != nil {
		return err
	}
	_, err = l.file.Seek(start, io.SeekStart)
	return err
}

// lastLines returns the offset of the last n lines. It reads backwards.
func lastLines(file io.ReaderAt, size int64, n int) (int64, error) {
	const block = 64 << 10
	newlines := 0
	for end := size; end > 0; {
		start := max(end-block, 0)
		data := make([]byte, end-start)
		if _, err := file.ReadAt(data, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := len(data) - 1; i >= 0; i-- {
			if data[i] != '\n' || start+int64(i) == size-1 {
				continue
			}
			if newlines++; newlines == n {
				return start + int64(i) + 1, nil
			}
		}
		end = start
	}
	return 0, nil
}

// copyTo prints the complete lines that follow, prefixed with the name of the process if named is true.
func (l *log) copyTo(out io.Writer, named bool) error {
	data, err := io.ReadAll(l.file)
	if err != nil {
		return err
	}
	data = append(l.partial, data...)
	end := bytes.LastIndexByte(data, '\n') + 1
	l.partial = slices.Clone(data[end:])
	if !named {
		_, err = out.Write(data[:end])
		return err
	}
	for line := range bytes.Lines(data[:end]) {
		if _, err := out.Write(append([]byte(l.name+" | "), line...)); err != nil {
			return err
		}
	}
	return nil
}

func followLogs(ctx context.Context, out io.Writer, logs []*log) error {
	for {
		if backoff.Sleep(ctx, followEvery) != nil {
			return nil
		}
		for _, log := range logs {
			// A file that became shorter was truncated.
			at, err := log.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			if info, err := log.file.Stat(); err == nil && info.Size() < at {
				if _, err := log.file.Seek(0, io.SeekStart); err != nil {
					return err
				}
				log.partial = nil
			}
			if err := log.copyTo(out, len(logs) > 1); err != nil {
				return err
			}
		}
	}
}

// portsOf returns the ports of a process as text.
func portsOf(p local.ProcessStatus) string {
	var parts []string
	for name, port := range p.Ports {
		parts = append(parts, name+":"+strconv.Itoa(port))
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

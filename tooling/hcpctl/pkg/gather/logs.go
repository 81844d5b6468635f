package gather

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The limits for the log of one process. The newest lines are kept.
const (
	mostLogLines = 5000
	mostLogBytes = 2 << 20
	// longestLine is the maximum length of a line; longer lines are truncated.
	longestLine = 64 << 10
)

// logs adds the log lines that name the cluster. Logs of third-party programs are left out, because they may quote secrets.
func (a *archive) logs(dir string, needles []string) {
	const from = "logs"
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no logs in %s", dir)
	}
	if err != nil {
		a.missing(from, err)
		return
	}
	var lowered [][]byte
	for _, needle := range needles {
		if needle != "" {
			lowered = append(lowered, bytes.ToLower([]byte(needle)))
		}
	}
	for _, file := range files {
		process := strings.TrimSuffix(filepath.Base(file), ".log")
		if thirdParty(process) {
			continue
		}
		var lines tail
		// The older file first.
		for _, name := range []string{file + ".1", file} {
			if err := lines.read(name, lowered); err != nil && !os.IsNotExist(err) {
				a.missing(from, err)
			}
		}
		if len(lines.lines) > 0 {
			a.text("logs/"+process+".log", from, lines.String())
		}
	}
}

// thirdParty reports whether a process of a local region is a third-party program.
func thirdParty(process string) bool {
	return process == "postgres" || process == "etcd" || strings.Contains(process, "kube-")
}

// tail keeps the newest lines.
type tail struct {
	lines [][]byte
	bytes int
	left  int
}

// read returns the lines of a file that contain one of the needles, which are in lower case.
func (t *tail) read(name string, needles [][]byte) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := bufio.NewReaderSize(file, longestLine)
	for {
		line, isPrefix, err := reader.ReadLine()
		if err != nil {
			return nil // the end
		}
		lower := bytes.ToLower(line)
		if slices.ContainsFunc(needles, func(needle []byte) bool { return bytes.Contains(lower, needle) }) {
			t.add(bytes.Clone(line))
		}
		for isPrefix && err == nil {
			_, isPrefix, err = reader.ReadLine()
		}
	}
}

func (t *tail) add(line []byte) {
	t.lines, t.bytes = append(t.lines, line), t.bytes+len(line)+1
	for len(t.lines) > mostLogLines || t.bytes > mostLogBytes {
		t.bytes -= len(t.lines[0]) + 1
		t.lines = t.lines[1:]
		t.left++
	}
}

func (t *tail) String() string {
	text := string(bytes.Join(t.lines, []byte("\n"))) + "\n"
	if t.left > 0 {
		text = fmt.Sprintf("(%d older lines were left out)\n", t.left) + text
	}
	return text
}

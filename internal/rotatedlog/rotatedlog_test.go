package rotatedlog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

const maxLine = 64

// program is a program that writes a log.
type program struct {
	t   *testing.T
	dir string
}

func newProgram(t *testing.T) *program { return &program{t, t.TempDir()} }

func (p *program) path(name string) string { return filepath.Join(p.dir, name) }

func (p *program) write(text string) {
	p.t.Helper()
	file, err := os.OpenFile(p.path("audit.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
	}
	must.Do(p.t, errors.Join(err, file.Close()))
}

func (p *program) rotate(n int) {
	p.t.Helper()
	must.Do(p.t, os.Rename(p.path("audit.log"), p.path(fmt.Sprintf("audit-2026-03-01T08-00-%02d.log", n))))
}

func (p *program) remove(n int) {
	p.t.Helper()
	must.Do(p.t, os.Remove(p.path(fmt.Sprintf("audit-2026-03-01T08-00-%02d.log", n))))
}

func (p *program) reader(at Position) *Reader {
	r := New(p.dir, "audit.log", maxLine, at)
	p.t.Cleanup(r.Close)
	return r
}

// all returns the lines up to the present end of the log, with the names of errors in brackets.
func all(t *testing.T, r *Reader) []string {
	t.Helper()
	var lines []string
	for {
		line, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return lines
		case errors.Is(err, ErrRemoved):
			lines = append(lines, "[removed]")
		case errors.Is(err, ErrTooLong):
			lines = append(lines, "[too long]")
		case err != nil:
			t.Fatal(err)
		default:
			lines = append(lines, string(line))
		}
	}
}

func expect(t *testing.T, r *Reader, want ...string) {
	t.Helper()
	if got := all(t, r); !slices.Equal(got, want) {
		t.Errorf("lines %q, want %q", got, want)
	}
}

func TestReaderFollowsRotations(t *testing.T) {
	p := newProgram(t)
	r := p.reader(Position{})
	expect(t, r)
	p.write("a\nb\nhal")
	expect(t, r, "a", "b")
	p.write("f\n")
	expect(t, r, "half")
	p.write("c\n")
	p.rotate(1)
	expect(t, r, "c")
	p.write("d\n")
	p.rotate(2)
	p.write("e\n")
	p.rotate(3)
	p.write("f\n")
	expect(t, r, "d", "e", "f")
}

func TestReaderContinuesAtItsPosition(t *testing.T) {
	p := newProgram(t)
	r := p.reader(Position{})
	p.write("a\nb\n")
	if line, err := r.Next(); string(line) != "a" || err != nil {
		t.Fatal(string(line), err)
	}
	path := p.path("position")
	must.Do(t, r.Position().Save(path))
	expect(t, r, "b")
	p.rotate(1)
	p.write("c\n")
	at := must.Get(Load(path))(t)
	must.Do(t, r.Seek(at))
	expect(t, r, "b", "c")
	expect(t, p.reader(at), "b", "c")
}

// TestReaderReadsARemovedFileToItsEnd: the reader is in a file that the program rotates and removes with its folder.
func TestReaderReadsARemovedFileToItsEnd(t *testing.T) {
	p := newProgram(t)
	r := p.reader(Position{})
	p.write("a\n")
	expect(t, r, "a")
	p.write("b\n")
	must.Do(t, os.RemoveAll(p.dir))
	expect(t, r, "b")
}

// TestFinishedReaderIgnoresAnotherFolder: the folder was replaced by one of another program.
func TestFinishedReaderIgnoresAnotherFolder(t *testing.T) {
	p := newProgram(t)
	open, unopened := p.reader(Position{}), p.reader(Position{})
	p.write("a\n")
	expect(t, open, "a")
	at := open.Position()
	p.write("b\n")
	must.Do(t, errors.Join(os.RemoveAll(p.dir), os.Mkdir(p.dir, 0o700)))
	p.write("other\n")
	closed := p.reader(at)
	for _, r := range []*Reader{open, unopened, closed} {
		r.Finish()
	}
	expect(t, open, "b")
	expect(t, unopened)
	expect(t, closed, "[removed]")
	expect(t, closed)
}

func TestReaderReportsRemovedFiles(t *testing.T) {
	p := newProgram(t)
	r := p.reader(Position{})
	p.write("a\n")
	expect(t, r, "a")
	at := r.Position()
	p.rotate(1)
	p.write("b\n")
	p.rotate(2)
	p.write("c\n")
	p.remove(1)
	p.remove(2)
	expect(t, r, "[removed]", "c")
	expect(t, p.reader(at), "[removed]", "c")
}

// TestReaderReportsAnotherFileWithTheInode: the program replaced the content of the file of the position.
func TestReaderReportsAnotherFileWithTheInode(t *testing.T) {
	p := newProgram(t)
	p.write("a\nb\n")
	r := p.reader(Position{})
	expect(t, r, "a", "b")
	must.Do(t, os.Truncate(p.path("audit.log"), 0))
	p.write("other\n")
	expect(t, p.reader(r.Position()), "[removed]", "other")
}

// TestReaderContinuesAfterAnotherKindOfFile puts a folder and a pipe in the place of the log. Next returns an error, and continues without a gap when the
// log is back.
func TestReaderContinuesAfterAnotherKindOfFile(t *testing.T) {
	for kind, create := range map[string]func(string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o700) }, "pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		p := newProgram(t)
		p.write("one\n")
		r := p.reader(Position{})
		expect(t, r, "one")
		aside := p.path("aside")
		must.Do(t, errors.Join(os.Rename(p.path("audit.log"), aside), create(p.path("audit.log"))))
		for range 2 {
			if line, err := r.Next(); err == nil || !strings.Contains(err.Error(), "audit.log is not a regular file") {
				t.Errorf("%s: %q, %v", kind, line, err)
			}
		}
		must.Do(t, errors.Join(os.Remove(p.path("audit.log")), os.Rename(aside, p.path("audit.log"))))
		p.write("two\n")
		expect(t, r, "two")
	}
}

func TestReaderReportsLongLines(t *testing.T) {
	p := newProgram(t)
	exact := strings.Repeat("x", maxLine-1)
	p.write(exact + "\n" + exact + "y\n" + strings.Repeat("z", 200<<10) + "\nb\n")
	r := p.reader(Position{})
	expect(t, r, exact, "[too long]", "[too long]", "b")
	expect(t, p.reader(r.Position()))
}

// TestReaderReturnsTheRestOfARotatedFile: the program was killed in the middle of a line and started another file.
func TestReaderReturnsTheRestOfARotatedFile(t *testing.T) {
	p := newProgram(t)
	p.write("a\nhal")
	r := p.reader(Position{})
	expect(t, r, "a")
	p.rotate(1)
	p.write("b\n")
	expect(t, r, "hal", "b")
}

func TestLoadReportsInvalidPositions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position")
	if at, err := Load(path); err != nil || at != (Position{}) {
		t.Errorf("without a file: %+v, %v", at, err)
	}
	must.Do(t, os.WriteFile(path, []byte(`{"inode":`), 0o600))
	if _, err := Load(path); err == nil {
		t.Error("half of a position was accepted")
	}
}

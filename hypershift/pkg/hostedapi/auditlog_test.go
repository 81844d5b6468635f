package hostedapi

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
)

// numbered returns a line with the certificate of the given number.
func numbered(n int) []byte {
	return append(line(func(e map[string]any) {
		e["user"].(map[string]any)["extra"] = map[string]any{credentialID: []string{"X509SHA256=" + number(n)}}
	}), '\n')
}

func number(n int) string { return fmt.Sprintf("%064x", n) }

// logFolder is a folder with an audit log and its reader.
type logFolder struct {
	t      *testing.T
	folder string
	seen   []string
	auditReader
}

func newLogFolder(t *testing.T) *logFolder {
	l := &logFolder{t: t, folder: t.TempDir()}
	l.restart()
	t.Cleanup(l.close)
	return l
}

// restart begins to read from the start, as after a restart of the process.
func (l *logFolder) restart() {
	l.close()
	l.seen = nil
	l.auditReader = auditReader{folder: l.folder, used: func(u hostedreport.CredentialUse) {
		if !slices.Contains(l.seen, u.Fingerprint) {
			l.seen = append(l.seen, u.Fingerprint)
		}
	}}
}

func (l *logFolder) write(name string, text []byte) {
	l.t.Helper()
	file, err := os.OpenFile(filepath.Join(l.folder, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := file.Write(text); err != nil {
		l.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		l.t.Fatal(err)
	}
}

// rotate renames the log, as an API server does before it starts another file.
func (l *logFolder) rotate(n int) {
	l.t.Helper()
	if err := os.Rename(filepath.Join(l.folder, auditLogName), filepath.Join(l.folder, fmt.Sprintf("audit-2026-03-01T08-00-0%d.000.log", n))); err != nil {
		l.t.Fatal(err)
	}
}

// expect reads once and compares all certificates since the last restart.
func (l *logFolder) expect(want ...int) {
	l.t.Helper()
	if err := l.readNew(); err != nil {
		l.t.Fatal(err)
	}
	var numbers []string
	for _, n := range want {
		numbers = append(numbers, number(n))
	}
	if !slices.Equal(l.seen, numbers) {
		l.t.Fatalf("read %v, want %v", l.seen, numbers)
	}
}

func TestFollow(t *testing.T) {
	l := newLogFolder(t)
	l.expect() // there is no log yet
	l.write(auditLogName, numbered(1))
	l.expect(1)

	second := numbered(2)
	l.write(auditLogName, second[:200])
	l.expect(1)
	l.write(auditLogName, second[200:])
	l.expect(1, 2)

	// Lines before and after a rotation.
	l.write(auditLogName, numbered(3))
	l.rotate(1)
	l.write(auditLogName, numbered(4))
	l.expect(1, 2, 3, 4)
	l.rotate(2)
	l.expect(1, 2, 3, 4) // the next event creates the next file
	l.write(auditLogName, numbered(5))
	l.expect(1, 2, 3, 4, 5)
	l.rotate(3)
	l.write(auditLogName, numbered(6))
	l.rotate(4)
	l.write(auditLogName, numbered(7))
	l.expect(1, 2, 3, 4, 5, 6, 7)

	// A line that is too long is skipped, the next one is not.
	l.write(auditLogName, bytes.Repeat([]byte("x"), maxLineBytes+10))
	l.expect(1, 2, 3, 4, 5, 6, 7)
	l.write(auditLogName, append([]byte("y\n"), numbered(8)...))
	l.expect(1, 2, 3, 4, 5, 6, 7, 8)

	// A restarted reader reads everything.
	l.restart()
	l.expect(1, 2, 3, 4, 5, 6, 7, 8)
}

// TestFollowReadsToTheEnd checks that lines that were written just before the end of ctx are read.
func TestFollowReadsToTheEnd(t *testing.T) {
	l := newLogFolder(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan string, 10)
		done := make(chan struct{})
		go func() {
			defer close(done)
			followAuditLog(ctx, l.folder, func(u hostedreport.CredentialUse) { seen <- u.Fingerprint }, slog.New(slog.DiscardHandler))
		}()
		synctest.Wait()
		l.write(auditLogName, numbered(1))
		if first := <-seen; first != number(1) {
			t.Errorf("read %s", first)
		}
		synctest.Wait()
		l.write(auditLogName, numbered(2))
		cancel()
		<-done
		if len(seen) != 1 || <-seen != number(2) {
			t.Error("the last event was not read")
		}
	})
}

package writer_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// laterQueue returns a region whose stopped writer has five records in its queue, and a sixth one that edit changes as a later release could
// write it. Nothing is exported.
func laterQueue(t *testing.T, edit func(line string) string) (r *region, path string, content []byte) {
	t.Helper()
	r, path, content = stoppedQueue(t)
	lines := bytes.Split(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	last := must.Get(audit.ParseLine(lines[len(lines)-1]))(t)
	encoded := must.Get(audit.EncodeRecord(record(5)))(t)
	text, _ := audit.AppendRecord(nil, audit.Head{Writer: last.Writer, Time: time.Now()}, last.At(0, len(content)), audit.Entry{Record: encoded})
	changed, _, _ := strings.Cut(edit(string(text)), `,"hash":"`)
	sum := sha256.Sum256([]byte(changed))
	content = append(content, changed+`,"hash":"`+hex.EncodeToString(sum[:])+"\"}\n"...)
	must.Do(t, os.WriteFile(path, content, 0o600))
	return r, path, content
}

// TestQueueOfLaterReleaseIsContinued opens a queue with members that this release does not know, as after a rollback. A program that took the
// line for a broken one would remove it with all lines after it, and continue another chain than the one in the sink.
func TestQueueOfLaterReleaseIsContinued(t *testing.T) {
	r, _, _ := laterQueue(t, func(line string) string {
		return strings.Replace(strings.Replace(line, `"record":{`, `"later":{"a":1},"record":{"later":["b"],`, 1), `,"hash":`, `,"flag":true,"hash":`, 1)
	})
	r.sink.down.Store(false)
	w, stop := r.start(t)
	must.Do(t, w.Append(t.Context(), record(6)))
	stop()
	if report := r.noFindings(t); len(report.Chains) != 1 || report.Chains[0].Records != 7 {
		t.Errorf("the sink has %+v", report.Chains)
	}
	later := 0
	for _, line := range r.lines(t) {
		if strings.Contains(line, `"later":{"a":1},"record":{"later":["b"],`) {
			later++
		}
	}
	if later != 1 {
		t.Errorf("the sink has the line of the later release %d times", later)
	}
}

// TestQueueWithUnknownKindIsNotOpened checks that a program does not remove a line of a kind that it does not know.
func TestQueueWithUnknownKindIsNotOpened(t *testing.T) {
	r, path, content := laterQueue(t, func(line string) string { return strings.Replace(line, `"kind":"record"`, `"kind":"summary"`, 1) })
	if _, err := r.open(); !errors.Is(err, audit.ErrUnknownKind) || !strings.Contains(err.Error(), "summary") {
		t.Errorf("opened with %v", err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		t.Errorf("the queue has changed: %v", err)
	}
}

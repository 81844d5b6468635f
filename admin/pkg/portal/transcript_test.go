package portal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// castHeader is the first line of an asciicast.
const castHeader = `{"version":2,"width":80,"height":24,"timestamp":1764043200,"title":"exec default/web -- sh"}` + "\n"

// linesOf returns the entries of a transcript as lines.
func linesOf(t *transcript) (lines []string) {
	for _, e := range t.Entries {
		lines = append(lines, fmt.Sprintf("%.1f %s %q", e.Seconds(), e.Code.Name(), e.Text()))
	}
	return lines
}

// TestTranscriptJoinsEvents: events of one kind that follow each other are one entry, also if a control sequence is in two of them, and however the
// asciicast is divided into writes.
func TestTranscriptJoinsEvents(t *testing.T) {
	t.Parallel()
	cast := castHeader + `[0.1, "r", "80x24"]` + "\n" + `[0.5, "i", "l"]` + "\n" + `[0.6, "i", "s\r"]` + "\n" + `[0.7, "o", "\u001b[3"]` + "\n" + `[0.8, "o", "1mred\u001b[0m\r\n\u001b]0;title\u0007ok"]` + "\n" +
		`[9.0, "o", "late\u202e\u0000"]` + "\n" + `[9.5, "m", "{\"status\":\"Success\"}"]` + "\n"
	want := []string{`0.1 resized "80x24"`, `0.5 typed "ls⏎\n"`, `0.7 shown "red\nok"`, `9.0 shown "late` + "\uFFFD\uFFFD" + `"`, `9.5 note "{\"status\":\"Success\"}"`}
	for _, size := range []int{1, 7, len(cast)} {
		var got transcript
		for rest := cast; rest != ""; {
			n := min(size, len(rest))
			if written, err := got.Write([]byte(rest[:n])); written != n || err != nil {
				t.Fatal(written, err)
			}
			rest = rest[n:]
		}
		if diff := cmp.Diff(want, linesOf(&got)); diff != "" || got.Cut || got.Unreadable {
			t.Errorf("writes of %d bytes: cut %v, unreadable %v (-want +got):\n%s", size, got.Cut, got.Unreadable, diff)
		}
	}
}

// TestTranscriptIsBounded: a long recording is cut, by size and by entries, and a line that is none of an asciicast ends the transcript.
func TestTranscriptIsBounded(t *testing.T) {
	t.Parallel()
	write := func(lines ...string) *transcript {
		var got transcript
		for _, line := range append([]string{strings.TrimSpace(castHeader)}, lines...) {
			must.Get(got.Write([]byte(line + "\n")))(t)
		}
		return &got
	}
	large := fmt.Sprintf(`[0.1, "o", %q]`, strings.Repeat("x", maxTranscript/2))
	if got := write(large, large, `[0.1, "o", "y"]`); !got.Cut || len(got.Entries) != 1 || len(got.Entries[0].Text()) != maxTranscript {
		t.Errorf("cut %v, %d entries", got.Cut, len(got.Entries))
	}
	var many []string
	for i := range 2 * maxEntries {
		many = append(many, fmt.Sprintf(`[%d.0, "m", "x"]`, i))
	}
	if got := write(many...); !got.Cut || len(got.Entries) != maxEntries {
		t.Errorf("cut %v, %d entries", got.Cut, len(got.Entries))
	}
	if got := write(`[0.1, "o", "a"]`, "no event", `[0.2, "o", "b"]`); !got.Unreadable || got.Cut || len(got.Entries) != 1 || got.Entries[0].Text() != "a" {
		t.Errorf("unreadable %v: %q", got.Unreadable, linesOf(got))
	}
	if got := write(strings.Repeat("x", 3<<20)); !got.Unreadable || got.line.Len() > 2<<20 {
		t.Errorf("a long line: unreadable %v", got.Unreadable)
	}
}

// FuzzTranscript checks that no text of a recording is a control character on the page.
func FuzzTranscript(f *testing.F) {
	f.Add("\x1b[31mred\x1b[0m", true)
	f.Add("\x1b]0;title\x07\x1bPq\x1b\\\x9b1m", false)
	f.Fuzz(func(t *testing.T, text string, typed bool) {
		if plain := plainText(text, typed); strings.ContainsFunc(plain, func(c rune) bool { return c < ' ' && c != '\n' && c != '\t' || c >= 0x7f && c < 0xa0 || c == '\u202e' }) {
			t.Errorf("%q became %q", text, plain)
		}
	})
}

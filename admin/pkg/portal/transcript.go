package portal

import (
	"bytes"
	"regexp"
	"strings"
	"time"
	"unicode"

	"github.com/hcpmesh/hcpmesh/internal/recording"
)

const (
	// maxTranscript is the number of bytes of a recording that a page shows.
	maxTranscript = 512 << 10
	// maxEntries is the number of entries that a page shows.
	maxEntries = 5000
	// entryPause is the pause after which further events of the same kind are another entry.
	entryPause = time.Second
)

// entry is a part of a transcript: events of one kind, one soon after the other.
type entry struct {
	// At is the time since the beginning of the recording.
	At   time.Duration
	Code recording.Code
	// raw is the data of the events, with the control sequences of terminals.
	raw  strings.Builder
	last time.Duration
}

// Seconds returns At in seconds.
func (e *entry) Seconds() float64 { return e.At.Seconds() }

// Text returns the entry without the control sequences of terminals.
func (e *entry) Text() string { return plainText(e.raw.String(), e.Code == recording.Input) }

// transcript is the beginning of an asciicast that is written to it. It reads the rest without keeping it.
type transcript struct {
	Entries []*entry
	// Cut means that the recording has more than the transcript.
	Cut bool
	// Unreadable means that a line is not one of an asciicast; nothing after it was read.
	Unreadable bool

	line   bytes.Buffer
	header bool
	size   int
}

// Write implements io.Writer.
func (t *transcript) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0 && !t.Unreadable; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			end = len(rest)
		}
		if t.line.Len()+end > recording.MaxLine {
			t.Unreadable = true
			break
		}
		t.line.Write(rest[:end])
		if end == len(rest) {
			break
		}
		rest = rest[end+1:]
		t.add(t.line.Bytes())
		t.line.Reset()
	}
	return len(data), nil
}

// add adds a line.
func (t *transcript) add(line []byte) {
	if !t.header {
		_, err := recording.ParseHeader(line)
		t.header, t.Unreadable = true, err != nil
		return
	}
	event, err := recording.ParseEvent(line)
	if err != nil {
		t.Unreadable = true
		return
	}
	if t.Cut || t.size+len(event.Data) > maxTranscript {
		t.Cut = true
		return
	}
	t.size += len(event.Data)
	if n := len(t.Entries); n > 0 {
		if last := t.Entries[n-1]; last.Code == event.Code && (event.Code == recording.Input || event.Code == recording.Output) && event.Time-last.last <= entryPause {
			last.raw.WriteString(event.Data)
			last.last = event.Time
			return
		}
	}
	if len(t.Entries) == maxEntries {
		t.Cut = true
		return
	}
	next := &entry{At: event.Time, Code: event.Code, last: event.Time}
	next.raw.WriteString(event.Data)
	t.Entries = append(t.Entries, next)
}

// controlSequence matches the control sequences of terminals (ECMA-48): CSI with its parameters, OSC and other strings up to their end, and escape sequences of
// two or three characters.
var controlSequence = regexp.MustCompile(`\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(\x07|\x1b\\)?|\x1b[ -/]*[0-~]`)

// plainText returns text of a terminal without control sequences. The return key of input is shown, and other characters that a browser would not show
// are U+FFFD.
func plainText(text string, typed bool) string {
	text = controlSequence.ReplaceAllString(text, "")
	if typed {
		text = strings.ReplaceAll(text, "\r", "⏎\n")
	} else {
		text = strings.ReplaceAll(text, "\r\n", "\n")
	}
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || !unicode.IsControl(c) && !unicode.Is(unicode.Cf, c) {
			return c
		}
		return unicode.ReplacementChar
	}, text)
}

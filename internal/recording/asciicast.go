package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Code is the type of an event of an asciicast.
type Code string

// The types.
const (
	Input  Code = "i"
	Output Code = "o"
	// Resize has the new size of the terminal, as in 80x24.
	Resize Code = "r"
	// Marker has a text about the recording, for example how its command ended.
	Marker Code = "m"
)

// Name returns the name of the type for people.
func (c Code) Name() string {
	switch c {
	case Input:
		return "typed"
	case Output:
		return "shown"
	case Resize:
		return "resized"
	case Marker:
		return "note"
	}
	return string(c)
}

// The size of a terminal before the first Resize event.
const (
	DefaultWidth  = 80
	DefaultHeight = 24
)

// MaxLine is the maximum length of a line of an asciicast and of a Log in bytes, with its newline. The longest line is that of a
// command with 64 KiB of arguments.
const MaxLine = 2 << 20

// maxData is the maximum number of bytes in one event. Longer messages are several events of the same time.
const maxData = 16 << 10

// Header is the first line of an asciicast.
type Header struct {
	Version int `json:"version"`
	// Width and Height are the size of the terminal in characters.
	Width  int `json:"width"`
	Height int `json:"height"`
	// Timestamp is the beginning in seconds since 1970.
	Timestamp int64  `json:"timestamp"`
	Title     string `json:"title"`
}

// Event is a line of an asciicast after its header.
type Event struct {
	// Time is the time since the beginning.
	Time time.Duration
	Code Code
	Data string
}

// Size returns the size of a Resize event. ok is false if it has none.
func (e *Event) Size() (width, height int, ok bool) {
	before, after, found := strings.Cut(e.Data, "x")
	width, widthErr := strconv.Atoi(before)
	height, heightErr := strconv.Atoi(after)
	return width, height, found && widthErr == nil && heightErr == nil && width > 0 && height > 0 && width <= maxSize && height <= maxSize
}

// maxSize is the maximum width and height of a terminal, those of the protocol.
const maxSize = 1<<16 - 1

// appendHeader appends the first line.
func appendHeader(to []byte, h Header) []byte {
	return appendJSON(to, h)
}

// appendEvent appends the line of an event. Bytes of the data that are not UTF-8 become U+FFFD.
func appendEvent(to []byte, at time.Duration, code Code, data string) []byte {
	to = append(to, '[')
	to = strconv.AppendFloat(to, at.Seconds(), 'f', 6, 64)
	to = append(to, `, "`...)
	to = append(to, code...)
	to = append(to, `", `...)
	to = appendJSON(to, data)
	return append(to[:len(to)-1], "]\n"...)
}

// appendJSON appends a value and a newline.
func appendJSON(to []byte, value any) []byte {
	buffer := bytes.NewBuffer(to)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(value) // strings and numbers
	return buffer.Bytes()
}

// text holds back the end of the bytes of a stream while it is an incomplete character.
type text struct {
	left []byte
}

// take returns the complete characters of what was held back and of more.
func (t *text) take(more []byte) []byte {
	all := append(t.left, more...)
	end := len(all)
	for i := 1; i <= min(utf8.UTFMax-1, len(all)); i++ {
		if tail := all[len(all)-i:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				end = len(all) - i
			}
			break
		}
	}
	t.left = bytes.Clone(all[end:])
	return all[:end]
}

// split calls each with parts of data of at most maxData bytes that begin and end with characters.
func split(data []byte, each func(part []byte)) {
	for len(data) > 0 {
		end := min(len(data), maxData)
		for back := 0; end < len(data) && back < utf8.UTFMax-1 && !utf8.RuneStart(data[end]); back++ {
			end--
		}
		each(data[:end])
		data = data[end:]
	}
}

// ErrFormat is the error for content that is not a recording.
var ErrFormat = errors.New("it is not a recording")

// ParseHeader returns the header of an asciicast of version 2.
func ParseHeader(line []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(line, &h); err != nil || h.Version != 2 {
		return Header{}, fmt.Errorf("%w: its header is not that of an asciicast of version 2", ErrFormat)
	}
	return h, nil
}

// ParseEvent returns the event of a line.
func ParseEvent(line []byte) (Event, error) {
	var fields []json.RawMessage
	var seconds float64
	var e Event
	if err := json.Unmarshal(line, &fields); err != nil || len(fields) != 3 {
		return Event{}, fmt.Errorf("%w: a line is not an event of an asciicast", ErrFormat)
	}
	if err := errors.Join(json.Unmarshal(fields[0], &seconds), json.Unmarshal(fields[1], &e.Code), json.Unmarshal(fields[2], &e.Data)); err != nil || seconds < 0 || seconds > maxSeconds {
		return Event{}, fmt.Errorf("%w: a line is not an event of an asciicast", ErrFormat)
	}
	e.Time = time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
	return e, nil
}

// maxSeconds is the maximum time of an event: a year.
const maxSeconds = 365 * 24 * 60 * 60

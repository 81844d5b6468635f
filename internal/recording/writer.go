package recording

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// firstLine is the first line of a Log.
type firstLine struct {
	Format string `json:"format"`
	// Facts are the Facts. Their bytes are part of the purpose for which the key is sealed.
	Facts json.RawMessage `json:"facts"`
	// Key is the key of the recording, sealed for its readers.
	Key []byte `json:"key"`
	// Signature is that of the Facts and the Key. Releases before signatures did not write it.
	Signature *audit.Signature `json:"signature,omitempty"`
}

// line is a further line of a Log.
type line struct {
	// Content is the encrypted part of the asciicast.
	Content []byte `json:"c"`
	// End is set in the last line. Its bytes are authenticated with the content.
	End json.RawMessage `json:"end,omitempty"`
}

// format is the format of a Log.
const format = "hcpmesh.recording.v1"

// keySize is the size of the key of a recording: AES-256-GCM.
const keySize = 32

// purpose returns the purpose for which the key of a recording is sealed: its facts.
func purpose(facts []byte) string {
	sum := sha256.Sum256(facts)
	return "access-recording/" + hex.EncodeToString(sum[:])
}

// signer is the service that records, and domain is that of its signatures.
const (
	signer = string(mesh.GatewayAccess)
	domain = "hcpmesh recording"
)

// signed returns the text whose signature a first line has: the purpose of the key, which contains the digest of the facts, and the sealed key.
func (l *firstLine) signed() []byte {
	return append([]byte(purpose(l.Facts)+"\n"), l.Key...)
}

// newCipher returns the cipher of a key.
func newCipher(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// nonce returns the nonce of a line: its number, and whether it is the last one. Each recording has its own key, so that no nonce is used twice.
func nonce(number uint64, last bool) []byte {
	n := make([]byte, 12)
	if last {
		n[0] = 1
	}
	binary.BigEndian.PutUint64(n[4:], number)
	return n
}

// Writer returns the lines of a Log. It is not safe for concurrent use.
type Writer struct {
	aead  cipher.AEAD
	start time.Time
	// number is that of the last line, and written that of the last line before the last call.
	number, written uint64
	// input, output and errors hold back incomplete characters of the streams.
	input, output, errors text
}

// NewWriter returns a Writer, and the first lines of the Log: the facts, signed, and the header of the asciicast. The title has the kind, the pod and
// the command, which may be empty. Times of events are relative to the start, with its monotonic clock if it has one.
func NewWriter(keys *seal.PublicKeys, signing *audit.SigningKey, facts Facts, command []string) (w *Writer, first []byte, err error) {
	if !ValidID(facts.ID) {
		return nil, nil, errors.New("the ID of the recording is not a UUID")
	}
	start := facts.Start
	facts.Start = start.UTC()
	encoded, err := json.Marshal(facts)
	if err != nil {
		return nil, nil, err
	}
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // never fails
	sealed, err := keys.Seal(purpose(encoded), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sealing the key of a recording: %w", err)
	}
	aead, err := newCipher(key)
	if err != nil {
		return nil, nil, err
	}
	beginning := firstLine{Format: format, Facts: encoded, Key: sealed}
	signature, err := signing.Sign(domain, beginning.signed())
	if err != nil {
		return nil, nil, fmt.Errorf("signing a recording: %w", err)
	}
	beginning.Signature = &signature
	w = &Writer{aead: aead, start: start}
	first = appendJSON(nil, beginning)
	header := appendHeader(nil, Header{Version: 2, Width: DefaultWidth, Height: DefaultHeight, Timestamp: facts.Start.Unix(), Title: title(&facts, command)})
	return w, w.append(first, header, nil), nil
}

// title returns the title of a recording.
func title(facts *Facts, command []string) string {
	parts := []string{strings.TrimPrefix(facts.Kind, "pods/"), facts.Namespace + "/" + facts.Pod}
	if facts.Container != "" {
		parts = append(parts, "-c", facts.Container)
	}
	if len(command) > 0 {
		parts = append(parts, "--")
	}
	for _, argument := range command {
		if argument == "" || strings.ContainsFunc(argument, func(r rune) bool { return !strconv.IsGraphic(r) || strings.ContainsRune(" \"'\\", r) }) {
			argument = strconv.Quote(argument)
		}
		parts = append(parts, argument)
	}
	return strings.Join(parts, " ")
}

// append appends the line with a part of the asciicast.
func (w *Writer) append(to, part []byte, end json.RawMessage) []byte {
	w.number++
	return appendJSON(to, line{Content: w.aead.Seal(nil, nonce(w.number, end != nil), part, end), End: end})
}

// Stream is a stream of a command.
type Stream int

// The streams.
const (
	Stdin Stream = iota
	Stdout
	Stderr
)

// Data returns the lines for data of a stream at a time; none if the data is empty or the beginning of a character.
func (w *Writer) Data(at time.Time, stream Stream, data []byte) []byte {
	w.written = w.number
	held, code := &w.input, Input
	switch stream {
	case Stdout:
		held, code = &w.output, Output
	case Stderr:
		held, code = &w.errors, Output
	}
	var lines []byte
	split(held.take(data), func(part []byte) {
		lines = w.append(lines, appendEvent(nil, w.since(at), code, string(part)), nil)
	})
	return lines
}

// Resize returns the line for a new size of the terminal.
func (w *Writer) Resize(at time.Time, width, height uint16) []byte {
	w.written = w.number
	return w.append(nil, appendEvent(nil, w.since(at), Resize, fmt.Sprintf("%dx%d", width, height)), nil)
}

// Marker returns the line for a text about the recording. It is cut after maxData bytes.
func (w *Writer) Marker(at time.Time, text string) []byte {
	w.written = w.number
	return w.append(nil, w.marker(at, text), nil)
}

func (w *Writer) marker(at time.Time, text string) []byte {
	return appendEvent(nil, w.since(at), Marker, strings.ToValidUTF8(text[:min(len(text), maxData)], ""))
}

// Undo states that the lines of the last call are not part of the Log. Afterwards only End may be called: another line would have the nonce of one
// of them.
func (w *Writer) Undo() { w.number = w.written }

// End returns the last line. The Writer must not be used afterwards.
func (w *Writer) End(end End) []byte {
	var events []byte
	for _, held := range []struct {
		code Code
		left []byte
	}{{Input, w.input.left}, {Output, w.output.left}, {Output, w.errors.left}} {
		if len(held.left) > 0 {
			events = appendEvent(events, w.since(end.Time), held.code, string(held.left))
		}
	}
	encoded, _ := json.Marshal(end) // a string and a time
	return w.append(nil, append(events, w.marker(end.Time, end.Reason)...), encoded)
}

func (w *Writer) since(at time.Time) time.Duration { return max(at.Sub(w.start), 0) }

package recording

import (
	"bufio"
	"bytes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// ErrChanged is returned for a Log that was changed after it was written, and for one that no key of the reader opens.
var ErrChanged = errors.New("the recording was changed, or it was sealed with another key")

// ErrUnsigned is returned for a Log that the session gateway has not signed. Everybody who has the public key of the readers can write such a Log.
var ErrUnsigned = errors.New("no valid signature of the session gateway")

// Line is what a line of a Log states in clear text.
type Line struct {
	// Facts are those of the first line.
	Facts *Facts
	// End is that of the last line of a complete Log.
	End *End
}

// ParseLine returns what a line of a Log states in clear text, without its newline. Only a Reader verifies it.
func ParseLine(content []byte, first bool) (Line, error) {
	if first {
		parsed, err := parseFirst(content)
		if err != nil {
			return Line{}, err
		}
		return Line{Facts: &parsed.facts}, nil
	}
	parsed, err := parseLine(content)
	if err != nil || parsed.End == nil {
		return Line{}, err
	}
	var end End
	if json.Unmarshal(parsed.End, &end) != nil {
		return Line{}, ErrFormat
	}
	return Line{End: &end}, nil
}

type parsedFirst struct {
	firstLine
	facts Facts
}

func parseFirst(content []byte) (*parsedFirst, error) {
	var parsed parsedFirst
	if err := json.Unmarshal(content, &parsed.firstLine); err != nil || parsed.Format != format || json.Unmarshal(parsed.Facts, &parsed.facts) != nil || !ValidID(parsed.facts.ID) {
		return nil, fmt.Errorf("%w: its first line is not that of the format %s", ErrFormat, format)
	}
	return &parsed, nil
}

func parseLine(content []byte) (*line, error) {
	var parsed line
	if err := json.Unmarshal(content, &parsed); err != nil || len(parsed.Content) == 0 {
		return nil, fmt.Errorf("%w: a line is not encrypted content", ErrFormat)
	}
	return &parsed, nil
}

// verify returns an error unless one of the keys has signed the line.
func (p *parsedFirst) verify(keys audit.Keys) error {
	if p.Signature == nil {
		return fmt.Errorf("%w: its first line has none", ErrUnsigned)
	}
	if err := keys.VerifySignature(signer, domain, p.facts.Start, p.signed(), *p.Signature); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsigned, err)
	}
	return nil
}

// Reader decrypts and verifies a Log. It is not safe for concurrent use.
type Reader struct {
	lines *bufio.Reader
	facts Facts
	// unverified is set if nobody has verified the signature.
	unverified bool
	aead       cipher.AEAD
	number     uint64
	end        *End
}

// NewReader reads the first line of a Log, verifies that the session gateway has signed it, and opens its key. It returns an error that wraps
// ErrUnsigned if none of the keys of the gateway has signed it.
func NewReader(log io.Reader, opening *seal.PrivateKeys, signers audit.Keys) (*Reader, error) {
	return newReader(log, opening, func(first *parsedFirst) error { return first.verify(signers) })
}

// NewUnverifiedReader is NewReader without a verification of the signature: the Log may be forged. WriteAsciicast states that in the title.
func NewUnverifiedReader(log io.Reader, opening *seal.PrivateKeys) (*Reader, error) {
	r, err := newReader(log, opening, func(*parsedFirst) error { return nil })
	if err != nil {
		return nil, err
	}
	r.unverified = true
	return r, nil
}

func newReader(log io.Reader, opening *seal.PrivateKeys, verify func(*parsedFirst) error) (*Reader, error) {
	r := &Reader{lines: bufio.NewReaderSize(log, 64<<10)}
	content, err := r.next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it is empty", ErrFormat)
		}
		return nil, err
	}
	parsed, err := parseFirst(content)
	if err != nil {
		return nil, err
	}
	if err := verify(parsed); err != nil {
		return nil, err
	}
	key, err := opening.Open(purpose(parsed.Facts), parsed.Key)
	if err != nil || len(key) != keySize {
		return nil, ErrChanged
	}
	r.facts = parsed.facts
	r.aead, err = newCipher(key)
	return r, err
}

// Facts returns the facts of the recording, for which its key was sealed.
func (r *Reader) Facts() Facts { return r.facts }

// End returns the end of a complete recording after Next has returned io.EOF; nil if the end is missing.
func (r *Reader) End() *End { return r.end }

// Next returns the next part of the asciicast, whole lines of it. It returns io.EOF at the end of a complete recording, and at the last complete
// line of one without an end.
func (r *Reader) Next() ([]byte, error) {
	content, err := r.next()
	if err != nil {
		return nil, err
	}
	if r.end != nil {
		return nil, ErrChanged // something follows the end
	}
	parsed, err := parseLine(content)
	if err != nil {
		return nil, err
	}
	r.number++
	part, err := r.aead.Open(nil, nonce(r.number, parsed.End != nil), parsed.Content, parsed.End)
	if err != nil {
		return nil, ErrChanged
	}
	if parsed.End != nil {
		r.end = &End{}
		if err := json.Unmarshal(parsed.End, r.end); err != nil {
			return nil, ErrFormat
		}
	}
	return part, nil
}

// next returns a line without its newline. An incomplete last line is the end: it was being written.
func (r *Reader) next() ([]byte, error) {
	var long []byte
	for {
		content, err := r.lines.ReadSlice('\n')
		switch {
		case err == nil && len(long) == 0:
			return bytes.TrimSuffix(content, []byte("\n")), nil
		case err == nil:
			return bytes.TrimSuffix(append(long, content...), []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long)+len(content) > MaxLine:
			return nil, fmt.Errorf("%w: a line is longer than %d bytes", ErrFormat, MaxLine)
		}
		long = append(long, content...)
	}
}

// unverifiedTitle is the beginning of the title of an asciicast whose signature was not verified.
const unverifiedTitle = "NOT VERIFIED: "

// WriteAsciicast writes the asciicast of the recording to w. The header has the size of the terminal if the first event sets it. It returns an error of w, or
// ErrChanged or ErrFormat after it has written what is before the change.
func (r *Reader) WriteAsciicast(w io.Writer) error {
	header, err := r.Next()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it has no header", ErrFormat)
		}
		return err
	}
	parsed, err := ParseHeader(header)
	if err != nil {
		return err
	}
	if r.unverified {
		parsed.Title = unverifiedTitle + parsed.Title
		header = appendHeader(nil, parsed)
	}
	for {
		part, err := r.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if header != nil {
			if e, eventErr := ParseEvent(part); eventErr == nil && e.Code == Resize {
				if width, height, ok := e.Size(); ok {
					parsed.Width, parsed.Height = width, height
					header = appendHeader(nil, parsed)
				}
			}
			if _, err := w.Write(header); err != nil {
				return err
			}
			header = nil
		}
		if err != nil {
			return nil
		}
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
}

package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The kinds of lines.
const (
	RecordLine     = "record"
	CheckpointLine = "checkpoint"
)

// MaxLine is the maximum length of a line in bytes, with its newline.
const MaxLine = 256 << 10

// Line is a decoded line of a chain.
type Line struct {
	Kind string `json:"kind"`
	// Writer is the name of the writer, as NewWriterName returns it. All lines of a chain have the same.
	Writer string `json:"writer"`
	// Sequence is the number of the line in its chain, from 1.
	Sequence uint64 `json:"sequence"`
	// Previous is the hash of the line before, and Genesis for the first line.
	Previous string    `json:"previous"`
	Time     time.Time `json:"time"`
	// Durable is the sequence number up to which the writer knew its chain to be on the disk when it wrote the line. A line without it is
	// of the beginning of a chain, or of an earlier release.
	Durable uint64 `json:"durable,omitempty"`
	// Record is the record of a line of the kind record.
	Record *Record `json:"record,omitempty"`
	// Pending is set for the record of an action that has begun: the record of its outcome follows in the chain. Completes is the sequence
	// number of the pending record whose outcome a record has.
	Pending   bool   `json:"pending,omitempty"`
	Completes uint64 `json:"completes,omitempty"`
	// End is set for the checkpoint with which a writer closes its chain. A writer that starts again continues behind it with a checkpoint.
	End bool `json:"end,omitempty"`
	// Key is the ID of the key of a checkpoint, Signature its signature.
	Key       string `json:"key,omitempty"`
	Signature string `json:"signature,omitempty"`
	// Hash is the SHA-256 of the bytes of the line before the member hash, in lower-case hex.
	Hash string `json:"hash"`
}

// Genesis is the previous hash of the first line of a chain.
const Genesis = "0000000000000000000000000000000000000000000000000000000000000000"

// Position is a place in a chain: after its line Sequence, which has the hash Hash and ends at byte Offset. The zero position
// is the beginning.
type Position struct {
	Sequence uint64
	Hash     string
	Offset   int64
}

// previous returns the previous hash of the next line.
func (p Position) previous() string {
	if p.Sequence == 0 {
		return Genesis
	}
	return p.Hash
}

const hashMember, hashEnd = `,"hash":"`, `"}`

// suffix is the length of the last member and the closing brace.
const suffix = len(hashMember) + 2*sha256.Size + len(hashEnd)

// Head is what all lines have in common that a writer writes at once.
type Head struct {
	Writer string
	Time   time.Time
	// Durable is the sequence number of the last line that is known to be on the disk.
	Durable uint64
}

// Entry is the content of a line with a record.
type Entry struct {
	// Record is encoded by EncodeRecord.
	Record []byte
	// Pending and Completes are those of Line.
	Pending   bool
	Completes uint64
}

// AppendRecord appends the line after a position to buffer, with its newline. It returns the position after the line.
func AppendRecord(buffer []byte, head Head, at Position, entry Entry) ([]byte, Position) {
	begin := len(buffer)
	buffer = appendHead(buffer, RecordLine, head, at)
	buffer = append(buffer, `,"record":`...)
	buffer = append(buffer, entry.Record...)
	if entry.Pending {
		buffer = append(buffer, `,"pending":true`...)
	}
	if entry.Completes > 0 {
		buffer = append(buffer, `,"completes":`...)
		buffer = strconv.AppendUint(buffer, entry.Completes, 10)
	}
	return seal(buffer, begin, at)
}

// AppendCheckpoint appends a signed line after a position to buffer, like AppendRecord.
func AppendCheckpoint(buffer []byte, head Head, at Position, key *SigningKey) ([]byte, Position, error) {
	return appendSigned(buffer, head, at, key, false)
}

// AppendEnd appends the checkpoint with Line.End, like AppendCheckpoint.
func AppendEnd(buffer []byte, head Head, at Position, key *SigningKey) ([]byte, Position, error) {
	return appendSigned(buffer, head, at, key, true)
}

func appendSigned(buffer []byte, head Head, at Position, key *SigningKey, end bool) ([]byte, Position, error) {
	begin, pair := len(buffer), key.current()
	buffer = appendHead(buffer, CheckpointLine, head, at)
	if end {
		// Earlier releases ignore the member. They do not know other kinds of lines, and could not continue the queue after a rollback.
		buffer = append(buffer, `,"end":true`...)
	}
	buffer = append(buffer, `,"key":"`...)
	buffer = append(buffer, pair.id...)
	buffer = append(buffer, '"')
	signature, err := pair.sign(checkpointDomain, buffer[begin:])
	if err != nil {
		return nil, at, err
	}
	buffer = append(buffer, signatureMember...)
	buffer = base64.RawURLEncoding.AppendEncode(buffer, signature)
	buffer = append(buffer, '"')
	buffer, next := seal(buffer, begin, at)
	return buffer, next, nil
}

const signatureMember = `,"signature":"`

// EncodeRecord returns the encoded form of a record. It bounds the record.
func EncodeRecord(r Record) ([]byte, error) {
	encoded, err := json.Marshal(r.Bounded())
	if err != nil {
		return nil, fmt.Errorf("encoding an audit record: %w", err)
	}
	return encoded, nil
}

func appendHead(buffer []byte, kind string, head Head, at Position) []byte {
	buffer = append(buffer, `{"kind":"`...)
	buffer = append(buffer, kind...)
	buffer = append(buffer, `","writer":"`...)
	buffer = append(buffer, head.Writer...)
	buffer = append(buffer, `","sequence":`...)
	buffer = strconv.AppendUint(buffer, at.Sequence+1, 10)
	buffer = append(buffer, `,"previous":"`...)
	buffer = append(buffer, at.previous()...)
	buffer = append(buffer, `","time":"`...)
	buffer = head.Time.UTC().AppendFormat(buffer, time.RFC3339Nano)
	buffer = append(buffer, '"')
	if head.Durable > 0 {
		buffer = append(buffer, `,"durable":`...)
		buffer = strconv.AppendUint(buffer, head.Durable, 10)
	}
	return buffer
}

// seal appends the hash to a line that starts at begin.
func seal(buffer []byte, begin int, at Position) ([]byte, Position) {
	sum := sha256.Sum256(buffer[begin:])
	buffer = append(buffer, hashMember...)
	buffer = hex.AppendEncode(buffer, sum[:])
	next := Position{Sequence: at.Sequence + 1, Hash: string(buffer[len(buffer)-2*sha256.Size:])}
	buffer = append(buffer, hashEnd...)
	buffer = append(buffer, '\n')
	next.Offset = at.Offset + int64(len(buffer)-begin)
	return buffer, next
}

// ErrChanged is the error for a line whose content does not have the hash that the line contains.
var ErrChanged = errors.New("the content does not match the hash")

// ErrUnknownKind is the error for a line with its hash of a kind that this release does not have. A later release has written it.
var ErrUnknownKind = errors.New("the line has a kind of a later release")

// ParseLine decodes a line without its newline and compares its hash. It returns ErrChanged if the line is not exactly as a writer
// wrote it, and ErrUnknownKind with the other members if only the kind is unknown. It does not check the line's place in the chain, nor
// the signature of a checkpoint.
//
// It ignores members that it does not know: after a rollback, a program reads what a later release has written. The hash covers them.
func ParseLine(text []byte) (Line, error) {
	content, hash, ok := split(text)
	if !ok {
		return Line{}, ErrChanged
	}
	sum := sha256.Sum256(content)
	if hex.EncodeToString(sum[:]) != hash {
		return Line{}, ErrChanged
	}
	var line Line
	if err := json.Unmarshal(text, &line); err != nil {
		return Line{}, fmt.Errorf("%w: it is not a line of an audit chain", ErrChanged)
	}
	switch {
	case line.Hash != hash, !validWriter.MatchString(line.Writer), line.Sequence == 0,
		line.Kind == RecordLine && line.Record == nil, line.Kind == CheckpointLine && line.Signature == "", line.Kind == RecordLine && line.End, line.Durable >= line.Sequence, line.Completes >= line.Sequence:
		return Line{}, fmt.Errorf("%w: it is not a line of an audit chain", ErrChanged)
	case !kind.MatchString(line.Kind):
		return Line{}, fmt.Errorf("%w: it is not a line of an audit chain", ErrChanged)
	case line.Kind != RecordLine && line.Kind != CheckpointLine:
		return line, fmt.Errorf("%w: %s", ErrUnknownKind, line.Kind)
	}
	return line, nil
}

// kind is the form of the kinds of all releases.
var kind = regexp.MustCompile(`^[a-z]{1,40}$`)

// split returns the part of a line that is hashed, and the hash.
func split(text []byte) (content []byte, hash string, ok bool) {
	cut := len(text) - suffix
	if cut <= 0 || !bytes.HasPrefix(text[cut:], []byte(hashMember)) || !bytes.HasSuffix(text, []byte(hashEnd)) {
		return nil, "", false
	}
	return text[:cut], string(text[cut+len(hashMember) : len(text)-len(hashEnd)]), true
}

// Follows reports whether the line is the one after a position.
func (l Line) Follows(at Position) bool {
	return l.Sequence == at.Sequence+1 && l.Previous == at.previous()
}

// At returns the position after the line, if the line with its newline has a length and the one before it ends at before.
func (l Line) At(before int64, length int) Position {
	return Position{Sequence: l.Sequence, Hash: l.Hash, Offset: before + int64(length)}
}

var validWriter = regexp.MustCompile(`^[a-z][a-z0-9-]{0,40}-[0-9a-f]{16}$`)

// NewWriterName returns the name of a new writer of a service: the service, a dash and 16 random hexadecimal digits. Each queue of
// a writer has its own name, so that two replicas never continue the same chain.
func NewWriterName(service string, random [8]byte) (string, error) {
	name := service + "-" + hex.EncodeToString(random[:])
	if !validWriter.MatchString(name) {
		return "", fmt.Errorf("%q is not a name of an audit writer: the service must match [a-z][a-z0-9-]*", name)
	}
	return name, nil
}

// ValidWriter reports whether a text is the name of a writer.
func ValidWriter(name string) bool { return validWriter.MatchString(name) }

// Service returns the service of a writer's name. Its keys sign the writer's checkpoints.
func Service(writer string) string {
	return writer[:max(strings.LastIndexByte(writer, '-'), 0)]
}

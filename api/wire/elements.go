package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
)

// Ignored are the malformed elements of a list of another program.
type Ignored struct {
	// Count is the number of the elements.
	Count int `json:"count"`
	// Reasons name the first 10 elements, and state what is wrong with each.
	Reasons []string `json:"reasons"`
}

// maxReasons and maxReason are the limits of Ignored.Reasons, and of one of them in bytes.
const maxReasons, maxReason = 10, 256

// Add counts an element. It calls reason only if it keeps it.
func (g *Ignored) Add(reason func() string) {
	if g.Count++; g.Count <= maxReasons {
		text := reason()
		g.Reasons = append(g.Reasons, strings.ToValidUTF8(text[:min(len(text), maxReason)], ""))
	}
}

// Err returns an error that names the elements; nil if there are none.
func (g Ignored) Err() error {
	if g.Count == 0 {
		return nil
	}
	return fmt.Errorf("malformed elements (%d): %s", g.Count, strings.Join(g.Reasons, "; "))
}

// Elements decodes the elements of a list and calls use with each. An element that cannot be decoded, or for which use returns an error, hides no others:
// Elements calls ignore with its position in the list called name, the value of its field key, and the error.
func Elements[T any](name, key string, list iter.Seq2[int, json.RawMessage], use func(i int, element T) error, ignore func(reason func() string)) {
	for i, text := range list {
		var element T
		err := json.Unmarshal(text, &element)
		if err == nil {
			err = use(i, element)
		}
		if err != nil {
			ignore(func() string { return fmt.Sprintf("%s[%d]%s: %v", name, i, idOf(text, key), err) })
		}
	}
}

// idOf returns the value of the field key of an element as a quoted text after a space; empty if it has none.
func idOf(text json.RawMessage, key string) string {
	var fields map[string]json.RawMessage
	var id string
	if json.Unmarshal(text, &fields) != nil || json.Unmarshal(fields[key], &id) != nil || id == "" {
		return ""
	}
	return fmt.Sprintf(" %q", id[:min(len(id), maxReason/2)])
}

// Stream returns the elements of the list in a field of the JSON object that r has; or, if field is empty, of the list that r has. It holds one element of at
// most limit bytes at a time. After the iteration, failure returns why the list could not be read to its end.
func Stream(r io.Reader, field string, limit int64) (list iter.Seq2[int, json.RawMessage], failure func() error) {
	s := &stream{source: io.LimitedReader{R: r}, limit: limit}
	s.decoder = json.NewDecoder(&s.source)
	var err error
	return func(yield func(int, json.RawMessage) bool) { err = s.read(field, yield) }, func() error { return err }
}

// stream reads JSON from a source, of which it reads at most limit bytes for each value.
type stream struct {
	source  io.LimitedReader
	limit   int64
	decoder *json.Decoder
}

// read calls yield with each element.
func (s *stream) read(field string, yield func(int, json.RawMessage) bool) error {
	start, err := s.token()
	if err != nil {
		return err
	}
	if field == "" {
		_, err := s.list(start, yield)
		return err
	}
	if start != json.Delim('{') {
		return ErrNotObject
	}
	found := false
	for s.more() {
		name, err := s.token()
		if err != nil {
			return err
		}
		if name != field {
			err = s.decode(new(json.RawMessage))
		} else if start, err = s.token(); err == nil {
			found = true
			var complete bool
			if complete, err = s.list(start, yield); err == nil && !complete {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.token(); err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("the object has no list %s", field)
	}
	return nil
}

// list calls yield with each element of a list, or of null, that begins with the token start. complete is false if yield ended the iteration.
func (s *stream) list(start json.Token, yield func(int, json.RawMessage) bool) (complete bool, err error) {
	if start == nil {
		return true, nil
	}
	if start != json.Delim('[') {
		return false, errors.New("it is not a list")
	}
	for i := 0; s.more(); i++ {
		var text json.RawMessage
		if err := s.decode(&text); err != nil {
			return false, err
		}
		if !yield(i, text) {
			return false, nil
		}
	}
	_, err = s.token()
	return true, err
}

func (s *stream) more() bool {
	s.source.N = s.limit
	return s.decoder.More()
}

func (s *stream) token() (json.Token, error) {
	s.source.N = s.limit
	token, err := s.decoder.Token()
	return token, s.explain(err)
}

func (s *stream) decode(into *json.RawMessage) error {
	s.source.N = s.limit
	return s.explain(s.decoder.Decode(into))
}

// explain returns the error for an error of the decoder.
func (s *stream) explain(err error) error {
	switch {
	case err != nil && s.source.N <= 0:
		return fmt.Errorf("an element has more than %d bytes", s.limit)
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

package document

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is the maximum nesting that the service accepts.
const MaxDepth = 128

// Parse parses exactly one JSON value. It rejects an object in which a property occurs twice.
func Parse(data []byte) (Value, error) {
	if !utf8.Valid(data) {
		return Value{}, errors.New("JSON is not valid UTF-8")
	}
	// A single half of a surrogate pair becomes U+FFFD, as in encoding/json.
	d := jsontext.NewDecoder(bytes.NewBuffer(data), jsontext.AllowInvalidUTF8(true))
	v, err := parse(d)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Value{}, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return Value{}, fmt.Errorf("text after the JSON value, before offset %d", d.InputOffset())
	}
	return v, nil
}

// parse reads the next value.
func parse(d *jsontext.Decoder) (Value, error) {
	t, err := d.ReadToken()
	if err != nil {
		return Value{}, err
	}
	switch t.Kind() {
	case 'n':
		return Value{Kind: Null}, nil
	case 't', 'f':
		return FromBool(t.Bool()), nil
	case '"':
		return FromString(t.String()), nil
	case '0':
		text := t.String()
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return Value{}, fmt.Errorf("number %s is out of range", text)
		}
		return Value{Kind: Number, Num: n, Str: text}, nil
	}
	if d.StackDepth() > MaxDepth {
		return Value{}, fmt.Errorf("JSON is nested deeper than %d levels", MaxDepth)
	}
	if t.Kind() == '[' {
		return parseArray(d)
	}
	return parseObject(d)
}

// parseArray reads the rest of an array.
func parseArray(d *jsontext.Decoder) (Value, error) {
	v := Value{Kind: Array}
	for d.PeekKind() != ']' {
		element, err := parse(d)
		if err != nil {
			return Value{}, err
		}
		v.Arr = append(v.Arr, element)
	}
	_, err := d.ReadToken()
	return v, err
}

// parseObject reads the rest of an object.
func parseObject(d *jsontext.Decoder) (Value, error) {
	v := Value{Kind: Object, Obj: make([]Member, 0, 8)}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return Value{}, err
		}
		member := Member{Name: name.String()}
		if member.Value, err = parse(d); err != nil {
			return Value{}, err
		}
		v.Obj = append(v.Obj, member)
	}
	_, err := d.ReadToken()
	return v, err
}

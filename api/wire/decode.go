package wire

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxUnknown is the most fields of an object that are decoded although its form does not have them: with null, and with other values. A body needs one of
// them to be refused.
const maxUnknown = MaxProblems

// unknownForm is the form of a value whose field has none.
var unknownForm = Scalar()

// Text is the valid text of an object, or of another value, that is not decoded yet.
type Text []byte

// Value decodes all of the value. It returns a *DuplicateError if an object has a field twice.
func (t Text) Value() (any, error) { return (&decoder{text: t}).value(nil) }

// Decode decodes the object; see Parse.
func (t Text) Decode(form *Form) (map[string]any, error) {
	return (&decoder{text: t}).object(form)
}

// decoder decodes a text that is valid JSON.
type decoder struct {
	text []byte
	at   int
	open scopes
}

// value decodes the value at the decoder's position.
func (d *decoder) value(f *Form) (any, error) {
	if f != nil && f.kind == valueTextForm {
		return Text(d.skip()), nil
	}
	switch d.text[d.at] {
	case '{':
		switch {
		case f == nil || f.kind == objectForm:
			return d.object(f)
		case f.kind == mapForm:
			return d.entries(f)
		case f.kind == textForm:
			return Text(d.skip()), nil
		}
		d.skip()
		return map[string]any{}, nil
	case '[':
		if f == nil || f.kind == listForm {
			return d.list(f)
		}
		d.skip()
		return []any{}, nil
	}
	return d.scalar(), nil
}

// object decodes an object with the fields of a form.
func (d *decoder) object(f *Form) (map[string]any, error) {
	d.open.begin(-1)
	fields := map[string]any{}
	unknown, unknownNull := 0, 0
	for d.at++; d.next(); {
		key := d.name()
		if _, exists := fields[string(key)]; exists {
			return nil, &DuplicateError{Field: d.open.path()}
		}
		var own field
		if f != nil {
			var known bool
			if own, known = f.fields[string(key)]; !known {
				counted := &unknown
				if d.text[d.at] == 'n' {
					counted = &unknownNull
				}
				if *counted++; *counted > maxUnknown {
					d.skip()
					continue
				}
				own.form = unknownForm
			}
		}
		if own.name == "" {
			own.name = string(key)
		}
		var err error
		if fields[own.name], err = d.value(own.form); err != nil {
			return nil, err
		}
	}
	d.open.end()
	return fields, nil
}

// entries decodes a map. It returns a Long if the map has too many entries.
func (d *decoder) entries(f *Form) (any, error) {
	begin := d.at
	d.open.begin(-1)
	fields := map[string]any{}
	for d.at++; d.next(); {
		key := d.name()
		if _, exists := fields[string(key)]; exists {
			return nil, &DuplicateError{Field: d.open.path()}
		}
		if len(fields) == f.most {
			return d.long(begin, f), nil
		}
		value, err := d.value(f.element)
		if err != nil {
			return nil, err
		}
		fields[string(key)] = value
	}
	d.open.end()
	return fields, nil
}

// list decodes an array. It returns a Long if the array has too many elements.
func (d *decoder) list(f *Form) (any, error) {
	if f == nil {
		values, _, err := d.elements(nil, math.MaxInt)
		return values, err
	}
	begin := d.at
	values, more, err := d.elements(f.element, f.most)
	if more {
		return d.long(begin, f), nil
	}
	return values, err
}

// elements decodes the first elements of an array, at most most. more reports whether the array has others: then the decoder is at the next one.
func (d *decoder) elements(element *Form, most int) (values []any, more bool, err error) {
	d.open.begin(0)
	values = []any{}
	for d.at++; d.next(); {
		if len(values) == most {
			return values, true, nil
		}
		value, err := d.value(element)
		if err != nil {
			return nil, false, err
		}
		values = append(values, value)
		d.open.last().index++
	}
	d.open.end()
	return values, false, nil
}

// long returns the array or the map that begins at a position as a Long.
func (d *decoder) long(begin int, f *Form) Long {
	l := Long{form: f}
	d.open.end()
	d.at = begin
	for d.at++; d.next(); {
		if f.kind == mapForm {
			d.name()
		}
		l.count++
		if text := d.skip(); string(text) != "null" && !(f.dropEmpty && string(text) == `""`) {
			l.values++
		}
	}
	l.text = d.text[begin:d.at]
	return l
}

// next moves to the next element or name within an object or a list. At the end it moves behind it and returns false.
func (d *decoder) next() bool {
	d.space()
	if d.text[d.at] == ',' {
		d.at++
		d.space()
	}
	if c := d.text[d.at]; c == '}' || c == ']' {
		d.at++
		return false
	}
	return true
}

// name decodes the name of a field of the innermost object and moves to its value.
func (d *decoder) name() []byte {
	text := stringAt(d.text[d.at:])
	d.at += len(text)
	d.space()
	d.at++ // the colon
	d.space()
	name := text[1 : len(text)-1]
	if !isPlain(name) {
		name = []byte(unquoted(name))
	}
	d.open.last().name = name
	return name
}

func (d *decoder) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return
		}
	}
}

// scalar decodes a string, a number, a boolean or null.
func (d *decoder) scalar() any {
	text := d.skip()
	switch text[0] {
	case '"':
		return unquoted(text[1 : len(text)-1])
	case 't':
		return true
	case 'f':
		return false
	case 'n':
		return nil
	}
	return json.Number(text)
}

// skip moves behind the value at the decoder's position and returns its text.
func (d *decoder) skip() []byte {
	begin, depth := d.at, 0
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case '"':
			d.at += len(stringAt(d.text[d.at:]))
			if depth == 0 {
				return d.text[begin:d.at]
			}
		case '{', '[':
			depth++
			d.at++
		case '}', ']':
			if depth == 0 {
				return d.text[begin:d.at]
			}
			d.at++
			if depth--; depth == 0 {
				return d.text[begin:d.at]
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return d.text[begin:d.at]
			}
			d.at++
		default:
			d.at++
		}
	}
	return d.text[begin:d.at]
}

// unquoted returns the value of a string by its text without the quotes. Bytes and escapes that are not characters become U+FFFD, as encoding/json does.
func unquoted(text []byte) string {
	if isPlain(text) {
		return string(text)
	}
	value := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			r, size := utf8.DecodeRune(text[i:])
			value = utf8.AppendRune(value, r)
			i += size
			continue
		}
		if at := strings.IndexByte(`"\/bfnrt`, text[i+1]); at >= 0 {
			value = append(value, "\"\\/\b\f\n\r\t"[at])
			i += 2
			continue
		}
		r := escape(text[i:])
		i += len(`\u0000`)
		if utf16.IsSurrogate(r) {
			// Half of a pair alone is not a character; what follows it stays.
			if r = utf16.DecodeRune(r, escape(text[i:])); r != utf8.RuneError {
				i += len(`\u0000`)
			}
		}
		value = utf8.AppendRune(value, r)
	}
	return string(value)
}

// escape returns the number of the escape \u at the beginning of a text, and -1 if there is none.
func escape(text []byte) rune {
	if len(text) < len(`\u0000`) || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	number, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // the text is valid
	return rune(number)
}

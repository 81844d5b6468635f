package wire

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// DuplicateMessage is the message of the violation of a DuplicateError.
const DuplicateMessage = "Duplicate value: the field is given more than once"

// DuplicateError is the error for an object that has a field more than once. Parsers differ in which of the values they use.
type DuplicateError struct {
	// Field is the JSON path. It may be as long as the content.
	Field string
}

// Error implements error.
func (e *DuplicateError) Error() string { return e.Field + ": the field is given more than once" }

// CheckDuplicates returns a *DuplicateError for the first field that any object in content has more than once, and nil if there is none. Names are
// compared as they are after decoding, with their case. The content must be valid JSON that a decoder of encoding/json has accepted.
func CheckDuplicates(content []byte) error {
	var open scopes
	for i := 0; i < len(content); i++ {
		switch content[i] {
		case '{':
			open.begin(-1)
		case '[':
			open.begin(0)
		case '}', ']':
			open.end()
		case ',':
			if last := open.last(); last.index >= 0 {
				last.index++
			}
		case '"':
			text := stringAt(content[i:])
			if i += len(text) - 1; !isName(content[i+1:]) {
				continue
			}
			name := text[1 : len(text)-1]
			if !isPlain(name) {
				name = []byte(unquoted(name))
			}
			if !open.add(name) {
				return &DuplicateError{Field: open.path()}
			}
		}
	}
	return nil
}

// stringAt returns the JSON string at the beginning of content, with its quotes.
func stringAt(content []byte) []byte {
	end := 1 + bytes.IndexByte(content[1:], '"')
	for isEscaped(content[1:end]) {
		end += 1 + bytes.IndexByte(content[end+1:], '"')
	}
	return content[:end+1]
}

// isEscaped reports whether a byte that follows text in a JSON string is escaped.
func isEscaped(text []byte) bool {
	if len(text) == 0 || text[len(text)-1] != '\\' {
		return false
	}
	return (len(text)-len(bytes.TrimRight(text, `\`)))%2 == 1
}

// isPlain reports whether the text of a JSON string is its value.
func isPlain(text []byte) bool {
	for _, b := range text {
		if b == '\\' || b >= 0x80 {
			return false
		}
	}
	return true
}

// isName reports whether a text that ends before rest is the name of a field.
func isName(rest []byte) bool {
	for _, b := range rest {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == ':'
		}
	}
	return false
}

// maxFew is the most names of an object that are compared one by one.
const maxFew = 16

// scopes are the objects and lists that are open at a place in the content.
type scopes struct {
	all []scope
	// names are the names of the open objects, in the order of the objects, without those of objects with more than maxFew names.
	names [][]byte
}

// scope is an open object or list.
type scope struct {
	// index is that of the list's current element. It is negative for an object.
	index int
	// name is that of the object's current field.
	name []byte
	// first is the index of the object's first name in names. many are the names of an object with more than maxFew, and else nil.
	first int
	many  map[string]struct{}
}

// usualDepth is the depth of most contents.
const usualDepth = 8

func (s *scopes) begin(index int) {
	if s.all == nil {
		s.all = make([]scope, 0, usualDepth)
	}
	s.all = append(s.all, scope{index: index, first: len(s.names)})
}

func (s *scopes) last() *scope { return &s.all[len(s.all)-1] }

func (s *scopes) end() {
	s.names = s.names[:s.last().first]
	s.all = s.all[:len(s.all)-1]
}

// add adds the name of a field to the innermost object. It returns false if the object has it.
func (s *scopes) add(name []byte) bool {
	last := s.last()
	last.name = name
	if last.many != nil {
		_, exists := last.many[string(name)]
		last.many[string(name)] = struct{}{}
		return !exists
	}
	few := s.names[last.first:]
	if slices.ContainsFunc(few, func(other []byte) bool { return bytes.Equal(other, name) }) {
		return false
	}
	if len(few) < maxFew {
		s.names = append(s.names, name)
		return true
	}
	last.many = make(map[string]struct{}, 4*maxFew)
	for _, known := range few {
		last.many[string(known)] = struct{}{}
	}
	last.many[string(name)] = struct{}{}
	s.names = s.names[:last.first]
	return true
}

// path returns the path of the current field of the innermost object. Names that could be confused with a path are in brackets.
func (s *scopes) path() string {
	var path strings.Builder
	for _, each := range s.all {
		switch {
		case each.index >= 0:
			path.WriteString("[" + strconv.Itoa(each.index) + "]")
		case bytes.ContainsAny(each.name, "./[]"):
			path.WriteString("[" + string(each.name) + "]")
		case path.Len() > 0:
			path.WriteString("." + string(each.name))
		default:
			path.Write(each.name)
		}
	}
	return path.String()
}

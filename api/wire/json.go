package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// maxLocated is the most bytes of a body that is read a second time to find where it is not valid JSON. Bodies of clients that work are far smaller.
const maxLocated = 256 << 10

// maxDepth is the most objects and arrays that are open at a place in a body with a form. No form has as many. Checking the validity of more needs memory.
const maxDepth = 500

// isDeep reports whether more than maxDepth objects and arrays are open at a place in content, which need not be JSON.
func isDeep(content []byte) bool {
	if bytes.Count(content, []byte("["))+bytes.Count(content, []byte("{")) <= maxDepth {
		return false
	}
	depth := 0
	for i := 0; i < len(content); i++ {
		switch content[i] {
		case '"':
			for i++; i < len(content) && content[i] != '"'; i++ {
				if content[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// ErrNotObject is the error for JSON that is not an object.
var ErrNotObject = errors.New("the body must be a JSON object")

// ParseObject decodes content, which must be exactly one JSON object. Numbers become json.Number. The error is a *DuplicateError if an object has a
// field twice.
func ParseObject(content []byte) (map[string]any, error) { return Parse(content, nil) }

// Parse is ParseObject for a body with a form. It checks that the whole content is JSON before it decodes anything. An array or a map with too many entries
// becomes a Long. An object or an array in place of something else is empty. Of the fields without a form, Parse decodes some with null and some with other
// values, so that the body is refused. It searches none of these values for fields that are given twice.
func Parse(content []byte, form *Form) (map[string]any, error) {
	if form != nil && isDeep(content) {
		return nil, fmt.Errorf("the body has more than %d objects and arrays within each other", maxDepth)
	}
	if !json.Valid(content) {
		if len(bytes.TrimLeft(content, " \t\r\n")) == 0 {
			return nil, errors.New("the body is empty")
		}
		if len(content) > maxLocated {
			return nil, errors.New("the body is not valid JSON")
		}
		return nil, fmt.Errorf("the body is not valid JSON: %w", json.Unmarshal(content, new(any))) // it returns the error before it decodes
	}
	text := bytes.TrimLeft(content, " \t\r\n")
	if text[0] != '{' {
		return nil, ErrNotObject
	}
	return Text(text).Decode(form)
}

// Unmarshal is json.Unmarshal for input that other parsers may read, too: it returns a *DuplicateError if an object in content has a field twice. It may then
// have decoded content.
func Unmarshal(content []byte, into any) error {
	if err := json.Unmarshal(content, into); err != nil {
		return err
	}
	return CheckDuplicates(content)
}

// ParseValue decodes content, which must be exactly one JSON value, like ParseObject. It finds a field that an object has twice before it decodes anything.
func ParseValue(content []byte) (any, error) {
	if !json.Valid(content) {
		return nil, errors.New("the content is not valid JSON")
	}
	if err := CheckDuplicates(content); err != nil {
		return nil, err
	}
	d := &decoder{text: content}
	d.space()
	return d.value(nil)
}

// MergePatch applies an RFC 7396 merge patch to target, which it changes and returns.
func MergePatch(target, patch map[string]any) map[string]any {
	if target == nil {
		target = map[string]any{}
	}
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(target, name)
		case map[string]any:
			inner, _ := target[name].(map[string]any)
			target[name] = MergePatch(inner, value)
		default:
			target[name] = value
		}
	}
	return target
}

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ErrNotObject is the error for JSON that is not an object.
var ErrNotObject = errors.New("the body must be a JSON object")

// ParseObject decodes content, which must be exactly one JSON object. Numbers become json.Number. The error is a *DuplicateError if an object has a
// field twice.
func ParseObject(content []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the body is empty")
		}
		return nil, fmt.Errorf("the body is not valid JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the body is not valid JSON: unexpected content after the object")
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	if err := CheckDuplicates(content); err != nil {
		return nil, err
	}
	return object, nil
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

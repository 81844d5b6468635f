package shape

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// appendText appends a JSON string, and nothing for an empty one.
func appendText(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	return appendQuoted(b, text)
}

// appendQuoted appends a JSON string. Nearly all strings need no escapes and are copied.
func appendQuoted(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// Marshalling a string does not fail.
			quoted, _ := json.Marshal(text)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// appendAny appends a value, and nothing for nil and the empty string. Lists and maps of strings must not be empty.
func appendAny(b []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return b, nil
	case string:
		return appendText(b, value), nil
	case []string:
		for i, text := range value {
			b = append(b, "[,"[min(i, 1)])
			b = appendQuoted(b, text)
		}
		return append(b, ']'), nil
	case map[string]string:
		for i, key := range slices.Sorted(maps.Keys(value)) {
			b = append(b, "{,"[min(i, 1)])
			b = append(appendQuoted(b, key), ':')
			b = appendQuoted(b, value[key])
		}
		return append(b, '}'), nil
	}
	text, err := json.Marshal(value)
	if string(text) == "null" {
		return b, nil
	}
	return append(b, text...), err
}

func quoted(name string) string { return strconv.Quote(name) }

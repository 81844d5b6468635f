package shape

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// appendText adds a JSON string; nothing for an empty text.
func appendText(b []byte, text string) []byte {
	if text == "" {
		return b
	}
	return appendQuoted(b, text)
}

// appendQuoted takes the short way for what needs no escapes, which is nearly everything.
func appendQuoted(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			// Marshalling a string cannot fail.
			quoted, _ := json.Marshal(text)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

// appendAny adds any value; nothing for nil and for an empty text. Lists and maps of texts have something in them.
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

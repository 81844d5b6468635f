package shape

import (
	"maps"
	"slices"
	"strconv"
)

// UnknownField returns the path of a field of a body that this version does not have, and the empty string if there is none.
// Names are case-sensitive. A field with null counts. Of several unknown fields it returns the first in order of names.
func (c *Converter[R, S]) UnknownField(body map[string]any) string {
	return c.root.unknown("", body)
}

// unknown returns the first unknown field within value, which is at path.
func (f *Field) unknown(path string, value any) string {
	switch value := value.(type) {
	case map[string]any:
		// An object in place of a list has the wrong type, which decoding reports.
		if f.kind == list {
			return ""
		}
		return f.unknownIn(path, value)
	case []any:
		if f.kind != list {
			return ""
		}
		for i, element := range value {
			if element, ok := element.(map[string]any); ok {
				if found := f.unknownIn(path+"["+strconv.Itoa(i)+"]", element); found != "" {
					return found
				}
			}
		}
	}
	return ""
}

// unknownIn is unknown for an object. A field without a table of its own is a map of strings, or has the wrong type, which
// decoding reports.
func (f *Field) unknownIn(path string, value map[string]any) string {
	if len(f.fields) == 0 {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(value)) {
		if f.kind == mapping {
			entry := *f
			entry.kind = object
			if found := entry.unknown(path+"["+name+"]", value[name]); found != "" {
				return found
			}
			continue
		}
		i := f.find(name)
		if i < 0 || f.fields[i].kind == implied {
			return join(path, name)
		}
		if found := f.fields[i].unknown(join(path, name), value[name]); found != "" {
			return found
		}
	}
	return ""
}

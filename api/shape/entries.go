package shape

import (
	"fmt"
	"reflect"
	"strings"
)

// Entry is a field of a bound table, for those who compare tables with a contract.
type Entry struct {
	// Path on the wire, with [] after lists and [*] after maps.
	Path string
	// Type is text, integer, boolean, texts, texts by name, object, list, map, or any for what is only shown.
	Type string
	// Enum are those that a text may be; nil means any.
	Enum []string
	// Default is what an absent field becomes, empty when nothing.
	Default string
	// ReadOnly fields are shown and never read; Unsaid ones neither.
	ReadOnly, Implied bool
	// Notes are what else the table says: kept, fixed.
	Notes []string
}

// Entries lists every field in the order in which it is shown, objects before what is in them.
func (c *Converter[R, S]) Entries() []Entry {
	var entries []Entry
	c.root.entries("", &entries)
	return entries
}

func (n *node) entries(within string, all *[]Entry) {
	for _, field := range n.fields {
		path := join(within, field.name)
		entry := Entry{Path: path, Type: field.typeName(), Enum: field.words, Implied: field.kind == unsaid}
		entry.ReadOnly = field.kind == readOnly || field.kind == reported || field.kind == state
		if field.Field.fallback != nil {
			entry.Default = fmt.Sprint(field.Field.fallback)
		}
		if field.Field.implied != nil {
			entry.Default = fmt.Sprint(field.Field.implied)
		}
		if field.Field.without != nil {
			entry.Notes = append(entry.Notes, fmt.Sprintf("%v without its object", field.Field.without))
		}
		if field.kind == unsaid && field.rival != "" {
			entry.Default = field.rival
		}
		if field.kept {
			entry.Notes = append(entry.Notes, "kept by a PUT without it")
		}
		if field.fixed {
			entry.Notes = append(entry.Notes, "fixed at this version")
		}
		if field.kind == value && field.hub != path && !strings.Contains(path, "]") {
			entry.Notes = append(entry.Notes, "hub: "+field.hub)
		}
		*all = append(*all, entry)
		switch field.kind {
		case object:
			field.entries(path, all)
		case list:
			field.entries(path+"[]", all)
		case table:
			field.entries(path+"[*]", all)
		}
	}
}

func (n *node) typeName() string {
	switch n.kind {
	case object, list, table:
		return string(n.kind)
	case readOnly, reported, state, unsaid:
		return "any"
	}
	switch n.typ {
	case reflect.TypeFor[bool]():
		return "boolean"
	case reflect.TypeFor[int32](), reflect.TypeFor[*int32]():
		return "integer"
	case reflect.TypeFor[[]string]():
		return "texts"
	case reflect.TypeFor[map[string]string]():
		return "texts by name"
	}
	return "text"
}

// collect notes where the wire has what the hub has; what is within lists and maps has the same place in both.
func (n *node) collect(within string, paths map[string]string) {
	for _, field := range n.fields {
		path := join(within, field.name)
		switch field.kind {
		case unsaid, state, reported:
			continue
		}
		if field.from != "." {
			paths[field.hub] = path
		}
		if field.kind == object {
			field.collect(path, paths)
		}
	}
}

// Path is where this version has what the hub has at a path, as in properties.labels[0].key or tags[name]; false when it
// cannot say it.
func (c *Converter[R, S]) Path(hubPath string) (string, bool) {
	at, keys, keyed := strings.Cut(hubPath, "[")
	path, ok := c.paths[at]
	if keyed {
		path += "[" + keys
	}
	return path, ok
}

package shape

import (
	"fmt"
	"reflect"
	"strings"
)

// Entry describes a field of a bound table. Tests compare entries with the OpenAPI documents.
type Entry struct {
	// Path is the path on the wire, with [] after lists and [*] after maps.
	Path string
	// Type is string, integer, boolean, strings, string map, object, list, map, or any for a field that is never read.
	Type string
	// Enum lists the values that a string may have; nil means any.
	Enum []string
	// Supported lists the values of Enum that the service supports.
	Supported []string
	// Default is the value of an absent field; empty if there is none.
	Default string
	// ReadOnly is set for fields that are written and never read, Implied for fields that are neither written nor read.
	ReadOnly, Implied bool
	// NotStored is set for fields whose value in responses is not that of the last body: it is observed, or absent.
	NotStored bool
	// AtMost is the most entries of a list or a map that a body can set; 0 for all other fields.
	AtMost int
	// Notes list further properties, such as "immutable at this version".
	Notes []string
}

// Entries returns all fields in the order in which they are written, an object before its fields.
func (c *Converter[R, S]) Entries() []Entry {
	var entries []Entry
	c.root.entries("", &entries)
	return entries
}

func (n *node) entries(within string, all *[]Entry) {
	for _, field := range n.fields {
		path := join(within, field.name)
		entry := Entry{Path: path, Type: field.typeName(), Enum: field.enum, Implied: field.kind == implied}
		entry.ReadOnly = field.kind == readOnly || field.kind == reported || field.kind == state
		if field.isCollection() {
			entry.AtMost = field.atMost
			entry.Notes = append(entry.Notes, fmt.Sprintf("at most %d entries", field.atMost))
		}
		if field.Field.defaultValue != nil {
			entry.Default = fmt.Sprint(field.Field.defaultValue)
		}
		if field.Field.implied != nil {
			entry.Default = fmt.Sprint(field.Field.implied)
		}
		if entry.Supported = field.enum; field.supported != nil {
			entry.Supported = field.supported
			entry.Notes = append(entry.Notes, "supported: "+strings.Join(field.supported, ", "))
		}
		if field.kind == implied && field.Field.other != "" {
			entry.Default = field.Field.other
		}
		if field.keepIfAbsent {
			entry.Notes = append(entry.Notes, "kept if a PUT omits it")
		}
		if field.keepIfNull {
			entry.Notes = append(entry.Notes, "kept if a PATCH has null")
		}
		if field.defaultIfNull {
			entry.Notes = append(entry.Notes, "default if a PATCH has null")
		}
		entry.NotStored = field.shown != nil || field.notShown
		if field.shown != nil {
			entry.Notes = append(entry.Notes, "in responses from the reported status")
		}
		if field.notShown {
			entry.Notes = append(entry.Notes, "not in responses")
		}
		if field.requiredIfNull {
			entry.Notes = append(entry.Notes, "required if a PATCH has null")
		}
		if field.mandatory {
			entry.Notes = append(entry.Notes, "required if empty")
		}
		if field.dropEmpty {
			entry.Notes = append(entry.Notes, "empty entries are ignored")
		}
		if field.immutable {
			entry.Notes = append(entry.Notes, "immutable at this version")
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
		case mapping:
			field.entries(path+"[*]", all)
		}
	}
}

func (n *node) typeName() string {
	switch n.kind {
	case object, list, mapping:
		return string(n.kind)
	case readOnly, reported, state, implied:
		return "any"
	}
	switch n.typ {
	case reflect.TypeFor[bool]():
		return "boolean"
	case reflect.TypeFor[int32](), reflect.TypeFor[*int32]():
		return "integer"
	case reflect.TypeFor[[]string]():
		return "strings"
	case reflect.TypeFor[map[string]string]():
		return "string map"
	}
	return "string"
}

// collect adds the wire path of each hub path. Paths within lists and maps are the same on both sides.
func (n *node) collect(within string, paths map[string]string) {
	for _, field := range n.fields {
		path := join(within, field.name)
		switch field.kind {
		case implied, state, reported:
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

// Path returns the wire path of a hub path such as properties.labels[0].key or tags[name]. It returns false if this
// version does not have the field.
func (c *Converter[R, S]) Path(hubPath string) (string, bool) {
	at, keys, keyed := strings.Cut(hubPath, "[")
	path, ok := c.paths[at]
	if keyed {
		path += "[" + keys
	}
	return path, ok
}

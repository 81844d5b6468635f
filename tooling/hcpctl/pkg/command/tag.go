package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// entry is an element that a flag sets or removes: a tag, a label or a taint. The fields in identity tell it apart from others.
type entry struct {
	identity, fields map[string]any
	remove           bool
}

// is reports whether the element of a list has the identity of e.
func (e entry) is(element any) bool {
	fields, _ := element.(map[string]any)
	for name, value := range e.identity {
		if fields[name] != value {
			return false
		}
	}
	return true
}

// entryFlag is the value of a flag that sets and removes tags, labels or taints.
type entryFlag struct {
	// kind is tag, label or taint, and form what a value must be.
	kind, form string
	parse      func(text string) (entry, bool)
	texts      []string
	entries    []entry
}

// Set implements pflag.Value.
func (f *entryFlag) Set(text string) error {
	parsed, ok := f.parse(text)
	if !ok {
		return fmt.Errorf("invalid %s %q: must be %s", f.kind, text, f.form)
	}
	if slices.ContainsFunc(f.entries, func(other entry) bool { return parsed.is(other.identity) }) {
		return fmt.Errorf("the %s %q is given more than once", f.kind, text)
	}
	f.texts, f.entries = append(f.texts, text), append(f.entries, parsed)
	return nil
}

// String implements pflag.Value.
func (f *entryFlag) String() string { return strings.Join(f.texts, ",") }

// Type implements pflag.Value.
func (f *entryFlag) Type() string { return f.kind }

// setOrRemove is the form of tags and labels.
const setOrRemove = "KEY=VALUE, or KEY- to remove it"

// parseKey parses KEY=VALUE, and KEY- for a removal.
func parseKey(text string) (key string, e entry, ok bool) {
	key, value, sets := strings.Cut(text, "=")
	if !sets {
		if key, ok = strings.CutSuffix(text, "-"); !ok {
			return "", entry{}, false
		}
	}
	return key, entry{identity: map[string]any{"key": key}, fields: map[string]any{"key": key, "value": value}, remove: !sets}, key != ""
}

// parseTag parses KEY=VALUE, and KEY- for a removal. Names of tags have no case.
func parseTag(text string) (entry, bool) {
	key, e, ok := parseKey(text)
	e.identity = map[string]any{"folded": strings.ToLower(key)}
	return e, ok
}

// tagPatch returns the tags of a merge patch (RFC 7396): null removes a tag, and tags that are not in the patch stay. ARM compares the names of
// tags without case, so the patch has the spelling of the resource.
func tagPatch(changes []entry, current armclient.Resource) map[string]any {
	stored, _ := current["tags"].(map[string]any)
	tags := map[string]any{}
	for _, change := range changes {
		name, _ := change.fields["key"].(string)
		if spelling, ok := keyFold(stored, name); ok {
			name = spelling
		}
		tags[name] = change.fields["value"]
		if change.remove {
			tags[name] = nil
		}
	}
	return tags
}

// keyFold returns the key of a map that equals name without case; name itself if the map has it.
func keyFold(values map[string]any, name string) (string, bool) {
	if _, ok := values[name]; ok {
		return name, true
	}
	for key := range values {
		if strings.EqualFold(key, name) {
			return key, true
		}
	}
	return "", false
}

// valueFold returns the value of a map whose key equals name without case; nil if there is none.
func valueFold(values map[string]any, name string) any {
	key, _ := keyFold(values, name)
	return values[key]
}

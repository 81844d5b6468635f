package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
)

// tagChange is a tag to set, or to remove.
type tagChange struct {
	name, value string
	remove      bool
}

// tagFlag is the value of a flag that sets tags with KEY=VALUE. If removes is set, KEY- removes a tag.
type tagFlag struct {
	removes bool
	changes []tagChange
}

// Set implements pflag.Value.
func (f *tagFlag) Set(text string) error {
	change, ok := parseTagChange(text)
	switch {
	case ok && (f.removes || !change.remove):
	case f.removes:
		return fmt.Errorf("invalid tag %q: must be KEY=VALUE, or KEY- to remove a tag", text)
	default:
		return fmt.Errorf("invalid tag %q: must be KEY=VALUE", text)
	}
	if slices.ContainsFunc(f.changes, func(other tagChange) bool { return strings.EqualFold(other.name, change.name) }) {
		return fmt.Errorf("tag %q is given more than once; names of tags have no case", change.name)
	}
	f.changes = append(f.changes, change)
	return nil
}

// parseTagChange parses KEY=VALUE, and KEY- for a removal.
func parseTagChange(text string) (change tagChange, ok bool) {
	name, value, sets := strings.Cut(text, "=")
	if sets {
		return tagChange{name: name, value: value}, name != ""
	}
	name, ok = strings.CutSuffix(text, "-")
	return tagChange{name: name, remove: true}, ok && name != ""
}

// String implements pflag.Value.
func (f *tagFlag) String() string {
	var texts []string
	for _, change := range f.changes {
		texts = append(texts, change.name+"="+change.value)
	}
	return strings.Join(texts, ",")
}

// Type implements pflag.Value.
func (f *tagFlag) Type() string { return "KEY=VALUE" }

// patch returns the tags of a merge patch (RFC 7396): null removes a tag, and tags that are not in the patch stay. ARM compares the names of
// tags without case, so the patch has the spelling of the resource.
func (f *tagFlag) patch(current armclient.Resource) map[string]any {
	stored, _ := current["tags"].(map[string]any)
	tags := map[string]any{}
	for _, change := range f.changes {
		name := change.name
		if spelling, ok := keyFold(stored, name); ok {
			name = spelling
		}
		tags[name] = change.value
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

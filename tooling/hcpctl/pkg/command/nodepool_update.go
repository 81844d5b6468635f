package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

func (e *environment) nodePoolUpdate() *cobra.Command {
	tags := tagFlag{removes: true}
	labels, taints := entryFlag{kind: "label", parse: parseLabel}, entryFlag{kind: "taint", parse: parseTaint}
	var version string
	var replicas, low, high, drainMinutes int32
	var autoRepair bool
	var c *cobra.Command
	c = e.updateCommand(nodePools(), func(current armclient.Resource) (armclient.Resource, error) {
		stored, _ := current["properties"].(map[string]any)
		patch, properties := armclient.Resource{}, map[string]any{}
		for flag, set := range map[string]func(){
			"tag":           func() { patch["tags"] = tags.patch(current) },
			"label":         func() { properties["labels"] = labels.after(stored["labels"]) },
			"taint":         func() { properties["taints"] = taints.after(stored["taints"]) },
			"version":       func() { properties["version"] = map[string]any{"id": version} },
			"auto-repair":   func() { properties["autoRepair"] = autoRepair },
			"drain-minutes": func() { properties["nodeDrainTimeoutMinutes"] = drainMinutes },
			"replicas":      func() { properties["replicas"] = replicas },
			"max":           func() { properties["autoScaling"] = map[string]any{"min": low, "max": high} },
		} {
			if c.Flags().Changed(flag) {
				set()
			}
		}
		// A node pool has a fixed number of nodes or the autoscaler.
		for set, other := range map[string]string{"replicas": "autoScaling", "autoScaling": "replicas"} {
			if properties[set] != nil && stored[other] != nil {
				properties[other] = nil
			}
		}
		if len(properties) > 0 {
			patch["properties"] = properties
		}
		return patch, nil
	})
	flags := c.Flags()
	flags.Int32Var(&replicas, "replicas", 0, "`number` of nodes; ends autoscaling")
	flags.Int32Var(&low, "min", 0, "minimum `number` of nodes for the autoscaler")
	flags.Int32Var(&high, "max", 0, "maximum `number` of nodes for the autoscaler")
	flags.StringVar(&version, "version", "", "OpenShift `version` as MAJOR.MINOR.PATCH, at most that of the control plane")
	flags.Var(&labels, "label", "label of new nodes as `KEY=VALUE`, or KEY- to remove it; running nodes keep theirs; repeatable")
	flags.Var(&taints, "taint", "taint of new nodes as `KEY=VALUE:EFFECT` or KEY:EFFECT, or KEY:EFFECT- to remove it; running nodes keep theirs; repeatable")
	flags.BoolVar(&autoRepair, "auto-repair", false, "replace nodes that are not ready")
	flags.Int32Var(&drainMinutes, "drain-minutes", 0, "most `minutes` that a node is drained; 0 means without a limit")
	flags.Var(&tags, "tag", "tag as `KEY=VALUE`, or KEY- to remove it; repeatable")
	eitherFileOr(c, "replicas", "max", "version", "label", "taint", "auto-repair", "drain-minutes", "tag")
	c.MarkFlagsMutuallyExclusive("replicas", "max")
	c.MarkFlagsRequiredTogether("min", "max")
	return c
}

// entry is an element of the labels or taints of a node pool. The fields in identity tell it apart from others.
type entry struct {
	identity, fields map[string]any
	remove           bool
}

// entryFlag is the value of a flag that sets and removes labels or taints.
type entryFlag struct {
	kind    string
	parse   func(text string) (entry, bool)
	texts   []string
	entries []entry
}

// Set implements pflag.Value.
func (f *entryFlag) Set(text string) error {
	parsed, ok := f.parse(text)
	if !ok {
		return fmt.Errorf("invalid %s %q", f.kind, text)
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

// after returns the list of a resource after the changes. A list in a merge patch replaces the list of the resource.
func (f *entryFlag) after(stored any) []any {
	current, _ := stored.([]any)
	list := append([]any{}, current...)
	for _, change := range f.entries {
		at := slices.IndexFunc(list, change.is)
		switch {
		case at < 0 && !change.remove:
			list = append(list, change.fields)
		case at >= 0 && change.remove:
			list = slices.Delete(list, at, at+1)
		case at >= 0:
			list[at] = change.fields
		}
	}
	return list
}

// parseLabel parses KEY=VALUE, and KEY- for a removal.
func parseLabel(text string) (entry, bool) {
	change, ok := parseTagChange(text)
	identity := map[string]any{"key": change.name}
	return entry{identity: identity, fields: map[string]any{"key": change.name, "value": change.value}, remove: change.remove}, ok
}

// parseTaint parses KEY=VALUE:EFFECT and KEY:EFFECT, and KEY:EFFECT- for a removal. ARM checks the effect.
func parseTaint(text string) (entry, bool) {
	text, remove := strings.CutSuffix(text, "-")
	at := strings.LastIndexByte(text, ':')
	if at < 1 || at == len(text)-1 {
		return entry{}, false
	}
	key, value, hasValue := strings.Cut(text[:at], "=")
	identity := map[string]any{"key": key, "effect": text[at+1:]}
	fields := map[string]any{"key": key, "effect": text[at+1:]}
	if hasValue {
		fields["value"] = value
	}
	return entry{identity: identity, fields: fields, remove: remove}, key != "" && !(remove && hasValue)
}

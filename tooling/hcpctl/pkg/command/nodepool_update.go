package command

import (
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/armclient"
	"github.com/spf13/cobra"
)

func (e *environment) nodePoolUpdate() *cobra.Command {
	tags, labels := entryFlag{kind: "tag", form: setOrRemove, parse: parseTag}, entryFlag{kind: "label", form: setOrRemove, parse: parseLabel}
	taints := entryFlag{kind: "taint", form: "KEY=VALUE:EFFECT or KEY:EFFECT, or KEY:EFFECT- to remove it", parse: parseTaint}
	var version string
	var replicas, low, high, drainMinutes int32
	var autoRepair bool
	var c *cobra.Command
	c = e.updateCommand(nodePools(), func(current armclient.Resource) (armclient.Resource, error) {
		stored, _ := current["properties"].(map[string]any)
		patch, properties := armclient.Resource{}, map[string]any{}
		setChanged(c, map[string]func(){
			"tag":           func() { patch["tags"] = tagPatch(tags.entries, current) },
			"label":         func() { properties["labels"] = labels.after(stored["labels"]) },
			"taint":         func() { properties["taints"] = taints.after(stored["taints"]) },
			"version":       func() { properties["version"] = map[string]any{"id": version} },
			"auto-repair":   func() { properties["autoRepair"] = autoRepair },
			"drain-minutes": func() { properties["nodeDrainTimeoutMinutes"] = drainMinutes },
			"replicas":      func() { setSize(properties, stored, "replicas", replicas) },
			"max":           func() { setSize(properties, stored, "autoScaling", map[string]any{"min": low, "max": high}) },
		})
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

// setSize sets the number of nodes (replicas) or the range of the autoscaler (autoScaling) in a merge patch of a node pool, which has one of them: the
// patch removes the stored other one.
func setSize(properties, stored map[string]any, field string, value any) {
	for _, other := range []string{"replicas", "autoScaling"} {
		if stored[other] != nil {
			properties[other] = nil
		}
	}
	properties[field] = value
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
	_, e, ok := parseKey(text)
	return e, ok
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

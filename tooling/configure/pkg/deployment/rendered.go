package deployment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/document"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/schema"
)

// RenderedFolder is the folder of the committed results within that of the configuration.
const RenderedFolder = "rendered"

const renderedHeader = "# Rendered by `hcpctl config render --write`. Change the layers instead of this file.\n"

// renderedFiles returns the content of all rendered files by name.
func renderedFiles(all map[string]*document.Node) (map[string][]byte, error) {
	files := map[string][]byte{}
	for target, values := range all {
		text, err := YAML(values)
		if err != nil {
			return nil, err
		}
		files[target+".yaml"] = append([]byte(renderedHeader), text...)
	}
	return files, nil
}

// Stale returns the committed files that differ from the rendered values, that are missing, or that have no target any more.
func (c *Configuration) Stale(all map[string]*document.Node) ([]string, error) {
	want, err := renderedFiles(all)
	if err != nil {
		return nil, err
	}
	current, err := c.committed()
	if err != nil {
		return nil, err
	}
	var stale []string
	for name := range want {
		if !bytes.Equal(want[name], current[name]) {
			stale = append(stale, name)
		}
	}
	for name := range current {
		if want[name] == nil {
			stale = append(stale, name)
		}
	}
	slices.Sort(stale)
	return stale, nil
}

func (c *Configuration) committed() (map[string][]byte, error) {
	files := map[string][]byte{}
	top := os.DirFS(filepath.Join(c.dir, RenderedFolder))
	err := fs.WalkDir(top, ".", func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == "." {
			return fs.SkipAll
		}
		if err != nil || entry.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(top, name)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the rendered configuration: %w", err)
	}
	return files, nil
}

// Write replaces the committed files by the rendered values and removes those without a target. It first compares both: if a value
// with x-data-store changes, or a region or stamp disappears, a deployment would replace or delete a data store or a management
// cluster with the control planes on it. Write then changes nothing and returns an error, unless allowed has the target and key as
// TARGET:KEY, or TARGET for a whole target.
func (c *Configuration) Write(all map[string]*document.Node, allowed []string) ([]string, error) {
	want, err := renderedFiles(all)
	if err != nil {
		return nil, err
	}
	current, err := c.committed()
	if err != nil {
		return nil, err
	}
	losses, err := c.losses(current, all)
	if err != nil {
		return nil, err
	}
	refused, unused := slices.Clone(losses), slices.Clone(allowed)
	for _, permission := range allowed {
		refused = slices.DeleteFunc(refused, func(l loss) bool { return l.name() == permission })
		if slices.ContainsFunc(losses, func(l loss) bool { return l.name() == permission }) {
			unused = slices.DeleteFunc(unused, func(other string) bool { return other == permission })
		}
	}
	switch {
	case len(refused) > 0:
		return nil, &LossError{refused}
	case len(unused) > 0:
		return nil, fmt.Errorf("--allow-loss %s: the change does not replace or delete this", unused[0])
	}
	return c.replace(current, want)
}

// replace writes the files that differ and returns their names.
func (c *Configuration) replace(current, want map[string][]byte) ([]string, error) {
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if bytes.Equal(current[name], want[name]) {
			continue
		}
		changed = append(changed, name)
		file := filepath.Join(c.dir, RenderedFolder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("writing the rendered configuration: %w", err)
		}
		if err := os.WriteFile(file, want[name], 0o644); err != nil {
			return nil, fmt.Errorf("writing the rendered configuration: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(current)) {
		if want[name] != nil {
			continue
		}
		changed = append(changed, name)
		if err := os.Remove(filepath.Join(c.dir, RenderedFolder, filepath.FromSlash(name))); err != nil {
			return nil, fmt.Errorf("removing a rendered file without a target: %w", err)
		}
	}
	return changed, nil
}

// loss is a change that replaces or deletes data. key is empty if the whole target disappears.
type loss struct{ target, key, before, after string }

func (l loss) name() string {
	if l.key == "" {
		return l.target
	}
	return l.target + ":" + l.key
}

// LossError reports changes that would replace or delete data stores or management clusters.
type LossError struct{ losses []loss }

// Error lists the changes with the flag that allows each.
func (e *LossError) Error() string {
	lines := []string{"the change would replace or delete data; nothing was written:"}
	for _, l := range e.losses {
		what := fmt.Sprintf("%s: %s changes from %s to %s", l.target, l.key, l.before, l.after)
		if l.key == "" {
			what = l.target + " disappears with its data stores and clusters"
		}
		lines = append(lines, fmt.Sprintf("  %s (allow with --allow-loss %s)", what, l.name()))
	}
	return strings.Join(lines, "\n")
}

// losses compares the committed files with new values.
func (c *Configuration) losses(current map[string][]byte, all map[string]*document.Node) ([]loss, error) {
	var losses []loss
	for _, name := range slices.Sorted(maps.Keys(current)) {
		target, isYAML := strings.CutSuffix(name, ".yaml")
		if !isYAML {
			continue
		}
		values := all[target]
		if values == nil {
			losses = append(losses, loss{target: target})
			continue
		}
		old, problems := document.Parse(document.Origin{File: path.Join(RenderedFolder, name)}, current[name])
		if err := problems.Err(); err != nil {
			return nil, fmt.Errorf("comparing with the committed configuration: %w", err)
		}
		parsed, err := layer.ParseTarget(target)
		if err != nil {
			return nil, fmt.Errorf("comparing with the committed configuration: %w", err)
		}
		before, after := c.DataStores(parsed, old), c.DataStores(parsed, values)
		for _, key := range slices.Sorted(maps.Keys(before)) {
			if now := cmp.Or(after[key], "nothing"); now != before[key] {
				losses = append(losses, loss{target, key, before[key], now})
			}
		}
	}
	return losses, nil
}

// DataStores returns the values of a target's own keys with x-data-store. A change of one replaces or deletes a data store, a cluster
// or its data.
func (c *Configuration) DataStores(target layer.Target, values *document.Node) map[string]string {
	stores := map[string]string{}
	c.Schema.Walk(func(keys []string, p *schema.Property) {
		if !p.DataStore || slices.Contains(keys, "[]") || !owns(target, keys[0]) {
			return
		}
		for _, store := range expand(values, keys) {
			stores[store.key] = String(store.node)
		}
	})
	return stores
}

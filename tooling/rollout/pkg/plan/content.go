package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// definitionHash returns the hash of what a step does. Its timeout and its retries do not belong to it.
func definitionHash(s *definition.Step) (string, error) {
	text, err := json.Marshal(struct {
		Action   string
		With     map[string]any
		Outputs  []string
		Gates    []definition.Gate
		Rollback bool
	}{s.Action, s.With, s.Outputs, s.Gates, s.Rollback})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// fileHashes returns the hash of each file and folder that a step names.
func fileHashes(root string, names []string) (map[string]string, error) {
	hashes := map[string]string{}
	for _, name := range names {
		hash, err := hashOf(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		hashes[name] = hash
	}
	return hashes, nil
}

// hashOf returns a hash of the names, permissions to execute and contents of a file or of all files of a folder.
func hashOf(top string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a folder", entry.Name())
		}
		relative, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %t %d\n", filepath.ToSlash(relative), info.Mode()&0o100 != 0, info.Size())
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		_, err = io.Copy(sum, f)
		return errors.Join(err, f.Close())
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// changes returns the differences between the content of the last success and the content now, in words.
func changes(before *state.Content, now state.Content) []string {
	var found []string
	if before.Definition != now.Definition {
		found = append(found, "its definition has changed")
	}
	for _, name := range differing(before.Inputs, now.Inputs) {
		found = append(found, fmt.Sprintf("the input %s changes from %s to %s", name, shown(before.Inputs, name), shown(now.Inputs, name)))
	}
	for _, name := range differing(before.Files, now.Files) {
		found = append(found, name+" has changed")
	}
	for _, name := range differing(before.Action, now.Action) {
		found = append(found, name+" has changed")
	}
	return found
}

func differing(a, b map[string]string) []string {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(name string) bool {
		before, inA := a[name]
		after, inB := b[name]
		return inA == inB && before == after
	})
}

// shown returns a value for a message, at most 60 characters of it.
func shown(values map[string]string, name string) string {
	value, found := values[name]
	if !found {
		return "nothing"
	}
	if runes := []rune(value); len(runes) > 60 {
		value = string(runes[:60]) + "…"
	}
	return cmp.Or(value, `""`)
}

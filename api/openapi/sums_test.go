package openapi

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocumentsAreGenerated compares sources, examples and documents with the checksums of the last generation. It finds a
// missing `make generate` and a document that was edited by hand, without Node.
func TestDocumentsAreGenerated(t *testing.T) {
	recorded := readSums(t)
	present := map[string]string{}
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel("..", name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		if entry.IsDir() {
			if entry.Name() == "node_modules" || (relative != "." && !isGenerationFolder(relative)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !isGenerationFile(relative) {
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		present[relative] = hex.EncodeToString(sum[:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(present) < 20 {
		t.Fatalf("found only %d files", len(present))
	}
	for name, sum := range present {
		switch recorded[name] {
		case sum:
		case "":
			t.Errorf("%s was added after the last generation: run `make generate`", name)
		default:
			t.Errorf("%s was changed after the last generation: run `make generate`", name)
		}
	}
	for name := range recorded {
		if _, ok := present[name]; !ok {
			t.Errorf("%s was removed after the last generation: run `make generate`", name)
		}
	}
}

func readSums(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sums := map[string]string{}
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		sum, name, ok := strings.Cut(scanner.Text(), "  ")
		if !ok {
			t.Fatalf("SHA256SUMS: malformed line %q", scanner.Text())
		}
		sums[name] = sum
	}
	return sums
}

// isGenerationFolder reports whether typespec/generate.mjs reads or writes files in the folder.
func isGenerationFolder(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return top == "typespec" || top == "examples" || top == "openapi"
}

// isGenerationFile reports whether typespec/generate.mjs reads or writes the file.
func isGenerationFile(name string) bool {
	top, rest, nested := strings.Cut(name, "/")
	folder, _, inFolder := strings.Cut(rest, "/")
	switch {
	case !nested:
		return false
	case top == "typespec":
		return true
	case top == "examples":
		return inFolder && strings.HasPrefix(folder, "20") && path.Ext(name) == ".json"
	default:
		return inFolder && (strings.HasPrefix(folder, "20") || folder == "common-types")
	}
}

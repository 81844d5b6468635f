// Package vmsize holds the Azure virtual machine sizes that node pools can have. The frontend validates node pools with
// it, and Cluster Service renders the architecture of their nodes.
//
// sizes.txt is the data, with its source: a size per line, sorted. Azure offers each size only in some regions; the
// frontend's configuration can restrict a region to a part of the table.
package vmsize

import (
	_ "embed"
	"strings"
)

//go:embed sizes.txt
var table string

// Architecture is the processor architecture of a size, with the name that Kubernetes uses.
type Architecture string

// The architectures.
const (
	AMD64 Architecture = "amd64"
	ARM64 Architecture = "arm64"
)

// Names returns the names of all sizes in Azure's casing, sorted.
func Names() []string {
	var names []string
	for line := range strings.Lines(table) {
		if name, _, ok := parse(line); ok {
			names = append(names, name)
		}
	}
	return names
}

// ArchitectureOf returns the architecture of a size. ok is false for a size that the table does not have, or has in
// another casing.
func ArchitectureOf(name string) (architecture Architecture, ok bool) {
	for line := range strings.Lines(table) {
		if found, architecture, ok := parse(line); ok && found == name {
			return architecture, true
		}
	}
	return "", false
}

// parse returns the content of a line; ok is false for a comment.
func parse(line string) (name string, architecture Architecture, ok bool) {
	if strings.HasPrefix(line, "#") {
		return "", "", false
	}
	name, text, ok := strings.Cut(strings.TrimSpace(line), " ")
	return name, Architecture(text), ok
}

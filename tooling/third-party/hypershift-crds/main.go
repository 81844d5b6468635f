// Command hypershift-crds writes HyperShift's CustomResourceDefinitions, as embedded in its main module, to a folder:
// one file each, under the name that HyperShift gives it. It is a module of its own, outside go.work, so that
// HyperShift's dependency pins do not affect the workspace.
//
// The workspace pins HyperShift's Go types (github.com/openshift/hypershift/api) separately. One pin for both is not
// possible: the types are a nested module without tags, of which the module proxy serves no version at the commit of a
// release, and releases before v0.1.81 reject autoScaling.min 0 on Azure. cluster-service/pkg/render applies its golden
// renderings to these CRDs on a real API server, and so tests that types and CRDs fit together.
//
//	hypershift-crds -out DIR
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openshift/hypershift/cmd/install/assets/crds"
)

func main() {
	out := flag.String("out", "", "folder to write the CustomResourceDefinitions to (created when absent)")
	flag.Parse()
	if *out == "" {
		fmt.Fprintln(os.Stderr, "hypershift-crds: -out is required")
		os.Exit(2)
	}
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "hypershift-crds:", err)
		os.Exit(1)
	}
}

// write copies every embedded YAML file into dir, keeping the folders below it.
func write(dir string) error {
	return fs.WalkDir(crds.CRDS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".yaml" {
			return err
		}
		data, err := fs.ReadFile(crds.CRDS, name)
		if err != nil {
			return fmt.Errorf("reading the embedded %s: %w", name, err)
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		return os.WriteFile(target, data, 0o644)
	})
}

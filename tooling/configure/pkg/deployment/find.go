package deployment

import (
	"errors"
	"os"
	"path/filepath"
)

// Find returns the path of the configuration in a checkout: the folder config in the working directory or above it.
func Find() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		found := filepath.Join(dir, "config")
		if _, err := os.Stat(filepath.Join(found, SchemaFile)); err == nil {
			if relative, err := filepath.Rel(start, found); err == nil {
				found = relative // short names in errors
			}
			return found, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no configuration found: run the command in a checkout of hcpmesh, or set --config-dir")
		}
	}
}

package config

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// LoadShardKeys reads the public keys of a folder, in which each file is named after its shard: SHARD.json. Names that begin with a
// dot are ignored, because Kubernetes mounts files with such folders and links.
func LoadShardKeys(folder string) (map[string]*seal.PublicKeys, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	keys := map[string]*seal.PublicKeys{}
	for _, entry := range entries {
		shard, isKey := strings.CutSuffix(entry.Name(), ".json")
		if !isKey || strings.HasPrefix(shard, ".") {
			continue
		}
		if keys[shard], err = seal.ReadPublic(filepath.Join(folder, entry.Name())); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

package local

import (
	"fmt"
	"path/filepath"
	"slices"
)

// Keyset has the files of a keyset of a region.
type Keyset struct {
	// File is the keyset. Public is the public keyset of an agent's keyset.
	File, Public string
}

// KeysetOf returns the files of a keyset of the region in stateDir. kind is a kind of `hcpctl keys rotate`; shard is required for the
// kind agent.
func KeysetOf(stateDir, kind, shard string) (Keyset, error) {
	r := &Region{state: &state{dir: stateDir}}
	switch kind {
	case "signing-keys":
		return Keyset{File: r.signingKeysFile()}, nil
	case "credentials":
		return Keyset{File: r.credentialKeyFile()}, nil
	case "skip-tokens":
		return Keyset{File: r.skipTokenKeyFile()}, nil
	case "intents":
		return Keyset{File: r.intentKeyFile()}, nil
	case "agent":
		described, err := Describe(stateDir)
		if err != nil {
			return Keyset{}, err
		}
		if _, ok := described.Kubeconfigs[shard]; !ok {
			var names []string
			for name := range described.Kubeconfigs {
				names = append(names, name)
			}
			slices.Sort(names)
			return Keyset{}, fmt.Errorf("--shard: %q is not a management cluster of the region: use one of %v", shard, names)
		}
		return Keyset{File: r.agentKeyFile(shard), Public: filepath.Join(r.shardKeysDir(), shard+".json")}, nil
	}
	return Keyset{}, fmt.Errorf("the local region has no keyset of the kind %q", kind)
}

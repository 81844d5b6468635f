package local

import (
	"fmt"
	"os"

	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// recordingSinkDir returns the folder to which the session gateway exports recordings, and recordingQueueDir that of recordings that are not exported.
func (r *Region) recordingSinkDir() string { return r.state.path("recordings", "sink") }

func (r *Region) recordingQueueDir() string { return r.state.path("recordings", "queue") }

// recordingKeyFile returns the file of the private keyset with which admin opens recordings, and recordingPublicKeyFile that of the public keyset
// with which the session gateway seals them.
func (r *Region) recordingKeyFile() string { return r.state.path("secrets", "recording.key") }

func (r *Region) recordingPublicKeyFile() string { return r.state.path("recordings", "key.json") }

// createRecordings creates the folders and the keys of recordings, unless they exist.
func (r *Region) createRecordings() error {
	for _, dir := range []string{r.recordingSinkDir(), r.recordingQueueDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the folders of recordings: %w", err)
		}
	}
	return seal.CreatePair(r.recordingKeyFile(), r.recordingPublicKeyFile())
}

package recording

import (
	"errors"
	"flag"
	"fmt"

	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink/blobsink"
)

// StorageOptions are the flags of a process that writes or reads recordings. They select the storage: a container of Azure Blob Storage, or a
// folder. It is a sink of package audit/sink, as that of audit records is, with one log for each recording. The session gateway appends to
// logs, and admin reads them.
type StorageOptions struct {
	// Dir is the folder of recordings.
	Dir string
	// URL is a container of Azure Blob Storage in place of the folder.
	URL string
}

// AddFlags registers the flags.
func (o *StorageOptions) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.Dir, "recording-sink-dir", "", "`folder` with the exported recordings, on append-only storage")
	flags.StringVar(&o.URL, "recording-sink-url", "", "https `URL` of the container with the exported recordings, with an immutability policy; in place of --recording-sink-dir")
}

// Enabled reports whether a flag is set.
func (o *StorageOptions) Enabled() bool { return o.Dir+o.URL != "" }

// Validate returns an error unless exactly one flag is set.
func (o *StorageOptions) Validate() error {
	switch {
	case (o.Dir == "") == (o.URL == ""):
		return errors.New("--recording-sink-dir and --recording-sink-url: set one of them")
	case o.Dir != "":
		return nil
	}
	if err := blobsink.Valid(o.URL); err != nil {
		return fmt.Errorf("--recording-sink-url: %w", err)
	}
	return nil
}

// Open returns the storage, as blobsink.Open does.
func (o *StorageOptions) Open() (sink.Storage, error) { return blobsink.Open(o.Dir, o.URL) }

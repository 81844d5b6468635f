package recorder

import (
	"cmp"
	"flag"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// Flags are the flags of a process with a Store.
type Flags struct {
	// Dir is the folder of recordings that are not exported.
	Dir string
	// Sink is where they are exported to.
	Sink recording.StorageOptions
	// KeyFile has the public keyset that seals recordings.
	KeyFile string
	// Limit is the limit of all recordings in Dir, and MaxBytes that of one.
	Limit, MaxBytes int64
}

// AddFlags registers the flags.
func (f *Flags) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&f.Dir, "recording-dir", "", "`folder` of the recordings of commands that are not exported; every replica needs its own, on a disk that survives a restart")
	f.Sink.AddFlags(flags)
	flags.StringVar(&f.KeyFile, "recording-key-file", "", "`file` with the public Tink keyset that encrypts recordings; admin has the private one")
	flags.Int64Var(&f.Limit, "recording-limit", DefaultMaxTotal, "largest size of all recordings on the replica in `bytes`; at the limit, commands are refused")
	flags.Int64Var(&f.MaxBytes, "recording-max-bytes", DefaultMaxBytes, "largest size of one recording in `bytes`; at the limit, its command ends")
}

// Validate returns an error that names the first missing or invalid flag.
func (f *Flags) Validate() error {
	return cmp.Or(
		process.Required("recording-dir", f.Dir),
		process.Required("recording-key-file", f.KeyFile),
		process.AtLeast("recording-limit", f.Limit, MinTotal),
		process.Between("recording-max-bytes", f.MaxBytes, MinTotal, f.Limit),
		f.Sink.Validate(),
	)
}

// Open opens the Store. signing signs recordings.
func (f *Flags) Open(signing *audit.SigningKey, index Index, log *slog.Logger, metrics prometheus.Registerer) (*Store, error) {
	keys, err := seal.ReadPublic(f.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--recording-key-file: %w", err)
	}
	sink, err := f.Sink.Open()
	if err != nil {
		return nil, err
	}
	return Open(Options{Dir: f.Dir, Sink: sink, Index: index, Keys: keys, Signing: signing, MaxBytes: f.MaxBytes, MaxTotal: f.Limit, Log: log, Metrics: metrics})
}

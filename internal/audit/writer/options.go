package writer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/history"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
)

// Options are the flags of a service with an audit.
type Options struct {
	// QueueDir is the folder of the queue, on a disk that survives a restart of the replica.
	QueueDir string
	// SinkDir is the folder of the sink, WitnessDir that of the witness.
	SinkDir, WitnessDir string
	// KeyFile is the PEM file with the private key that signs checkpoints.
	KeyFile string
	// QueueLimit is the limit of the queue in bytes.
	QueueLimit int64
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.QueueDir, "audit-queue-dir", "", "`folder` of the queue of audit records; every replica needs its own, on a disk that survives a restart")
	flags.StringVar(&o.SinkDir, "audit-sink-dir", "", "`folder` to which audit records are exported, on append-only storage")
	flags.StringVar(&o.WitnessDir, "audit-witness-dir", "", "`folder` for the latest audit checkpoints, on other storage than the audit sink")
	flags.StringVar(&o.KeyFile, "audit-signing-key-file", "", "PEM `file` with the ECDSA key that signs audit checkpoints")
	flags.Int64Var(&o.QueueLimit, "audit-queue-limit", DefaultBytes, "largest size of the audit queue in `bytes`; a full queue rejects requests that must be audited")
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	for _, required := range []struct{ flag, value string }{
		{"audit-queue-dir", o.QueueDir},
		{"audit-sink-dir", o.SinkDir},
		{"audit-witness-dir", o.WitnessDir},
		{"audit-signing-key-file", o.KeyFile},
	} {
		if required.value == "" {
			return fmt.Errorf("--%s is required: actions are audited", required.flag)
		}
	}
	if o.SinkDir == o.WitnessDir {
		return errors.New("--audit-witness-dir: the witness must not be in the sink")
	}
	if o.QueueLimit < MinBytes {
		return fmt.Errorf("--audit-queue-limit: %d is less than %d", o.QueueLimit, MinBytes)
	}
	return nil
}

// History returns a reader of the sink.
func (o *Options) History() *history.Reader { return history.New(sink.FileAt(o.SinkDir)) }

// Recorder returns the Recorder of a service. It does not create the folders of the sink and the witness: a missing folder is storage
// that is not mounted, and counts as away.
func (o *Options) Recorder(ctx context.Context, service string, log *slog.Logger, metrics prometheus.Registerer) (*Recorder, error) {
	key, err := audit.LoadKey(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--audit-signing-key-file: %w", err)
	}
	return NewRecorder(ctx, Config{Dir: o.QueueDir, Service: service, Key: key, Log: sink.FileAt(o.SinkDir), Witness: sink.FileWitnessAt(o.WitnessDir), MaxBytes: o.QueueLimit,
		Logger: log, Metrics: metrics}), nil
}

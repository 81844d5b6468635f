package writer

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink/blobsink"
	"github.com/hcpmesh/hcpmesh/internal/process"
)

// Options are the flags of a service with an audit.
type Options struct {
	// QueueDir is the folder of the queue, on a disk that survives a restart of the replica.
	QueueDir string
	// SinkDir is the folder of the sink, WitnessDir that of the witness.
	SinkDir, WitnessDir string
	// SinkURL and WitnessURL are containers of Azure Blob Storage in place of these folders.
	SinkURL, WitnessURL string
	// KeyFile is the PEM file with the private key that signs checkpoints.
	KeyFile string
	// QueueLimit is the limit of the queue in bytes.
	QueueLimit int64
}

// AddFlags registers the flags.
func (o *Options) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&o.QueueDir, "audit-queue-dir", "", "`folder` of the queue of audit records; every replica needs its own, on a disk that survives a restart")
	flags.StringVar(&o.SinkDir, "audit-sink-dir", "", "`folder` to which audit records are exported, on append-only storage")
	flags.StringVar(&o.WitnessDir, "audit-witness-dir", "", "`folder` for the audit checkpoints, on other append-only storage than the audit sink")
	flags.StringVar(&o.SinkURL, "audit-sink-url", "", "https `URL` of the container to which audit records are exported, with an immutability policy; in place of --audit-sink-dir")
	flags.StringVar(&o.WitnessURL, "audit-witness-url", "", "https `URL` of the container for the audit checkpoints, in another account; in place of --audit-witness-dir")
	flags.StringVar(&o.KeyFile, "audit-signing-key-file", "", "PEM `file` with the ECDSA key that signs audit checkpoints")
	flags.Int64Var(&o.QueueLimit, "audit-queue-limit", DefaultBytes, "largest size of the audit queue in `bytes`; a full queue rejects requests that must be audited")
}

// Enabled reports whether a flag of the audit is set.
func (o *Options) Enabled() bool {
	return o.QueueDir+o.SinkDir+o.SinkURL+o.WitnessDir+o.WitnessURL+o.KeyFile != ""
}

// Validate returns an error that names the first missing or invalid flag.
func (o *Options) Validate() error {
	err := cmp.Or(
		process.Required("audit-queue-dir", o.QueueDir),
		process.Required("audit-sink-dir", o.SinkDir+o.SinkURL),
		process.Required("audit-witness-dir", o.WitnessDir+o.WitnessURL),
		process.Required("audit-signing-key-file", o.KeyFile),
		process.ErrorIf(o.SinkDir+o.SinkURL == o.WitnessDir+o.WitnessURL, "--audit-witness-dir: the witness must not be in the sink"),
		process.AtLeast("audit-queue-limit", o.QueueLimit, MinBytes),
	)
	for _, storage := range []struct{ name, dir, url string }{{"sink", o.SinkDir, o.SinkURL}, {"witness", o.WitnessDir, o.WitnessURL}} {
		if storage.url != "" {
			err = cmp.Or(err, process.ErrorIf(storage.dir != "", "--audit-%s-dir and --audit-%[1]s-url: set one of them", storage.name),
				process.Named("audit-"+storage.name+"-url", blobsink.Valid(storage.url)))
		}
	}
	return err
}

// Storage returns the sink and the witness. It does not create their folders: a missing folder is storage that is not mounted, and counts as away.
func (o *Options) Storage() (sink.Storage, *sink.WitnessLog, error) {
	records, err := blobsink.Open(o.SinkDir, o.SinkURL)
	if err != nil {
		return nil, nil, err
	}
	checkpoints, err := blobsink.OpenWitness(o.WitnessDir, o.WitnessURL)
	return records, checkpoints, err
}

// Recorder returns the Recorder of a service.
func (o *Options) Recorder(ctx context.Context, service string, log *slog.Logger, metrics prometheus.Registerer) (*Recorder, error) {
	key, err := audit.LoadKey(o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--audit-signing-key-file: %w", err)
	}
	records, checkpoints, err := o.Storage()
	if err != nil {
		return nil, err
	}
	return NewRecorder(ctx, Config{Dir: o.QueueDir, Service: service, Key: key, Log: records, Witness: checkpoints, MaxBytes: o.QueueLimit,
		Logger: log, Metrics: metrics}), nil
}

package audittest

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/verify"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
)

// Options returns the options of the audit of a service that a test runs as a whole, with a new signing key.
func Options(t testing.TB) *writer.Options {
	t.Helper()
	dir := t.TempDir()
	key, err := audit.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	o := &writer.Options{QueueDir: filepath.Join(dir, "queue"), SinkDir: filepath.Join(dir, "sink"), WitnessDir: filepath.Join(dir, "witness"),
		KeyFile: filepath.Join(dir, "signing.key"), QueueLimit: writer.DefaultBytes}
	if err := key.Create(o.KeyFile); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{o.QueueDir, o.SinkDir, o.WitnessDir} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// Flags returns the flags of options.
func Flags(o *writer.Options) []string {
	return []string{"--audit-queue-dir=" + o.QueueDir, "--audit-sink-dir=" + o.SinkDir, "--audit-witness-dir=" + o.WitnessDir, "--audit-signing-key-file=" + o.KeyFile}
}

// Stored verifies the audit of a service that has ended, and returns the records in the sink, in the order of the chain.
func Stored(t testing.TB, o *writer.Options, service string) []audit.Record {
	t.Helper()
	key, err := audit.LoadKey(o.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	keys := audit.Keys{}
	keys.Trust(service, key)
	log, err := sink.OpenFile(o.SinkDir)
	if err != nil {
		t.Fatal(err)
	}
	witness, err := sink.OpenFileWitness(o.WitnessDir)
	if err != nil {
		t.Fatal(err)
	}
	report, err := verify.Verify(context.Background(), verify.Input{Log: log, Witness: witness, Keys: keys, Queues: []string{o.QueueDir}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Findings {
		t.Errorf("audit: %+v", f)
	}
	var records []audit.Record
	for _, chain := range report.Chains {
		stored, err := log.Open(context.Background(), chain.Writer, 0)
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(stored)
		_ = stored.Close()
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, recordsOf(t, content)...)
	}
	return records
}

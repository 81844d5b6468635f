package rotation

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// auditServices returns the services of the region that sign audit records.
func auditServices(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(local.AuditFoldersOf(dir).Keys, "*.pem"))
	if err != nil || len(files) < 7 {
		t.Fatalf("%d services with audit keys: %v", len(files), err)
	}
	for i := range files {
		files[i] = strings.TrimSuffix(filepath.Base(files[i]), ".pem")
	}
	return files
}

// formerAudit is the audit of a region before its keys are rotated.
type formerAudit struct {
	dir string
	// stolen is a copy of the key with which admin signed.
	stolen *audit.SigningKey
	ids    map[string]string
}

// startAudit has admin sign a record, and copies its key.
func startAudit(ctx context.Context, t *testing.T, region *local.Region, dir string) *formerAudit {
	t.Helper()
	f := &formerAudit{dir: dir, ids: map[string]string{}}
	for _, service := range auditServices(t, dir) {
		f.ids[service] = auditKey(t, dir, service).ID()
	}
	file := must.Get(local.AuditKeyOf(dir, "admin"))(t)
	content := must.Get(os.ReadFile(file.File))(t)
	stolen := filepath.Join(t.TempDir(), "stolen.key")
	must.Do(t, os.WriteFile(stolen, content, 0o600))
	f.stolen = must.Get(audit.LoadKey(stolen))(t)
	f.record(ctx, t, region, f.stolen.ID())
	return f
}

func auditKey(t *testing.T, dir, service string) *audit.SigningKey {
	t.Helper()
	files := must.Get(local.AuditKeyOf(dir, service))(t)
	return must.Get(audit.LoadKey(files.File))(t)
}

// record makes a request that admin refuses and records, and waits until the sink has the record and a later checkpoint of a key.
func (f *formerAudit) record(ctx context.Context, t *testing.T, region *local.Region, key string) {
	t.Helper()
	reader := must.Get(customer.NewEngineer(region.Endpoints(), "reader"))(t)
	before := len(f.chain(t))
	if _, err := adminclient.Get(ctx, reader, adminv1.ReadDump, nil, "absent"); err == nil {
		t.Error("admin has dumped a cluster that does not exist")
	}
	eventually.Soon(t, "admin signs the record", func() error {
		lines := f.chain(t)
		added := lines[before:]
		record := slices.IndexFunc(added, func(l audit.Line) bool { return l.Kind == audit.RecordLine })
		if record < 0 || added[len(added)-1].Key != key {
			return fmt.Errorf("the chain of admin has %d lines, %d of them new; want a record and then a checkpoint of %s", len(lines), len(added), key)
		}
		return nil
	})
}

// chain returns the lines of admin's chain in the sink.
func (f *formerAudit) chain(t *testing.T) []audit.Line {
	t.Helper()
	content := must.Get(os.ReadFile(chainFile(t, local.AuditFoldersOf(f.dir).Sink)))(t)
	return parse(content)
}

// chainFile returns the file of admin's chain in a sink.
func chainFile(t *testing.T, sink string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(sink, "admin-*.jsonl"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the chains of admin are %v: %v", files, err)
	}
	return files[0]
}

// parse returns the lines of a chain up to the first one that is incomplete, because the writer exports it.
func parse(content []byte) (lines []audit.Line) {
	for text := range bytes.Lines(content) {
		line, err := audit.ParseLine(bytes.TrimSuffix(text, []byte("\n")))
		if err != nil {
			break
		}
		lines = append(lines, line)
	}
	return lines
}

// check verifies the audit after the rotation, while the region runs and after it has stopped.
func (f *formerAudit) check(ctx context.Context, t *testing.T, region *local.Region) {
	t.Helper()
	for service, former := range f.ids {
		if auditKey(t, f.dir, service).ID() == former {
			t.Errorf("%s has its former audit key", service)
		}
	}
	f.record(ctx, t, region, auditKey(t, f.dir, "admin").ID())
	run(ctx, t, "audit", "verify", "--state-dir", f.dir)
	region.Close()
	run(ctx, t, "audit", "verify", "--state-dir", f.dir)
	f.checkCopies(ctx, t)
}

// checkCopies verifies copies of the audit: an unchanged one, and one with each change in the part of each key.
func (f *formerAudit) checkCopies(ctx context.Context, t *testing.T) {
	t.Helper()
	copied := f.copyAudit(t)
	if output, err := copied.verify(ctx); err != nil {
		t.Fatalf("the copy: %v\n%s", err, output)
	}
	lines := parse(copied.log)
	// A checkpoint signs the lines before it, so the part of the next key begins after the last checkpoint of the former one.
	next := 0
	for i, line := range lines {
		if line.Key == f.stolen.ID() {
			next = i + 1
		}
	}
	for part, bounds := range map[string][2]int{"before the rotation": {0, next}, "after the rotation": {next, len(lines)}} {
		at := bounds[0] + slices.IndexFunc(lines[bounds[0]:bounds[1]], func(l audit.Line) bool { return l.Kind == audit.RecordLine })
		if at < bounds[0] {
			t.Fatalf("the chain has no record %s", part)
		}
		for change, mutate := range map[string]func(lines [][]byte) [][]byte{
			"change": func(lines [][]byte) [][]byte {
				lines[at] = bytes.Replace(lines[at], []byte(`"action":"`), []byte(`"action":"x`), 1)
				return lines
			},
			"deletion":                         func(lines [][]byte) [][]byte { return slices.Delete(lines, at, at+1) },
			"cut":                              func(lines [][]byte) [][]byte { return lines[:at] },
			"continuation with the former key": func(all [][]byte) [][]byte { return f.continued(t, all, lines, at) },
		} {
			changed := bytes.Join(mutate(slices.Collect(bytes.Lines(bytes.Clone(copied.log)))), nil)
			if bytes.Equal(changed, copied.log) {
				t.Fatalf("a %s %s changes nothing", change, part)
			}
			copied.write(t, changed)
			output, err := copied.verify(ctx)
			t.Logf("a %s %s: %v\n%s", change, part, err, output)
			if err == nil || !strings.Contains(err.Error(), "the audit was changed") {
				t.Errorf("a %s %s is not found: %v", change, part, err)
			}
			copied.write(t, copied.log)
		}
	}
}

// continued returns the lines with the same records from a line on, and with the checkpoints of the former key.
func (f *formerAudit) continued(t *testing.T, all [][]byte, lines []audit.Line, from int) [][]byte {
	position := audit.Position{}
	if from > 0 {
		position = lines[from-1].At(0, 0)
	}
	kept := slices.Clip(all[:from])
	for _, line := range lines[from:] {
		var text []byte
		var err error
		at := line.Time.Add(-time.Hour)
		if line.Kind == audit.CheckpointLine {
			text, position, err = audit.AppendCheckpoint(nil, audit.Head{Writer: line.Writer, Time: at}, position, f.stolen)
		} else {
			var encoded []byte
			if encoded, err = audit.EncodeRecord(*line.Record); err == nil {
				text, position = audit.AppendRecord(nil, audit.Head{Writer: line.Writer, Time: at}, position, audit.Entry{Record: encoded})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, text)
	}
	return kept
}

// auditCopy is a copy of the audit of a region, with the content of admin's chain.
type auditCopy struct {
	folders local.AuditFolders
	file    string
	log     []byte
}

// copyAudit copies the audit of a region that does not run.
func (f *formerAudit) copyAudit(t *testing.T) *auditCopy {
	t.Helper()
	from, to := local.AuditFoldersOf(f.dir), t.TempDir()
	c := &auditCopy{folders: local.AuditFolders{Sink: filepath.Join(to, "sink"), Witness: filepath.Join(to, "witness"), Keys: filepath.Join(to, "keys")}}
	for _, pair := range [][2]string{{from.Witness, c.folders.Witness}, {from.Sink, c.folders.Sink}, {from.Keys, c.folders.Keys}} {
		must.Do(t, os.CopyFS(pair[1], os.DirFS(pair[0])))
	}
	c.file = chainFile(t, c.folders.Sink)
	c.log = must.Get(os.ReadFile(c.file))(t)
	return c
}

func (c *auditCopy) write(t *testing.T, content []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(c.file, content, 0o600))
}

// verify runs `hcpctl audit verify` without the queues, as somebody does who has only the evidence.
func (c *auditCopy) verify(ctx context.Context) (string, error) {
	var output bytes.Buffer
	hcpctl := command.New(&output, &output)
	hcpctl.SetArgs([]string{"audit", "verify", "--sink", c.folders.Sink, "--witness", c.folders.Witness, "--keys", c.folders.Keys})
	err := hcpctl.ExecuteContext(ctx)
	return output.String(), err
}

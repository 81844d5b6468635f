package command_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
)

// TestAuditVerifyReportsChanges runs the command on a sink with a valid chain, then on changed ones.
func TestAuditVerifyReportsChanges(t *testing.T) {
	const name = "admin-0123456789abcdef"
	dir := t.TempDir()
	key := must.Get(audit.GenerateKey())(t)
	public := must.Get(key.PublicPEM())(t)
	now := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	log, at, err := audit.AppendCheckpoint(nil, audit.Head{Writer: name, Time: now}, audit.Position{}, key)
	if err != nil {
		t.Fatal(err)
	}
	record := must.Get(audit.EncodeRecord(audit.Record{Action: "clusters.dump", Outcome: audit.Succeeded, Person: audit.Person{Name: "ada@example.com"}}))(t)
	log, at = audit.AppendRecord(log, audit.Head{Writer: name, Time: now}, at, audit.Entry{Record: record})
	before := len(log)
	if log, at, err = audit.AppendCheckpoint(log, audit.Head{Writer: name, Time: now}, at, key); err != nil {
		t.Fatal(err)
	}
	forged, _ := audit.AppendRecord(bytes.Clone(log), audit.Head{Writer: name, Time: now}, at, audit.Entry{Record: record})
	write := func(content []byte, path ...string) {
		t.Helper()
		file := filepath.Join(append([]string{dir}, path...)...)
		must.Do(t, os.MkdirAll(filepath.Dir(file), 0o700))
		must.Do(t, os.WriteFile(file, content, 0o600))
	}
	write(public, "keys", "admin.pem")
	write(log[before:], "witness", name+".checkpoint")
	for reason, c := range map[string]struct {
		content []byte
		sink    string
		code    int
		output  string
	}{
		"a valid chain":  {log, "sink", 0, name + "  1        2"},
		"a changed name": {bytes.Replace(log, []byte("ada@"), []byte("bob@"), 1), "sink", 1, name + ": line 2, record 2: changed: "},
		"a cut end":      {log[:before], "sink", 1, name + ": the chain, record 3: cut: "},
		"a forged end":   {forged, "sink", 1, name + ": line 4, record 4: unconfirmed: "},
		"no sink":        {log, "nowhere", 4, ""},
	} {
		write(c.content, "sink", name+".jsonl")
		var out, errOut bytes.Buffer
		root := command.New(&out, &errOut)
		root.SetArgs([]string{"audit", "verify", "--sink", filepath.Join(dir, c.sink), "--witness", filepath.Join(dir, "witness"), "--keys", filepath.Join(dir, "keys")})
		err := root.ExecuteContext(context.Background())
		if code := command.ExitCode(err); code != c.code || !strings.Contains(out.String(), c.output) {
			t.Errorf("%s: exit code %d (%v), output:\n%s", reason, code, err, out.String())
		}
	}
	root := command.New(&bytes.Buffer{}, &bytes.Buffer{})
	root.SetArgs([]string{"audit", "verify", "--witness", dir})
	if code := command.ExitCode(root.ExecuteContext(context.Background())); code != 2 {
		t.Errorf("--witness without --sink: exit code %d", code)
	}
}

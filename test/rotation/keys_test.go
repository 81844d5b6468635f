package rotation

import (
	"bytes"
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/keyrotation"
)

// formerNeeded is how long the former keys of credentials, skip tokens and intents are kept. It exceeds the use of each of their values
// under the load of the test: no list of it has a second page.
const formerNeeded = "5s"

// rotateKeys runs `hcpctl keys rotate` for all kinds of keysets and for the audit keys of all services at the same time, and checks that the
// former keys are replaced.
func rotateKeys(ctx context.Context, t *testing.T, dir string) {
	t.Helper()
	var running sync.WaitGroup
	defer running.Wait() // also if the test fails in between
	for _, kind := range keyrotation.Kinds() {
		args, of := []string{"keys", "rotate", kind.Name, "--state-dir", dir}, ""
		if kind.PerShard {
			of = shard
			args = append(args, "--shard", shard)
		}
		if kind.Needed > 0 {
			args = append(args, "--former-needed", formerNeeded)
		}
		keyset := must.Get(local.KeysetOf(dir, kind.Name, of))(t)
		former := primary(t, keyset.File)
		running.Go(func() {
			run(ctx, t, args...)
			if next := primary(t, keyset.File); next == former {
				t.Errorf("%s has the former key", filepath.Base(keyset.File))
			}
		})
	}
	for _, service := range auditServices(t, dir) {
		running.Go(func() { run(ctx, t, "keys", "rotate", "audit", "--service", service, "--state-dir", dir) })
	}
}

// run executes hcpctl, logs its output, and fails the test if the command fails.
func run(ctx context.Context, t *testing.T, args ...string) {
	t.Helper()
	var output bytes.Buffer
	hcpctl := command.New(&output, &output)
	hcpctl.SetArgs(args)
	err := hcpctl.ExecuteContext(ctx)
	t.Logf("hcpctl %v: %v\n%s", args, err, &output)
	if err != nil {
		t.Errorf("hcpctl %v: %v", args, err)
	}
}

// primary returns the only key of a keyset.
func primary(t *testing.T, keyset string) uint32 {
	t.Helper()
	keys, err := keyfile.List(keyset)
	if err != nil || len(keys) != 1 || !keys[0].Primary {
		t.Errorf("%s: %+v, %v: want one key", filepath.Base(keyset), keys, err)
		return 0
	}
	return keys[0].ID
}

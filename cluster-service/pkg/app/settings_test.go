package app

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/deletiongraph"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
	"github.com/hcpmesh/hcpmesh/internal/seal"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestOnlyDevelopersRunWithoutSecrets checks that the exceptions for a developer's machine need their flag, in each environment.
func TestOnlyDevelopersRunWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, environment := range []string{"local", "prod"} {
		options := &Options{Environment: environment, SecretsKey: filepath.Join(t.TempDir(), "sealing.json"), ShardKeysDir: t.TempDir()}
		if _, err := options.settings(); err == nil || !strings.Contains(err.Error(), "pullSecretFile is required without --developer") {
			t.Errorf("%s without a pull secret: %v", environment, err)
		}
		if _, err := options.openKeeper(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s without a keyset: %v", environment, err)
		}
		options.Developer = true
		if _, err := options.openKeeper(); err != nil {
			t.Errorf("%s, a developer without a keyset: %v", environment, err)
		}
		if _, err := options.settings(); err != nil {
			t.Errorf("%s, a developer without a pull secret: %v", environment, err)
		}
	}
}

// TestSettingsAreReloaded checks that changed files take effect while the process runs and that unusable files change
// nothing.
func TestSettingsAreReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	secret := write("pull.json", `{"auths":{"one.example":{}}}`)
	keys := filepath.Join(dir, "shard-keys")
	must.Do(t, os.Mkdir(keys, 0o700))
	sealing := filepath.Join(dir, "sealing.json")
	keeper := must.Get(seal.LoadOrCreate(sealing))(t)
	options := &Options{ShardKeysDir: keys, SecretsKey: sealing, ConfigFile: write("config.yaml", "pullSecretFile: "+secret)}
	settings := must.Get(options.settings())(t)
	rotations := 0
	changes, limits := 0, deletiongraph.NewLimits(settings.Config.Deletion.Durations())
	f := newSettingsFollower(options, keeper, &render.Renderer{Config: settings.Config, PullSecret: settings.PullSecret,
		Region: fleet.Region{StepLimits: limits}}, func() { changes++ }, func() { rotations++ }, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	expect := func(reason string, wantChanges int, unusable float64, pullSecret string) {
		t.Helper()
		f.look()
		if got := testutil.ToFloat64(f.unusable); changes != wantChanges || got != unusable || string(f.current.PullSecret) != pullSecret {
			t.Errorf("%d changes, unusable %v, pull secret %s: %s", changes, got, f.current.PullSecret, reason)
		}
	}
	expect("nothing changed", 0, 0, `{"auths":{"one.example":{}}}`)
	added := must.Get(keyfile.Add(sealing))(t)
	expect("a sealing key was added, but does not seal", 0, 0, `{"auths":{"one.example":{}}}`)
	if rotations != 0 {
		t.Error("secrets are sealed again although the primary key is the same")
	}
	must.Do(t, keyfile.Promote(sealing, added))
	valid := must.Get(os.ReadFile(sealing))(t)
	expect("another sealing key became the primary key", 0, 0, `{"auths":{"one.example":{}}}`)
	write("sealing.json", `{"primaryKeyId":`)
	expect("half a keyset is not taken", 0, 1, `{"auths":{"one.example":{}}}`)
	write("sealing.json", string(valid))
	expect("the keyset is as it was", 0, 0, `{"auths":{"one.example":{}}}`)
	if rotations != 1 || keeper.Primary() != added {
		t.Errorf("secrets were sealed again %d times, with the key %d; want once, with %d", rotations, keeper.Primary(), added)
	}
	write("pull.json", `{"auths":{"two.example":{}}}`)
	expect("the pull secret changed", 1, 0, `{"auths":{"two.example":{}}}`)
	write("pull.json", `{"auths":`)
	expect("half a file is not taken", 1, 1, `{"auths":{"two.example":{}}}`)
	write("pull.json", `{"auths":{"two.example":{}}}`)
	expect("it is as it was", 1, 0, `{"auths":{"two.example":{}}}`)
	write("config.yaml", "pullSecretFile: "+secret+"\nimageContentSources: [{source: quay.io/a, mirrors: [mirror.example/a]}]")
	expect("the configuration changed", 2, 0, `{"auths":{"two.example":{}}}`)
	write("config.yaml", "pullSecretFile: "+secret+"\nimageContentSources: [{source: quay.io/a, mirrors: [mirror.example/a]}]\ndeletion: {stuckAfter: {namespaces: 3m}}")
	expect("the limit of a step of deletions changed", 3, 0, `{"auths":{"two.example":{}}}`)
	if got := limits.Of(deletiongraph.Namespaces); got != 3*time.Minute {
		t.Errorf("the limit of namespaces is %s, want the configured 3m", got)
	}
	for i, reason := range []string{"a shard got a key", "the key of a shard was replaced"} {
		must.Do(t, seal.CreatePair(filepath.Join(dir, fmt.Sprintf("private-%d.json", i)), filepath.Join(keys, "mgmt-1.json")))
		expect(reason, 4+i, 0, `{"auths":{"two.example":{}}}`)
	}
	write("shard-keys/mgmt-2.json", `{"primaryKeyId":1}`)
	expect("a file without a key", 5, 1, `{"auths":{"two.example":{}}}`)
	must.Do(t, os.Remove(filepath.Join(keys, "mgmt-2.json")))
	write("config.yaml", "unknown: 1")
	expect("an unknown field", 5, 1, `{"auths":{"two.example":{}}}`)
	if len(f.current.Config.ImageContentSources) != 1 {
		t.Errorf("the configuration in use is %+v", f.current.Config)
	}
}

package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/render"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// settingsInterval is the period between reads of the files. Kubernetes replaces mounted files with a symbolic link, which a
// watch of the file does not report.
const settingsInterval = 5 * time.Second

// settings reads the configuration, the pull secret that it names, and the keys of the shards.
func (o *Options) settings() (render.Settings, error) {
	c, err := config.Load(o.ConfigFile)
	if err != nil {
		return render.Settings{}, err
	}
	if c.PullSecretFile == "" && !o.Developer {
		return render.Settings{}, errors.New("pullSecretFile is required without --developer")
	}
	pullSecret, err := c.PullSecret()
	if err != nil {
		return render.Settings{}, err
	}
	// The keyset follows its file by itself, and keeps the previous content if the file is invalid, which must not stay unnoticed.
	if _, err := seal.Load(o.SecretsKey); err != nil {
		return render.Settings{}, fmt.Errorf("--secrets-key-file: %w", err)
	}
	keys, err := config.LoadShardKeys(o.ShardKeysDir)
	if err != nil {
		return render.Settings{}, fmt.Errorf("--shard-keys-dir: %w", err)
	}
	return render.Settings{Config: c, PullSecret: pullSecret, ShardKeys: keys}, nil
}

// settingsFollower applies changes of the configuration file, of the pull secret and of the keys of shards while the process runs. If the files are
// invalid, it reports that and keeps the settings that were in use.
type settingsFollower struct {
	log      *slog.Logger
	read     func() (render.Settings, error)
	renderer *render.Renderer
	changed  func()
	current  render.Settings
	failure  string
	// keeper seals secrets. resealing is called when its primary key is no longer sealedBy.
	keeper    *seal.Keys
	sealedBy  uint32
	resealing func()
	unusable  prometheus.Gauge
}

func newSettingsFollower(o *Options, keeper *seal.Keys, renderer *render.Renderer, changed, resealing func(), metrics prometheus.Registerer, log *slog.Logger) *settingsFollower {
	f := &settingsFollower{log: log, read: o.settings, renderer: renderer, changed: changed, keeper: keeper, sealedBy: keeper.Primary(), resealing: resealing,
		current: render.Settings{Config: renderer.Config, PullSecret: renderer.PullSecret, ShardKeys: renderer.ShardKeys},
		unusable: prometheus.NewGauge(prometheus.GaugeOpts{Name: "cluster_service_settings_unusable",
			Help: "1 if the configuration, the pull secret, a shard's key or the sealing keyset on disk is invalid and the previous one stays in use, else 0."})}
	metrics.MustRegister(f.unusable)
	return f
}

func (f *settingsFollower) run(ctx context.Context) {
	ticker := time.NewTicker(settingsInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.look()
		}
	}
}

// Apply makes changed settings effective: later renderings use them, and the steps of open deletions get the configured
// limits. The section azureResources is read only at the start of the process.
func Apply(renderer *render.Renderer, s render.Settings) {
	renderer.Change(s)
	renderer.Region.StepLimits.Set(s.Config.Deletion.Durations())
}

// look reads the files and applies them if they changed.
func (f *settingsFollower) look() {
	if primary := f.keeper.Primary(); primary != f.sealedBy {
		f.sealedBy = primary
		f.log.Info("the primary sealing key changed", logkey.KeyID, primary)
		f.resealing()
	}
	next, err := f.read()
	if err != nil {
		f.unusable.Set(1)
		if f.failure != err.Error() {
			f.log.Error("the changed configuration is invalid; the previous one stays in use", logkey.Error, err)
		}
		f.failure = err.Error()
		return
	}
	f.unusable.Set(0)
	f.failure = ""
	if reflect.DeepEqual(next.Config, f.current.Config) && bytes.Equal(next.PullSecret, f.current.PullSecret) &&
		maps.EqualFunc(next.ShardKeys, f.current.ShardKeys, func(a, b *seal.PublicKeys) bool { return a.ID() == b.ID() }) {
		return
	}
	if !reflect.DeepEqual(next.Config.AzureResources, f.current.Config.AzureResources) {
		f.log.Warn("the section azureResources of the configuration changed; the change takes effect after a restart")
	}
	f.current = next
	Apply(f.renderer, next)
	f.log.Info("the configuration changed; clusters are rendered again")
	f.changed()
}

// openKeeper reads the keyset that seals secrets. Only on a developer's machine it creates a missing one: secrets that another keyset sealed
// would be lost.
func (o *Options) openKeeper() (*seal.Keys, error) {
	load := seal.Load
	if o.Developer {
		load = seal.LoadOrCreate
	}
	keeper, err := load(o.SecretsKey)
	if err != nil {
		return nil, fmt.Errorf("--secrets-key-file: %w", err)
	}
	return keeper, nil
}

package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/test/sources"
)

// whole is the region that the tests share: it is started by the first that needs it, and stopped after the last.
var whole struct {
	once   sync.Once
	dir    string
	region *local.Region
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if whole.region != nil {
		whole.region.Close()
		if races := whole.region.Races(); races != "" {
			fmt.Fprint(os.Stderr, races)
			code = 1
		}
	}
	switch {
	case whole.dir == "":
	case code != 0:
		fmt.Fprintf(os.Stderr, "the region's logs are in %s\n", filepath.Join(whole.dir, "logs"))
	default:
		if err := os.RemoveAll(whole.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start returns the region, and starts it where it is not.
func start(t *testing.T) *local.Region {
	t.Helper()
	sources.DependOnAll(t)
	whole.once.Do(func() {
		if whole.dir, whole.err = os.MkdirTemp("", "hcpmesh-contract-"); whole.err != nil {
			return
		}
		// PostgreSQL's user must be able to pass through.
		if whole.err = os.Chmod(whole.dir, 0o755); whole.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		defer cancel()
		quick, freePorts := 0.0, 0
		whole.region, whole.err = local.Start(ctx, local.Config{
			StateDir: whole.dir, BasePort: &freePorts, TimeScale: &quick, Fidelity: local.FidelityStatus, Build: true, Throwaway: true,
			OnNote: func(note string) { fmt.Fprintln(os.Stderr, note) },
		})
	})
	if whole.err != nil {
		t.Fatalf("starting the region: %v", whole.err)
	}
	return whole.region
}

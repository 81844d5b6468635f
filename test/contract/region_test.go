package contract

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/test"
)

// shared is the region of all tests. The first test that needs it starts it, and TestMain stops it.
var shared struct {
	once   sync.Once
	dir    string
	region *local.Region
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.region != nil {
		shared.region.Close()
		if races := shared.region.Races(); races != "" {
			fmt.Fprint(os.Stderr, races)
			code = 1
		}
	}
	switch {
	case shared.dir == "":
	case code != 0:
		fmt.Fprintf(os.Stderr, "the region's logs are in %s\n", filepath.Join(shared.dir, "logs"))
	default:
		if err := os.RemoveAll(shared.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// start returns the shared region and starts it if necessary.
func start(t *testing.T) *local.Region {
	t.Helper()
	test.DependOnCode(t)
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "hcpmesh-contract-"); shared.err != nil {
			return
		}
		// PostgreSQL runs as another user.
		if shared.err = os.Chmod(shared.dir, 0o755); shared.err != nil {
			return
		}
		noDelays, freePorts := 0.0, 0
		shared.region, shared.err = local.Start(context.Background(), local.Config{
			StateDir: shared.dir, BasePort: &freePorts, TimeScale: &noDelays, Fidelity: local.FidelityStatus, Build: test.BuildRegion(), Throwaway: true,
			ShardKeys: []string{"mgmt-3"}, // the cases of admin register it
			OnNote:    func(note string) { fmt.Fprintln(os.Stderr, note) },
		})
	})
	if shared.err != nil {
		t.Fatalf("starting the region: %v", shared.err)
	}
	return shared.region
}

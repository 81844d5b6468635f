package local

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

func TestInfra(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	zero := 0
	start := time.Now()
	region, err := Start(ctx, Config{
		StateDir: filepath.Join(t.TempDir(), "state"), BasePort: &zero,
		Without:  []string{"eventgrid-emulator", "maestro-server", "mgmt-1-maestro-agent", "mgmt-2-maestro-agent", "cluster-service", "frontend", "backend", "arm-frontdoor"},
		OnChange: func(s ProcessStatus) { t.Log(time.Since(start).Round(time.Millisecond), s.Name, s.State, s.Message) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("ready", time.Since(start))
	region.Close()
	t.Log("closed", time.Since(start))
}

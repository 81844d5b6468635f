package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
)

// copyDatabase replaces a database by a copy of another one in the running server of the region. It terminates connections to
// both.
func copyDatabase(t *testing.T, ctx context.Context, to, from string) {
	t.Helper()
	connection := must.Get(administrator(ctx, local.MaestroDatabase))(t)
	defer connection.Close(context.WithoutCancel(ctx))
	run := func(format string, args ...any) {
		t.Helper()
		must.Get(connection.Exec(ctx, fmt.Sprintf(format, args...)))(t)
	}
	names := map[string]string{to: pgx.Identifier{to}.Sanitize(), from: pgx.Identifier{from}.Sanitize()}
	run("DROP DATABASE IF EXISTS %s WITH (FORCE)", names[to])
	run("ALTER DATABASE %s ALLOW_CONNECTIONS false", names[from])
	run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'", from)
	eventually.Before(ctx, t, "the database is copied", func() error {
		_, err := connection.Exec(ctx, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s OWNER clusterservice_owner", names[to], names[from]))
		return err
	})
	for _, name := range names {
		run("ALTER DATABASE %s ALLOW_CONNECTIONS true", name)
	}
}

// TestRestoredFleetIsRepaired restores Cluster Service's database in a running region to a time before one cluster was created,
// one was changed and one was deleted. Afterwards the same HostedClusters must exist with the same UIDs, the deleted cluster
// must be gone again, and new changes must take effect.
func TestRestoredFleetIsRepaired(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	ctx := withTimeout(t, 15*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000012", "restored")
	d := scenario{t: t, ctx: ctx, c: c, id: c.ClusterID("kept")}
	kept, made, gone := c.ClusterID("kept"), c.ClusterID("made"), c.ClusterID("gone")
	d.put(kept, c.ClusterBody("kept"))
	d.put(c.NodePoolID("kept", "workers"), c.NodePoolBody(1))
	d.put(gone, c.ClusterBody("gone"))

	copyDatabase(t, ctx, "clusterservice_backup", local.ClusterServiceDatabase)
	d.put(made, c.ClusterBody("made"))
	d.put(c.NodePoolID("made", "workers"), c.NodePoolBody(1))
	d.patch(c.NodePoolID("kept", "workers"), map[string]any{"replicas": 2})
	must.Do(t, c.Delete(ctx, gone))
	const uids = `{.items[*].metadata.uid}`
	objects := map[string]string{}
	for _, id := range []string{kept, made} {
		host := hosting(t, ctx, id)
		objects[id] = host.get(ctx, "hostedclusters", uids) + " " + host.get(ctx, "nodepools", uids)
	}

	copyDatabase(t, ctx, local.ClusterServiceDatabase, "clusterservice_backup")
	oncall := engineer(t, "oncall")
	// The backend detects the restore, compares everything and repairs the differences. It deletes the deleted cluster again.
	eventually.Before(ctx, t, "there is no drift", func() error {
		list, err := adminclient.Get(ctx, oncall, adminv1.ReadDrift, nil)
		if err == nil && (len(list.Items) > 0 || list.InFleet != list.Desired || list.InFleet < 4) {
			err = fmt.Errorf("drift is %+v", list)
		}
		return err
	})
	for id, before := range objects {
		host := hosting(t, ctx, id)
		if now := host.get(ctx, "hostedclusters", uids) + " " + host.get(ctx, "nodepools", uids); now != before {
			t.Errorf("%s: objects were %s, are %s", id, before, now)
		}
	}
	d.patch(c.NodePoolID("made", "workers"), map[string]any{"replicas": 2})
	d.patch(c.NodePoolID("kept", "workers"), map[string]any{"replicas": 1})
	for _, id := range []string{kept, made} {
		if err := c.Delete(ctx, id); err != nil {
			t.Error(err)
		}
	}
	nothingIsLeft(t, ctx, c)
}

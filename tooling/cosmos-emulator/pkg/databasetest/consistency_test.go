package databasetest_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/faults"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/account"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/databasetest"
	"github.com/hcpmesh/hcpmesh/tooling/cosmos-emulator/pkg/emulator"
)

// TestWeakerConsistencyIsRefused connects to accounts of all consistency levels. A process refuses an account in which another replica
// may not read what it has written, and the error names both levels. It is not one of those that are repeated.
func TestWeakerConsistencyIsRefused(t *testing.T) {
	for _, level := range account.ConsistencyLevels() {
		t.Run(string(level), func(t *testing.T) {
			content := databasetest.Account(t)
			content.ConsistencyLevel = level
			e := must.Get(emulator.Open(emulator.Options{DataDir: t.TempDir(), Key: emulator.WellKnownKey, Account: content}))(t)
			server := httptest.NewServer(e)
			defer func() {
				server.Close()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}()
			db := must.Get(database.Open(t.Context(), database.Options{Endpoint: server.URL, Key: emulator.WellKnownKey}))(t)
			defer db.Close()
			_, readErr := db.Clusters().Find(t.Context(), clusterKey(t, "none"))
			for _, err := range []error{readErr, db.CheckSchema(t.Context()), db.Ping(t.Context())} {
				switch {
				case level == account.ConsistencyLevel(database.ConsistencyLevel):
					if err != nil {
						t.Error(err)
					}
				case err == nil || apierror.As(err).Kind == apierror.Unavailable || !strings.Contains(err.Error(), `"`+string(level)+`"`) || !strings.Contains(err.Error(), `"Strong"`):
					t.Errorf("got %v, want an error that names the levels", err)
				}
			}
		})
	}
}

// TestEveryConnectionReadsLatestWrites reads a document with another connection than the one that wrote it, while a replica lags.
func TestEveryConnectionReadsLatestWrites(t *testing.T) {
	db, server := databasetest.New(t)
	other := server.Open(t)
	must.Do(t, other.CheckSchema(t.Context()))
	server.InjectFault(t, faults.Rule{Operations: []string{"read", "query"}, ResourceTypes: []string{"docs"}, StaleRead: true})
	create(t, db, "new", "uid")
	if item, err := other.Clusters().Find(t.Context(), clusterKey(t, "new")); err != nil || item == nil {
		t.Errorf("the created document: %v, %v", item, err)
	}
	if item, err := other.ClusterByUID(t.Context(), "uid"); err != nil || item == nil {
		t.Errorf("the created document by its UID: %v, %v", item, err)
	}
	if server.FaultCount() == 0 {
		t.Error("the fault did not fire")
	}
}

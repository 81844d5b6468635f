package drills

import (
	"context"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// rewriteSession gives the open session of an engineer to somebody else, with the right of the backend to write its document.
func rewriteSession(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	session := r.openSession(t, ctx)
	endpoints := r.Endpoints()
	db, err := endpoints.OpenStore(ctx, "backend")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found, err := db.ChangeAccessSession(ctx, database.AccessSessionKey(session.Cluster.UID, session.ID), func(v *database.AccessSessionDocument) (bool, error) {
		v.Owner.ObjectID = "intruder"
		return true, nil
	})
	if err != nil || found == nil {
		t.Fatalf("the session is %+v: %v", found, err)
	}
	return func() { session.close(ctx) }
}

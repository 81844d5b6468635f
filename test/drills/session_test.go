package drills

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/gateway/pkg/policy"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// keepServiceAccount creates a service account that is kept, and ends the session.
func keepServiceAccount(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	session := r.openSession(t, ctx)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kept", Annotations: map[string]string{policy.KeepAnnotation: "a drill"}}}
	if _, err := session.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	session.close(ctx)
	return func() {}
}

// rewriteSession gives the open session of an engineer to somebody else, with the right of the backend to write its document.
func rewriteSession(t *testing.T, ctx context.Context, r *region) func() {
	t.Helper()
	session := r.openSession(t, ctx)
	endpoints := r.Endpoints()
	db := must.Get(endpoints.OpenStore(ctx, "backend"))(t)
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

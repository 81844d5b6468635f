package databasetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// openAs returns a connection of a service.
func (s *Server) openAs(t *testing.T, credential azcore.TokenCredential) *database.DB {
	t.Helper()
	copied := *s
	copied.Options.Credential = credential
	return copied.Open(t)
}

// denied reports whether err is Cosmos DB's refusal of an action.
func denied(err error) bool {
	var response *azcore.ResponseError
	return errors.As(err, &response) && response.StatusCode == http.StatusForbidden
}

// TestServicesHaveOnlyTheirRights lets each service use each container.
func TestServicesHaveOnlyTheirRights(t *testing.T) {
	server, issuer := NewTokenServer(t)
	const subscription = "11111111-1111-1111-1111-111111111111"
	key := database.ReservationKey(subscription, "kind", "name")
	cluster := database.Key{SubscriptionID: subscription, ResourceID: "/subscriptions/" + subscription + "/resourceGroups/g/providers/x/y/z"}
	operation := database.AdminOperationKey("00000000-0000-4000-8000-000000000001")
	uses := []struct {
		name string
		do   func(ctx context.Context, db *database.DB) error
	}{
		{"read the schema", func(ctx context.Context, db *database.DB) error { return db.CheckSchema(ctx) }},
		{"create a container", func(ctx context.Context, db *database.DB) error { return db.EnsureSchema(ctx) }},
		{"write a customer's resource", func(ctx context.Context, db *database.DB) error {
			return database.Retry(ctx, func(ctx context.Context) error {
				item, err := db.Reservations().Find(ctx, key)
				if err != nil {
					return err
				}
				batch := db.NewBatch(subscription)
				if item == nil {
					database.Create(batch, db.Reservations(), key, database.ReservationDocument{Name: "name"})
				} else {
					database.Replace(batch, item)
				}
				return batch.Commit(ctx)
			})
		}},
		{"list customers' resources", func(ctx context.Context, db *database.DB) error {
			_, _, err := db.Reservations().List(ctx, subscription, "", "", 10)
			return err
		}},
		{"query all customers", func(ctx context.Context, db *database.DB) error {
			return db.ActiveOperations(ctx, func(*database.Item[database.OperationDocument]) error { return nil })
		}},
		{"create an admin operation", func(ctx context.Context, db *database.DB) error {
			batch := db.NewBatch(database.AdminPartition)
			database.Create(batch, db.AdminOperations(), operation, database.AdminOperationDocument{State: database.AdminAccepted})
			err := batch.Commit(ctx)
			if _, conflict := database.AsWriteConflict(err); conflict {
				return nil
			}
			return err
		}},
		{"read an admin operation", func(ctx context.Context, db *database.DB) error {
			_, err := db.AdminOperations().Find(ctx, operation)
			return err
		}},
		{"list admin operations", func(ctx context.Context, db *database.DB) error {
			_, _, err := db.AdminRecords(ctx, database.AdminFilter{}, "", 10)
			return err
		}},
		{"write billing", func(ctx context.Context, db *database.DB) error {
			return db.BeginBilling(ctx, cluster, &database.ClusterDocument{UID: "uid"}, time.Now())
		}},
		{"read billing", func(ctx context.Context, db *database.DB) error {
			_, err := db.Billing(ctx, subscription, "uid")
			return err
		}},
	}
	allowed := map[string]map[string]bool{
		"frontend": {"read the schema": true, "write a customer's resource": true, "list customers' resources": true, "query all customers": true},
		"backend": {"read the schema": true, "write a customer's resource": true, "list customers' resources": true, "query all customers": true,
			"create an admin operation": true, "read an admin operation": true, "list admin operations": true, "write billing": true, "read billing": true},
		"admin": {"read the schema": true, "list customers' resources": true, "query all customers": true,
			"create an admin operation": true, "read an admin operation": true, "list admin operations": true, "read billing": true},
		"customer": {},
	}
	for service, rights := range allowed {
		t.Run(service, func(t *testing.T) {
			db := server.openAs(t, issuer.Principal(service))
			for _, use := range uses {
				err := use.do(t.Context(), db)
				if rights[use.name] && err != nil || !rights[use.name] && !denied(err) {
					t.Errorf("%s: allowed is %t: %v", use.name, rights[use.name], err)
				}
			}
		})
	}
}

// TestTokensAreRenewed uses tokens that end right after they were issued. Each request needs a new one, for which no call fails and none
// is made twice.
func TestTokensAreRenewed(t *testing.T) {
	server, issuer := NewTokenServer(t)
	principal := issuer.Principal("frontend")
	principal.Lifetime = time.Nanosecond
	db := server.openAs(t, principal)
	const requests = 20
	for n := range requests {
		batch := db.NewBatch("s")
		database.Create(batch, db.Reservations(), database.ReservationKey("s", "kind", fmt.Sprint(n)), database.ReservationDocument{Name: fmt.Sprint(n)})
		if err := batch.Commit(t.Context()); err != nil {
			t.Fatalf("commit %d: %v", n, err)
		}
	}
	if issued := principal.Issued(); issued < requests {
		t.Errorf("%d tokens were issued for %d requests", issued, requests)
	}
}

// failing is a credential that has no tokens for a while.
type failing struct {
	azcore.TokenCredential
	left atomic.Int64
}

func (f *failing) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if f.left.Add(-1) >= 0 {
		return azcore.AccessToken{}, errors.New("the token issuer is away")
	}
	return f.TokenCredential.GetToken(ctx, options)
}

// TestWritesWaitForTokens checks that a commit is retried while there is no token, and that its outcome is known: without a token
// nothing was sent.
func TestWritesWaitForTokens(t *testing.T) {
	server, issuer := NewTokenServer(t)
	create := func(db *database.DB, name string) error {
		batch := db.NewBatch("s")
		database.Create(batch, db.Reservations(), database.ReservationKey("s", "kind", name), database.ReservationDocument{Name: name})
		return batch.Commit(t.Context())
	}
	credential := &failing{TokenCredential: issuer.Principal("frontend")}
	credential.left.Store(3)
	if err := create(server.openAs(t, credential), "later"); err != nil {
		t.Errorf("a commit while the issuer is away for a moment: %v", err)
	}
	credential.left.Store(1 << 30)
	away := *server
	away.Options.RetryBudget = 20 * time.Millisecond
	err := create(away.openAs(t, credential), "never")
	if apierror.KindOf(err) != apierror.Unavailable || !strings.Contains(apierror.As(err).Unwrap().Error(), "the token issuer is away") {
		t.Errorf("a commit without a token: %v", err)
	}
	if item, err := server.openAs(t, issuer.Principal("backend")).Reservations().Find(t.Context(), database.ReservationKey("s", "kind", "never")); err != nil || item != nil {
		t.Errorf("after a commit without a token: %v, %v", item, err)
	}
}

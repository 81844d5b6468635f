// Package intenttest signs intents for tests, as admin does, and verifies them.
package intenttest

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// TrustDomain is the trust domain of the intents. It is that of the identities of package meshtest.
const TrustDomain = "test"

// Admin signs intents with a key of its own.
type Admin struct {
	Signer *intent.Signer
	// Verifier accepts the intents of Signer.
	Verifier *intent.Verifier
}

// New returns an Admin with a new key.
func New(t testing.TB) *Admin {
	t.Helper()
	admin, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// Open is New for an Admin that several tests share.
func Open() (*Admin, error) {
	issuer, audience := intent.RegionIssuer(TrustDomain)
	signer, err := intent.NewSigner(issuer, audience)
	if err != nil {
		return nil, err
	}
	return &Admin{Signer: signer, Verifier: signer.Verifier()}, nil
}

// Elevation returns an active elevation, for all actions on the region, of the actor of an operation that ends after a duration.
func Elevation(o *database.AdminOperationDocument, duration time.Duration) database.ElevationDocument {
	id, now := uuid.NewString(), time.Now().UTC()
	actor := o.Actor
	actor.ElevationID = id
	return database.ElevationDocument{
		ElevationID: id, SortKey: database.AdminSortKey(now, id), Actor: actor, State: database.ElevationActive, Class: string(adminv1.BreakGlassAccess),
		Target: database.AdminTarget{Kind: database.TargetRegion, ID: database.TargetRegion}, RequestTime: now, StartTime: now, ExpirationTime: now.Add(duration),
	}
}

// Sign adds the signed intent of an operation that was requested with an elevation.
func (a *Admin) Sign(t testing.TB, o *database.AdminOperationDocument, elevation *database.ElevationDocument) {
	t.Helper()
	o.Actor.ElevationID = elevation.ElevationID
	i, err := adminaction.NewIntent(o, []string{elevation.Actor.Role}, elevation, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if o.Intent, err = a.Signer.Sign(i); err != nil {
		t.Fatal(err)
	}
}

// Create adds to a batch an operation with its signed intent, and an elevation of one hour for it.
func (a *Admin) Create(t testing.TB, db *database.DB, batch *database.Batch, o database.AdminOperationDocument) {
	t.Helper()
	elevation := Elevation(&o, time.Hour)
	a.Sign(t, &o, &elevation)
	database.Create(batch, db.Elevations(), database.ElevationKey(elevation.ElevationID), elevation)
	database.Create(batch, db.AdminOperations(), database.AdminOperationKey(o.OperationID), o)
}

// Call returns the signed intent of an engineer for one call of Cluster Service, after changes.
func (a *Admin) Call(t testing.TB, method string, request proto.Message, changes ...func(*intent.Intent)) string {
	t.Helper()
	call, err := intent.NewCall(method, request)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	i := &intent.Intent{OperationID: uuid.NewString(), ObjectID: "alice", TenantID: "tenant", Name: "alice@example.com", Roles: []string{"break-glass"}, Reason: "it is stuck", Ticket: "INC-1",
		Elevation: intent.Elevation{ID: "elevation", Role: "break-glass", ExpiresAt: now.Add(time.Hour)}, Action: "test", Parameters: "none", Call: call, IssuedAt: now, ExpiresAt: now.Add(time.Hour)}
	for _, change := range changes {
		change(i)
	}
	signed, err := a.Signer.Sign(i)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

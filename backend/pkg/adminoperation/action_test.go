package adminoperation

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// TestActorIsTruncatedAtCharacters: admin accepts 1024 characters, Cluster Service 1024 bytes of valid UTF-8. A request
// with a part of a character cannot be encoded.
func TestActorIsTruncatedAtCharacters(t *testing.T) {
	for reason, o := range map[string]database.AdminOperationDocument{
		"short":                      {Actor: database.AdminActor{Name: "on call", Reason: "a stuck deletion", Ticket: "INC-1"}},
		"one byte":                   {Actor: database.AdminActor{Name: strings.Repeat("a", 300), Reason: strings.Repeat("b", 1200)}},
		"two bytes, at an odd place": {Actor: database.AdminActor{Name: "x" + strings.Repeat("é", 200), Reason: "x" + strings.Repeat("ж", 1023)}},
		"three bytes":                {Actor: database.AdminActor{Name: strings.Repeat("界", 100), Reason: strings.Repeat("界", 1024), Ticket: "INC-1"}},
		"four bytes, without a name": {Actor: database.AdminActor{ObjectID: strings.Repeat("🦀", 80), Reason: strings.Repeat("🦀", 1024)}},
	} {
		for of, text := range map[string]struct {
			cut, whole string
			most       int
		}{
			"name":   {nameOf(&o), o.Actor.Name + o.Actor.ObjectID, 256},
			"reason": {reasonOf(&o), strings.TrimPrefix(o.Actor.Ticket+": ", ": ") + o.Actor.Reason, 1024},
		} {
			switch {
			case !utf8.ValidString(text.cut) || len(text.cut) > text.most || !strings.HasPrefix(text.whole, text.cut):
				t.Errorf("%s: the %s is %q", reason, of, text.cut)
			case len(text.whole) <= text.most && text.cut != text.whole, len(text.whole)-len(text.cut) >= utf8.UTFMax && len(text.cut) <= text.most-utf8.UTFMax:
				t.Errorf("%s: the %s was truncated too much: %d of %d bytes are left", reason, of, len(text.cut), len(text.whole))
			}
		}
	}
}

// TestEveryActionIsExecuted checks that the table holds exactly the actions for which admin has routes.
func TestEveryActionIsExecuted(t *testing.T) {
	table := (&Executor{rpc: clusterservicev1.NewClusterServiceClient(nil)}).table()
	want, got := slices.Sorted(slices.Values(adminv1.Actions())), slices.Sorted(maps.Keys(table))
	if !slices.Equal(got, want) {
		t.Errorf("the table has the actions %v, want %v", got, want)
	}
}

// TestRevocationOfUnknownClassIsRejected checks that a class that is not supported never revokes the credentials of another one.
func TestRevocationOfUnknownClassIsRejected(t *testing.T) {
	executor := &Executor{} // without a client: a call of Cluster Service would panic
	for _, class := range []string{"", "SRE", "admin"} {
		_, err := executor.revokeCredentials(t.Context(), &database.AdminOperationDocument{}, adminv1.RevokeRequest{Class: class})
		if e := apierror.As(err); e.Kind != apierror.Invalid || e.Target != "class" {
			t.Errorf("class %q: got %v, want kind Invalid with target class", class, err)
		}
	}
}

package adminaction

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
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
			"name":   {ActorName(&o), o.Actor.Name + o.Actor.ObjectID, 256},
			"reason": {Justification(&o), strings.TrimPrefix(o.Actor.Ticket+": ", ": ") + o.Actor.Reason, 1024},
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

// operation returns an operation with parameters.
func operation(action string, parameters string) *database.AdminOperationDocument {
	return &database.AdminOperationDocument{
		OperationID: "op", Action: action, Parameters: json.RawMessage(parameters), Target: database.AdminTarget{Kind: "cluster", ID: "uid", ResourceID: "/id", ClusterUID: "uid"},
		Actor: database.AdminActor{Name: "alice@example.com", ObjectID: "alice", TenantID: "tenant", Role: "operator", ElevationID: "elevation", Reason: "it is stuck", Ticket: "INC-1"},
	}
}

// TestRequestOfEveryAction checks the requests that execute the actions. Each has the operation's ID as UID, or names another
// object by its UID or name.
func TestRequestOfEveryAction(t *testing.T) {
	without := map[string]bool{adminv1.ActionNodePoolScale: true, adminv1.ActionARMOperationRetry: true, adminv1.ActionARMOperationCancel: true,
		adminv1.ActionDriftReconcile: true, adminv1.ActionDriftDelete: true, adminv1.ActionShardSessionRequest: true, adminv1.ActionServiceClusterSessionRequest: true, adminv1.ActionQuotaSet: true, adminv1.ActionEgressLinkSet: true, adminv1.ActionEgressLinkDelete: true}
	for _, declared := range adminv1.Actions() {
		action := declared.Name
		parameters := `{}`
		switch action {
		case adminv1.ActionCredentialRequest, adminv1.ActionAccessSessionRequest:
			parameters = `{"level":"reader","certificateSigningRequest":"csr","duration":"1h"}`
		case adminv1.ActionCredentialRevoke:
			parameters = `{"class":"sre"}`
		}
		r, err := RequestOf(operation(action, parameters))
		if err != nil {
			t.Fatalf("%s: %v", action, err)
		}
		if (r == nil) != without[action] {
			t.Errorf("%s has the request %v", action, r)
		}
		if r == nil {
			continue
		}
		uid := r.Message.ProtoReflect().Descriptor().Fields().ByName("uid")
		if has := uid != nil && r.Message.ProtoReflect().Get(uid).String() == "op"; has != r.OwnUID {
			t.Errorf("%s: the request %v has its own UID: %v, want %v", action, r.Message, has, r.OwnUID)
		}
		if text := r.Message.ProtoReflect(); !strings.Contains(text.Interface().(interface{ String() string }).String(), "alice@example.com") {
			t.Errorf("%s: the request does not name the engineer: %v", action, r.Message)
		}
	}
}

// TestEndOfSessionsHasNoRequest checks that the end of an elevation sends nothing to Cluster Service for a management cluster, whose sessions the backend ends.
func TestEndOfSessionsHasNoRequest(t *testing.T) {
	o := operation(adminv1.ActionElevationEnd, `{}`)
	o.Target = database.AdminTarget{Kind: adminv1.TargetShard, ID: "mgmt-1"}
	if r, err := RequestOf(o); err != nil || r != nil {
		t.Errorf("the request is %v, %v", r, err)
	}
}

// TestRequestKeepsUIDOfPath checks that an action on an object with a UID does not get the operation's ID as UID.
func TestRequestKeepsUIDOfPath(t *testing.T) {
	r := must.Get(RequestOf(operation(adminv1.ActionUpgradePause, `{"uid":"upgrade"}`)))(t)
	want := &clusterservicev1.PauseUpgradeRequest{Uid: "upgrade", Actor: &clusterservicev1.Actor{Name: "alice@example.com", Reason: "it is stuck", Ticket: "INC-1"}}
	if !proto.Equal(r.Message, want) || r.OwnUID {
		t.Errorf("got %v, own UID: %v", r.Message, r.OwnUID)
	}
}

// TestRevocationOfUnknownClassIsRejected checks that a class that is not supported never revokes the credentials of another one.
func TestRevocationOfUnknownClassIsRejected(t *testing.T) {
	for _, class := range []string{"", "SRE", "admin"} {
		_, err := RequestOf(operation(adminv1.ActionCredentialRevoke, `{"class":"`+class+`"}`))
		if e := apierror.As(err); e == nil || e.Kind != apierror.Invalid || e.Target != "class" {
			t.Errorf("class %q: got %v, want kind Invalid with target class", class, err)
		}
	}
}

// TestIntentIsBoundToItsOperation checks that the intent of an operation is for no other operation, action, target, parameters or
// engineer.
func TestIntentIsBoundToItsOperation(t *testing.T) {
	now := time.Now()
	o := operation(adminv1.ActionClusterPause, `{"clusterUid":"uid","until":"2030-01-01T00:00:00Z"}`)
	elevation := &database.ElevationDocument{ElevationID: "elevation", Actor: o.Actor, ExpirationTime: now.Add(30 * time.Minute)}
	i := must.Get(NewIntent(o, []string{"operator"}, elevation, now))(t)
	if err := Check(i, o); err != nil {
		t.Errorf("its own operation: %v", err)
	}
	if got := ActorOf(i); got != o.Actor {
		t.Errorf("the actor is %+v, want %+v", got, o.Actor)
	}
	for what, change := range map[string]func(*database.AdminOperationDocument){
		"operation": func(o *database.AdminOperationDocument) { o.OperationID = "other" },
		"action":    func(o *database.AdminOperationDocument) { o.Action = adminv1.ActionClusterResume },
		"kind":      func(o *database.AdminOperationDocument) { o.Target.Kind = "nodePool" },
		"target":    func(o *database.AdminOperationDocument) { o.Target.ID = "other" },
		"resource":  func(o *database.AdminOperationDocument) { o.Target.ResourceID = "/other" },
		"cluster":   func(o *database.AdminOperationDocument) { o.Target.ClusterUID = "other" },
		"parameters": func(o *database.AdminOperationDocument) {
			o.Parameters = json.RawMessage(`{"clusterUid":"uid","until":"2031-01-01T00:00:00Z"}`)
		},
	} {
		changed := *o
		change(&changed)
		if e := apierror.As(Check(i, &changed)); e == nil || e.Reason != intent.ReasonInvalid {
			t.Errorf("another %s: %v", what, e)
		}
	}
	for name, change := range map[string]func(*database.AdminOperationDocument){
		"the actor": func(o *database.AdminOperationDocument) { o.Actor.Name = "mallory@example.com" },
		"the time":  func(o *database.AdminOperationDocument) { o.Parameters = json.RawMessage(`{"clusterUid":"uid"}`) },
	} {
		changed := *o
		change(&changed)
		r := must.Get(RequestOf(&changed))(t)
		if i.AllowsCall(r.Method, r.Message) {
			t.Errorf("a request with another value of %s is allowed", name)
		}
	}
}

// TestIntentEndsWithElevation checks until when an accepted operation may start.
func TestIntentEndsWithElevation(t *testing.T) {
	now := time.Now()
	for reason, tc := range map[string]struct{ elevation, want time.Duration }{
		"the elevation ends first":            {20 * time.Minute, 20 * time.Minute},
		"a long elevation":                    {8 * time.Hour, intent.MaxValidity},
		"no second of the elevation is left":  {500 * time.Millisecond, 0},
		"the elevation ended in the meantime": {-time.Minute, 0},
	} {
		o := operation(adminv1.ActionClusterRetry, `{"clusterUid":"uid"}`)
		elevation := &database.ElevationDocument{ElevationID: "elevation", Actor: o.Actor, ExpirationTime: now.Truncate(time.Second).Add(tc.elevation)}
		i, err := NewIntent(o, nil, elevation, now)
		switch {
		case tc.want == 0 && apierror.KindOf(err) != apierror.PermissionDenied:
			t.Errorf("%s: %v and %v", reason, i, err)
		case tc.want > 0 && err != nil:
			t.Errorf("%s: %v", reason, err)
		case tc.want > 0 && !i.ExpiresAt.Equal(now.Truncate(time.Second).Add(tc.want)):
			t.Errorf("%s: it expires after %s, want %s", reason, i.ExpiresAt.Sub(now), tc.want)
		}
	}
}

// TestElevationIsCheckedAtExecution checks the elevation of an accepted operation.
func TestElevationIsCheckedAtExecution(t *testing.T) {
	now := time.Now()
	o := operation(adminv1.ActionClusterRetry, `{"clusterUid":"uid"}`)
	elevation := database.ElevationDocument{ElevationID: "elevation", Actor: o.Actor, State: database.ElevationActive, Class: "break-glass",
		Target: database.AdminTarget{Kind: database.TargetRegion}, ExpirationTime: now.Add(20 * time.Minute)}
	i := must.Get(NewIntent(o, nil, &elevation, now))(t)
	if err := CheckElevation(i, &elevation, now); err != nil {
		t.Errorf("an active elevation: %v", err)
	}
	for reason, tc := range map[string]struct {
		change func(e *database.ElevationDocument)
		want   string
	}{
		"of another engineer": {func(e *database.ElevationDocument) { e.Actor.ObjectID = "mallory" }, intent.ReasonInvalid},
		"of another role":     {func(e *database.ElevationDocument) { e.Actor.Role = "break-glass" }, intent.ReasonInvalid},
		"another one":         {func(e *database.ElevationDocument) { e.ElevationID = "other" }, intent.ReasonInvalid},
		"ended":               {func(e *database.ElevationDocument) { e.EndTime = &now }, intent.ReasonExpired},
		"not approved":        {func(e *database.ElevationDocument) { e.State = database.ElevationRequested }, intent.ReasonExpired},
		"of a lower class":    {func(e *database.ElevationDocument) { e.Class = "" }, intent.ReasonInvalid},
		"of another cluster": {func(e *database.ElevationDocument) {
			e.Target = database.AdminTarget{Kind: "cluster", ClusterUID: "another"}
		}, intent.ReasonInvalid},
		"expired": {func(e *database.ElevationDocument) { e.ExpirationTime = now }, intent.ReasonExpired},
	} {
		changed := elevation
		tc.change(&changed)
		if e := apierror.As(CheckElevation(i, &changed, now)); e == nil || e.Reason != tc.want {
			t.Errorf("%s: %v, want %s", reason, e, tc.want)
		}
	}
	if e := apierror.As(CheckElevation(i, nil, now)); e == nil || e.Reason != intent.ReasonInvalid {
		t.Errorf("a missing one: %v", e)
	}
}

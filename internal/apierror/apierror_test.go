package apierror

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestEveryKindHasCodes(t *testing.T) {
	for kind := Internal; kind <= Unavailable; kind++ {
		if kind.ARMCode() == "" || kind.HTTPStatus() < 400 || kind.GRPCCode() == codes.OK {
			t.Errorf("kind %d has no row in the table", kind)
		}
	}
	if len(table) != int(Unavailable)+1 {
		t.Errorf("the table has %d rows for %d kinds", len(table), Unavailable+1)
	}
}

func TestErrorsRoundTripOverGRPC(t *testing.T) {
	cases := map[string]struct {
		reason string
		sent   error
		want   *Error
	}{
		"Violations": {
			reason: "the caller receives every invalid field",
			sent:   InvalidFields([]Violation{{"spec.name", "Required value"}, {"spec.size", "Invalid value: 7"}}),
			want: &Error{Kind: Invalid, Message: "Required value", Target: "spec.name",
				Violations: []Violation{{"spec.name", "Required value"}, {"spec.size", "Invalid value: 7"}}},
		},
		"Reason": {
			reason: "clients compare reasons, not texts",
			sent:   New(FailedPrecondition, "The uid was deleted.").WithReason("UID_DELETED"),
			want:   &Error{Kind: FailedPrecondition, Message: "The uid was deleted.", Reason: "UID_DELETED"},
		},
		"RetryAfter": {
			reason: "the caller receives the pause before a retry",
			sent:   New(Unavailable, "PostgreSQL is not reachable.").WithRetryAfter(2 * time.Second),
			want:   &Error{Kind: Unavailable, Message: "PostgreSQL is not reachable.", RetryAfter: 2 * time.Second},
		},
		"Internal": {
			reason: "the text of an internal error is not sent",
			sent:   fmt.Errorf("dialing: %w", errors.New("password=hunter2")),
			want:   &Error{Kind: Internal, Message: "Internal server error."},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := As(FromGRPC(ToGRPC(c.sent, "test.hcpmesh")))
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Error{}, "Cause")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestFromGRPCMapsCodes(t *testing.T) {
	cases := map[codes.Code]Kind{
		codes.DeadlineExceeded: Unavailable,
		codes.AlreadyExists:    Conflict,
		codes.Unknown:          Internal,
		codes.DataLoss:         Internal,
	}
	for code, want := range cases {
		if got := KindOf(FromGRPC(status.Error(code, "x"))); got != want {
			t.Errorf("code %s has kind %d, want %d", code, got, want)
		}
	}
	if ToGRPC(nil, "") != nil || FromGRPC(nil) != nil || As(nil) != nil || InvalidFields(nil) != nil {
		t.Error("a conversion of nil is not nil")
	}
}

func TestErrorText(t *testing.T) {
	cases := map[string]error{
		"properties.dns: Required value (and 1 more)": InvalidFields([]Violation{{"properties.dns", "Required value"}, {"name", "x"}}),
		"Gone.: cause":    New(NotFound, "Gone.").WithCause(errors.New("cause")),
		"f: Bad 3.":       New(Invalid, "Bad %d.", 3).WithTarget("f"),
		"Only a message.": New(Conflict, "Only a message."),
	}
	for want, err := range cases {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err.Error(), want)
		}
	}
}

// TestInvalidFieldsIsLimited: an error lists the first violations and states that there are more. Keys in paths are shortened.
func TestInvalidFieldsIsLimited(t *testing.T) {
	all := make([]Violation, 100_000)
	for i := range all {
		all[i] = Violation{Field: fmt.Sprintf("tags[%d]", i), Message: "Invalid value: 1: must be a string"}
	}
	for count, want := range map[int]int{1: 1, MaxViolations: MaxViolations, MaxViolations + 1: MaxViolations + 1, len(all): MaxViolations + 1} {
		got := As(InvalidFields(all[:count])).Violations
		if len(got) != want || got[want-1].Field == "" != (count > MaxViolations) {
			t.Errorf("%d violations give %d, the last is %+v", count, len(got), got[len(got)-1])
		}
	}
	if all[MaxViolations].Field == "" {
		t.Error("the caller's violations were changed")
	}
	long := []Violation{{Field: "tags[" + strings.Repeat("é", 1<<20) + "]", Message: "Invalid value"}}
	if e := As(InvalidFields(long)); len(e.Target) > maxField+len("…") || len(e.Violations[0].Field) > maxField+len("…") || !utf8.ValidString(e.Target) || len(long[0].Field) < 1<<20 {
		t.Errorf("a path of 2 MiB became one of %d bytes", len(e.Target))
	}
}

package token_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/arm-frontdoor/pkg/token"
)

// allowed is the number of wrong secrets that are compared at once.
const allowed = 10

// requireTooMany checks that an attempt is refused without a comparison until a time has passed.
func requireTooMany(t *testing.T, reason string, err error, after time.Duration) {
	t.Helper()
	if tooMany := new(token.TooManyAttemptsError); !errors.As(err, &tooMany) || (tooMany.RetryAfter-after).Abs() > time.Microsecond {
		t.Errorf("%s: %v, want a retry after %s", reason, err, after)
	}
}

// TestWrongSecretsAreLimited guesses the secret of a client, in all spellings of its ID and with several requests at once. After 10 wrong ones the right one is
// refused too, while other clients and people get tokens. Unknown clients are not counted. The clock is that of the bubble.
func TestWrongSecretsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, _ := signInIssuer(t)
		issuer.AddClients(token.Client{TenantID: "t", ClientID: "services", ClientSecret: "right", ObjectID: "s"}, token.Client{TenantID: "t", ClientID: "services", ClientSecret: "second", ObjectID: "s2"})
		const scope = "https://management.azure.com/.default"
		issue := func(client, secret string) error {
			_, err := issuer.Issue("t", client, secret, scope)
			return err
		}
		for n := range 20 * allowed {
			if err := issue("services", []string{"right", "second"}[n%2]); err != nil {
				t.Fatalf("right secret %d: %v", n, err)
			}
			if err := issue(fmt.Sprint("unknown", n), "x"); !errors.Is(err, token.ErrInvalidClient) {
				t.Fatalf("unknown client %d: %v", n, err)
			}
		}
		results := make(chan error)
		spellings := []string{"services", "SERVICES", "\u017fervice\u017f"} // the last one has the long s, which is an s without its case
		for n := range 12 * allowed {
			go func() { results <- issue(spellings[n%len(spellings)], fmt.Sprint("guess", n)) }()
		}
		compared := 0
		for range 12 * allowed {
			if err := <-results; errors.Is(err, token.ErrInvalidClient) {
				compared++
			} else {
				requireTooMany(t, "a guess", err, 6*time.Second)
			}
		}
		if compared != allowed {
			t.Errorf("%d guesses were compared, want %d", compared, allowed)
		}
		requireTooMany(t, "the right secret", issue("services", "right"), 6*time.Second)
		if err := issue("customer", "b"); err != nil {
			t.Errorf("another client: %v", err)
		}
		time.Sleep(6 * time.Second)
		if err := issue("services", "right"); err != nil {
			t.Errorf("the right secret after 6 seconds: %v", err)
		}
		if err := issue("services", "wrong"); !errors.Is(err, token.ErrInvalidClient) {
			t.Errorf("a wrong secret after 6 seconds: %v", err)
		}
		requireTooMany(t, "a second one", issue("services", "wrong"), 6*time.Second)
	})
}

// TestWrongPasswordsAreLimited guesses the password of a person in both forms. They share a limit, which is not that of another person. The clock is that of the bubble.
func TestWrongPasswordsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		issuer, _ := publicIssuer(t)
		issuer.AddClients(token.Client{TenantID: "t", ClientID: "hcpctl", ClientSecret: "c", ObjectID: "carol", Name: "carol@example.com", Audiences: []string{adminAudience}})
		asked := must.Get(issuer.SignIn("t", signInQuery(nil)))(t)
		device := must.Get(issuer.AuthorizeDevice("t", deviceForm()))(t)
		attempts := []func(person, password string) error{
			func(person, password string) error {
				_, err := issuer.Code(asked, person, password)
				return err
			},
			func(person, password string) error {
				return issuer.DecideDevice("t", device.UserCode, person, password)
			},
		}
		for n := range allowed {
			if err := attempts[n%2]("alice", fmt.Sprint("guess", n)); !errors.Is(err, token.ErrWrongPassword) {
				t.Errorf("guess %d: %v", n, err)
			}
		}
		for _, attempt := range attempts {
			requireTooMany(t, "the right password", attempt("alice", password), 6*time.Second)
			if err := attempt("carol", "c"); err != nil {
				t.Errorf("another person: %v", err)
			}
		}
		time.Sleep(6 * time.Second)
		if err := attempts[0]("alice", password); err != nil {
			t.Errorf("the right password after 6 seconds: %v", err)
		}
	})
}

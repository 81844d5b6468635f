package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/postgres"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// tokenEndpoint is Entra ID's token endpoint without a network, so that it works on virtual time. It is safe for concurrent use.
type tokenEndpoint struct {
	mu sync.Mutex
	// issued counts the tokens. The newest is token-N.
	issued int
	// refuse responds in place of the endpoint, unless it is nil.
	refuse func(*http.Request) (*http.Response, error)
	forms  []string
}

// Do implements policy.Transporter.
func (e *tokenEndpoint) Do(r *http.Request) (*http.Response, error) {
	base := "https://login.example.com/ab3adb16-64d8-5cda-a4d8-4b9044b1013e"
	switch r.URL.Scheme + "://" + r.URL.Host + r.URL.Path {
	case base + "/v2.0/.well-known/openid-configuration":
		return respond(r, http.StatusOK, fmt.Sprintf(`{"issuer": %q, "authorization_endpoint": %q, "token_endpoint": %q}`, base+"/v2.0", base+"/oauth2/v2.0/authorize", base+"/oauth2/v2.0/token")), nil
	case base + "/oauth2/v2.0/token":
		e.mu.Lock()
		refuse := e.refuse
		e.mu.Unlock()
		if refuse != nil {
			return refuse(r)
		}
		form, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.forms = append(e.forms, string(form))
		e.issued++
		return respond(r, http.StatusOK, fmt.Sprintf(`{"token_type": "Bearer", "access_token": "token-%d", "expires_in": 3600}`, e.issued)), nil
	}
	return nil, fmt.Errorf("unexpected request to %s", r.URL)
}

// transport is a function as policy.Transporter.
type transport func(*http.Request) (*http.Response, error)

// Do implements policy.Transporter.
func (f transport) Do(r *http.Request) (*http.Response, error) { return f(r) }

func (e *tokenEndpoint) set(refuse func(*http.Request) (*http.Response, error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = refuse
}

func respond(r *http.Request, status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}
}

// TestTokenIsCachedUntilItEnds requests passwords over the life of two tokens, with the real credential. It runs on virtual time.
func TestTokenIsCachedUntilItEnds(t *testing.T) {
	workloadIdentity(t)
	synctest.Test(t, func(t *testing.T) {
		endpoint := &tokenEndpoint{}
		password := must.Get(postgres.EntraPassword(postgres.PublicAudience, "fleet", endpoint))(t)
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{0, "token-1"}, {30 * time.Minute, "token-1"}, {24 * time.Minute, "token-1"}, {2 * time.Minute, "token-2"}, {time.Minute, "token-2"}, {24 * time.Hour, "token-3"}} {
			time.Sleep(step.after)
			if got, err := password(t.Context()); err != nil || got != step.want {
				t.Errorf("%v later: %q, %v, want %q", step.after, got, err, step.want)
			}
		}
		for _, form := range endpoint.forms {
			for _, want := range []string{"scope=https%3A%2F%2Fossrdbms-aad.database.windows.net%2F.default", "client_id=6c5efc0d-69ff-fbe8-501a-e15520f7789a", "client_assertion=assertion", "grant_type=client_credentials"} {
				if !strings.Contains(form, want) {
					t.Errorf("the request %s has no %s", form, want)
				}
			}
		}
	})
}

// TestTokenIsUsedWhileTheEndpointIsAway checks that an endpoint that is away does no harm until the token ends, and that tokens are
// requested again when it is back.
func TestTokenIsUsedWhileTheEndpointIsAway(t *testing.T) {
	workloadIdentity(t)
	synctest.Test(t, func(t *testing.T) {
		endpoint := &tokenEndpoint{}
		password, err := postgres.EntraPassword(postgres.PublicAudience, "fleet", endpoint)
		if err != nil {
			t.Fatal(err)
		}
		must.Get(password(t.Context()))(t)
		endpoint.set(func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") })
		time.Sleep(50 * time.Minute)
		if got, err := password(t.Context()); got != "token-1" {
			t.Errorf("while the token is valid: %q, %v", got, err)
		}
		time.Sleep(10 * time.Minute)
		_, err = password(t.Context())
		if _, ok := errors.AsType[*postgres.TokenError](err); !ok || !postgres.IsUnavailable(err) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("after its end: %v", err)
		}
		endpoint.set(nil)
		if got, err := password(t.Context()); got != "token-2" {
			t.Errorf("when the endpoint is back: %q, %v", got, err)
		}
	})
}

// TestTokenErrors checks that an error names the identity and the endpoint, and has nothing of a response that could be a token.
func TestTokenErrors(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.c2VjcmV0.c2lnbmF0dXJl"
	answer := func(status int, body string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) { return respond(r, status, body), nil }
	}
	for reason, c := range map[string]struct {
		refuse func(*http.Request) (*http.Response, error)
		want   string
	}{
		"an unknown identity": {answer(http.StatusUnauthorized, `{"error": "invalid_client", "error_description": "AADSTS700016: `+secret+`", "error_codes": [700016]}`), "HTTP status 401, invalid_client, AADSTS700016"},
		"a foreign code":      {answer(http.StatusBadRequest, `{"error": "`+secret+`"}`), "HTTP status 400"},
		"no JSON":             {answer(http.StatusBadGateway, "<html>"+secret), "HTTP status 502"},
		"too many requests":   {answer(http.StatusTooManyRequests, `{}`), "HTTP status 429"},
		"a malformed token":   {answer(http.StatusOK, `{"access_token": "`+secret), "HTTP status 200, and the response is no token"},
		"no token":            {answer(http.StatusOK, `{"other": "`+secret+`"}`), "HTTP status 200, and the response is no token"},
		"a wrong type":        {answer(http.StatusOK, `{"access_token": ["`+secret+`"]}`), "HTTP status 200, and the response is no token"},
		"no connection":       {func(*http.Request) (*http.Response, error) { return nil, errors.New("dial tcp: connection refused") }, "connection refused"},
	} {
		t.Run(reason, func(t *testing.T) {
			workloadIdentity(t)
			password := must.Get(postgres.EntraPassword(postgres.PublicAudience, "fleet", &tokenEndpoint{refuse: c.refuse}))(t)
			got, err := password(t.Context())
			const prefix = "getting an Entra token of the identity 6c5efc0d-69ff-fbe8-501a-e15520f7789a for the PostgreSQL role fleet from " +
				"https://login.example.com/ab3adb16-64d8-5cda-a4d8-4b9044b1013e/oauth2/v2.0/token: "
			if got != "" || err == nil || !strings.HasPrefix(err.Error(), prefix) || !strings.Contains(err.Error(), c.want) || !postgres.IsUnavailable(err) {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
			if strings.Contains(err.Error(), secret) || strings.Contains(err.Error(), "assertion") || strings.Contains(err.Error(), "\n") {
				t.Errorf("the error contains a response: %v", err)
			}
		})
	}
	t.Run("no endpoints", func(t *testing.T) {
		workloadIdentity(t)
		t.Setenv("AZURE_AUTHORITY_HOST", "https://other.example.com/")
		other := transport(func(r *http.Request) (*http.Response, error) { return respond(r, http.StatusNotFound, secret), nil })
		password, err := postgres.EntraPassword(postgres.PublicAudience, "fleet", other)
		if err != nil {
			t.Fatal(err)
		}
		_, err = password(t.Context())
		if err == nil || !strings.HasSuffix(err.Error(), "/oauth2/v2.0/token: HTTP status 404 from https://other.example.com/ab3adb16-64d8-5cda-a4d8-4b9044b1013e/v2.0/.well-known/openid-configuration") {
			t.Error(err)
		}
	})
	t.Run("no file with the token of the workload", func(t *testing.T) {
		file := workloadIdentity(t)
		password := must.Get(postgres.EntraPassword(postgres.PublicAudience, "fleet", &tokenEndpoint{}))(t)
		must.Do(t, os.Remove(file))
		if _, err := password(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
			t.Error(err)
		}
	})
}

// TestHungTokenEndpoint checks the bounds of a request that gets no response. It runs on virtual time.
func TestHungTokenEndpoint(t *testing.T) {
	workloadIdentity(t)
	synctest.Test(t, func(t *testing.T) {
		endpoint := &tokenEndpoint{refuse: func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		password := must.Get(postgres.EntraPassword(postgres.PublicAudience, "fleet", endpoint))(t)
		start := time.Now()
		if _, err := password(t.Context()); err == nil || !strings.HasSuffix(err.Error(), ": no response within 10s") || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if waited := time.Since(start); waited != 10*time.Second {
			t.Errorf("waited %v", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := password(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if waited := time.Since(start); waited != 11*time.Second {
			t.Errorf("waited %v in the time of the caller", waited)
		}
	})
}

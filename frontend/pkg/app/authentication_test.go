package app_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/authn"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/audittest"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestServeToken: the service is not ready before it has read the issuer's keys, and /readyz reports the reason. Afterwards
// it accepts requests with ARM's token only. The requests without one, and the connection of another workload, are in the audit.
func TestServeToken(t *testing.T) {
	key := must.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	var up atomic.Bool
	issuer := httptest.NewUnstartedServer(nil)
	issuer.StartTLS()
	defer issuer.Close()
	issuer.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !up.Load():
			w.WriteHeader(http.StatusBadGateway)
		case r.URL.Path == "/.well-known/openid-configuration":
			_ = json.NewEncoder(w).Encode(map[string]string{"issuer": issuer.URL, "jwks_uri": issuer.URL + "/keys"})
		default:
			_ = json.NewEncoder(w).Encode(map[string]any{"keys": []any{map[string]string{"kty": "RSA", "kid": "1",
				"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()), "e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())}}})
		}
	})
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	must.Do(t, os.WriteFile(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: issuer.Certificate().Raw}), 0o600))
	r := serve(t, func(options *app.Options) {
		options.Authentication = authn.Options{Mode: "token", Issuer: issuer.URL, Audience: "provider", ClientIDs: "arm,other", CAFile: authorities}
	})
	arm := r.client(mesh.ARMFrontDoor)

	eventually.Soon(t, "only authentication is not ready, because of the issuer's status 502", func() error {
		status, body := do(t, arm, http.MethodGet, r.url+"/readyz", "")
		var readiness struct{ NotReady map[string]string }
		if err := json.Unmarshal([]byte(body), &readiness); err != nil {
			return err
		}
		if status != http.StatusServiceUnavailable || len(readiness.NotReady) != 1 || !strings.Contains(readiness.NotReady["authentication"], "502") {
			return fmt.Errorf("%d %s", status, body)
		}
		return nil
	})

	up.Store(true)
	r.waitReady(t, arm)

	now := time.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.MapClaims{"iss": issuer.URL, "aud": "provider", "appid": "arm", "oid": "object", "exp": now.Add(time.Hour).Unix()})
	token.Header["kid"] = "1"
	text := must.Get(token.SignedString(key))(t)
	for authorization, want := range map[string]int{"": http.StatusUnauthorized, "Bearer " + text[:len(text)-4]: http.StatusUnauthorized, "Bearer " + text: http.StatusOK} {
		request := must.Get(http.NewRequestWithContext(context.Background(), http.MethodGet, r.url+"/providers/Microsoft.RedHatOpenShift/operations?api-version=2026-09-01-preview", nil))(t)
		request.Header.Set("Authorization", authorization)
		response := must.Get(arm.Do(request))(t)
		_ = response.Body.Close()
		if response.StatusCode != want || (want == http.StatusUnauthorized) != (response.Header.Get("WWW-Authenticate") != "") {
			t.Errorf("status %s, WWW-Authenticate %q", response.Status, response.Header.Get("WWW-Authenticate"))
		}
	}
	arm.CloseIdleConnections()
	if response, err := r.client(mesh.Backend).Get(r.url + "/healthz"); err == nil {
		_ = response.Body.Close()
		t.Error("the backend received a response")
	}
	r.stop()
	if err := <-r.frontend; err != nil {
		t.Errorf("stopping: %v", err)
	}
	refused := audit.Record{Peer: string(mesh.ARMFrontDoor), Action: "Microsoft.RedHatOpenShift/operations/read",
		Object: audit.Object{ID: "/providers/Microsoft.RedHatOpenShift/operations"}, Outcome: audit.Refused, Code: "Unauthorized"}
	repeated := refused
	repeated.Count = 1
	want := []audit.Record{refused, {Peer: string(mesh.Backend), Action: mesh.Connect, Outcome: audit.Refused, Code: "Forbidden"}, repeated}
	if diff := cmp.Diff(want, audittest.Stored(t, r.audit, string(mesh.Frontend)), cmpopts.IgnoreFields(audit.Record{}, "Request", "Trace")); diff != "" {
		t.Errorf("audit records (-want +got):\n%s", diff)
	}
}

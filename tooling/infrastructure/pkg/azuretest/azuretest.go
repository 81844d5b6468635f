// Package azuretest runs OpenTofu against the emulator of Azure in tests.
package azuretest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
)

// Programs returns the folder with tofu and the mirror, in a nightly run; another run skips the test. OpenTofu and its provider for Azure compile for about
// seven minutes of CPU time once.
func Programs(t *testing.T) string {
	t.Helper()
	nightly.Only(t)
	return filepath.Dir(nightly.Program(t, "opentofu", "opentofu/providers"))
}

// Azure is an emulator without resources, and the environment with which tofu calls it.
type Azure struct {
	*emulatortest.Azure
	Env []string
}

// Start starts an emulator, and an endpoint that issues tokens as App Service does for managed identities.
func Start(t *testing.T, delay time.Duration) *Azure {
	t.Helper()
	started, err := emulatortest.Start(emulator.Options{DataDir: t.TempDir(), OperationDelay: delay})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Error(err)
		}
	})
	identity := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := strings.TrimRight(r.URL.Query().Get("resource"), "/")
		token, err := started.Tokens.GetToken(r.Context(), policy.TokenRequestOptions{Scopes: []string{resource + "/.default"}})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"access_token": token.Token, "expires_on": fmt.Sprint(token.ExpiresOn.Unix()), "resource": resource, "token_type": "Bearer"})
	}))
	t.Cleanup(identity.Close)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: started.Certificate().Raw})
	if err := os.WriteFile(authority, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return &Azure{started, []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "SSL_CERT_FILE=" + authority, "ARM_RESOURCE_MANAGER_ENDPOINT=" + started.URL,
		"ARM_USE_CLI=false", "IDENTITY_ENDPOINT=" + identity.URL, "IDENTITY_HEADER=test"}}
}

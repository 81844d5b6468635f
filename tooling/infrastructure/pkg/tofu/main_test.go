package tofu_test

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulator"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/emulatortest"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/tofu"
	"github.com/hcpmesh/hcpmesh/tooling/infrastructure/pkg/variables"
)

const (
	templates     = "../../../../dev-infrastructure/azure"
	configuration = "../../../../config"
	region        = "public/prod/westus3"
)

// programs returns the folder with tofu and the mirror, which `make infra-test` builds.
func programs(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("HCPMESH_OPENTOFU")
	if dir == "" {
		t.Skip("HCPMESH_OPENTOFU is not set: make infra-test builds OpenTofu and runs this test")
	}
	return dir
}

func open(t *testing.T) *deployment.Configuration {
	t.Helper()
	c, err := deployment.Open(configuration)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func parse(t *testing.T, name string) layer.Target {
	t.Helper()
	target, err := layer.ParseTarget(name)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// azure is an emulator without resources, and the environment with which tofu calls it.
type azure struct {
	*emulatortest.Azure
	env []string
}

// startAzure starts an emulator, and an endpoint that issues tokens as App Service does for managed identities.
func startAzure(t *testing.T, delay time.Duration) *azure {
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
	return &azure{started, []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "SSL_CERT_FILE=" + authority, "ARM_RESOURCE_MANAGER_ENDPOINT=" + started.URL,
		"ARM_USE_CLI=false", "IDENTITY_ENDPOINT=" + identity.URL, "IDENTITY_HEADER=test"}}
}

// deploy is one scope of a target with a state.
type deploy struct {
	scope   variables.Scope
	target  string
	state   string
	env     []string
	outputs map[variables.Scope]json.RawMessage
	// templates is the folder of the templates; empty for those of the checkout.
	templates string
	// log is what tofu printed in the last workspace.
	log bytes.Buffer
	// output receives what tofu prints instead of log, if it is not nil.
	output io.Writer
	// change changes the configuration before it is used.
	change func(config map[string]any)
}

// workspace opens the scope.
func (d *deploy) workspace(t *testing.T) *tofu.Workspace {
	t.Helper()
	dir := programs(t)
	values, err := variables.New(open(t), d.scope, parse(t, d.target))
	if err != nil {
		t.Fatal(err)
	}
	if err := values.SetOuter(d.scope, d.outputs); err != nil {
		t.Fatal(err)
	}
	if d.change != nil {
		d.change(values.Config.(map[string]any))
	}
	if d.state == "" {
		d.state = filepath.Join(t.TempDir(), "state")
	}
	if d.templates == "" {
		d.templates = templates
	}
	d.log.Reset()
	output := d.output
	if output == nil {
		output = &d.log
	}
	opened, err := tofu.Open(t.Context(), d.scope, values, tofu.Options{Program: filepath.Join(dir, "tofu"), Mirror: filepath.Join(dir, "providers"), Templates: d.templates,
		Dir: t.TempDir(), State: d.state, Env: d.env, Log: output})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

package installation_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// tokenFile is the file with the token that the Azure CLI prints.
func (p *pipelines) tokenFile() string { return filepath.Join(p.dir, "engineer-token.json") }

// prepareEngineer builds hcpctl, and writes an Azure CLI that prints the token of signIn. The rollout finds both in its PATH. The name of admin's
// ingress does not resolve on the machine, so hcpctl connects through an HTTP proxy.
func (p *pipelines) prepareEngineer() {
	p.t.Helper()
	p.proxy = must.Get(p.outside.StartProxy(p.ctx))(p.t)
	p.proxy.Clusters(p.azure, p.management.outside)
	programs := p.t.TempDir()
	p.hcpctl = filepath.Join(programs, "hcpctl")
	if output, err := exec.CommandContext(p.ctx, "go", "build", "-o", p.hcpctl, "../../tooling/hcpctl/cmd/hcpctl").CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, output)
	}
	cli := fmt.Sprintf("#!/bin/sh\ncat '%s'\n", p.tokenFile())
	must.Do(p.t, os.WriteFile(filepath.Join(programs, "az"), []byte(cli), 0o700))
	known := map[string]string{}
	for _, variable := range p.env {
		name, value, _ := strings.Cut(variable, "=")
		known[name] = value
	}
	p.env = append(p.env, "PATH="+programs+string(os.PathListSeparator)+known["PATH"], "HTTPS_PROXY="+p.proxy.URL)
}

// signIn signs the engineer with the role reader in to the Azure CLI.
func (p *pipelines) signIn() {
	p.t.Helper()
	token := must.Get(json.Marshal(map[string]any{"accessToken": p.engineerToken("reader"), "expires_on": time.Now().Add(time.Hour).Unix()}))(p.t)
	must.Do(p.t, os.WriteFile(p.tokenFile(), token, 0o600))
}

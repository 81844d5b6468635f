package installation_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// tokenFile is the file with the token that the Azure CLI prints.
func (p *pipelines) tokenFile() string { return filepath.Join(p.dir, "engineer-token.json") }

// prepareEngineer builds hcpctl, and writes an Azure CLI that prints the token of signIn. The rollout finds both in its PATH. The name of admin's
// ingress does not resolve on the machine, so hcpctl connects through an HTTP proxy.
func (p *pipelines) prepareEngineer() {
	p.t.Helper()
	var err error
	if p.proxy, err = p.outside.StartProxy(p.ctx); err != nil {
		p.t.Fatal(err)
	}
	p.proxy.Clusters(p.azure, p.management.outside)
	programs := p.t.TempDir()
	p.hcpctl = filepath.Join(programs, "hcpctl")
	if output, err := exec.CommandContext(p.ctx, "go", "build", "-o", p.hcpctl, "../../tooling/hcpctl/cmd/hcpctl").CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, output)
	}
	cli := fmt.Sprintf("#!/bin/sh\ncat '%s'\n", p.tokenFile())
	if err := os.WriteFile(filepath.Join(programs, "az"), []byte(cli), 0o700); err != nil {
		p.t.Fatal(err)
	}
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
	token, err := json.Marshal(map[string]any{"accessToken": p.engineerToken("reader"), "expires_on": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.tokenFile(), token, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

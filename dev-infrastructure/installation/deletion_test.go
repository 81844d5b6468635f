package installation_test

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// deletionFlag is a flag in the error of a deletion that nobody allowed.
var deletionFlag = regexp.MustCompile(`--allow-deletion '([^']+)'`)

// deleteRegion deletes the stamp of the region as an engineer does: the shard must be deregistered before. It then deletes the region.
func (p *pipelines) deleteRegion() {
	p.t.Helper()
	stamp, name := target+"/1", p.management.text("managementCluster", "name")
	if output, err := p.delete(stamp); err == nil || !strings.Contains(output, "gate deregistered") || !strings.Contains(output, name+" is active (0 of ") || !strings.Contains(output, "it is expected to be deregistered") {
		p.t.Fatalf("the deletion of a stamp that accepts clusters: %v\n%s", err, output)
	}
	because := []string{"--as", "oncall", "--reason", "the stamp is retired", "--ticket", "CHG-7"}
	p.hcpctlOrFail(append([]string{"shard", "drain", name, "--accept-no-room"}, because...)...)
	p.hcpctlOrFail(append([]string{"shard", "deregister", name}, because...)...)
	for _, deleted := range []string{stamp, target} {
		output, err := p.delete(deleted)
		flags := []string{}
		for _, match := range deletionFlag.FindAllStringSubmatch(output, -1) {
			flags = append(flags, "--allow-deletion", match[1])
		}
		if err == nil || len(flags) == 0 {
			p.t.Fatalf("the deletion of %s without flags: %v\n%s", deleted, err, output)
		}
		began := time.Now()
		if output, err = p.delete(deleted, flags...); err != nil {
			p.printLogs()
			p.t.Fatalf("the deletion of %s: %v\n%s", deleted, err, output)
		}
		p.log("%s was deleted within %v, after the deletion of each of its %d data stores, vaults and clusters was allowed", deleted, time.Since(began).Round(time.Second), len(flags)/2)
	}
	for _, step := range []string{"management-cluster@1/infrastructure", "service-cluster/infrastructure", "region/infrastructure"} {
		if record := p.record(step); record.Status != "" {
			p.t.Errorf("%s is %s", step, record.Status)
		}
	}
	groups := []string{p.text("resourceGroups", "region"), p.text("resourceGroups", "serviceCluster"), p.management.text("managementCluster", "resourceGroup")}
	for _, id := range p.azureResources() {
		if slices.ContainsFunc(groups, func(group string) bool {
			return strings.Contains(strings.ToLower(id)+"/", "/resourcegroups/"+strings.ToLower(group)+"/")
		}) {
			p.t.Errorf("the deleted region left %s", id)
		}
	}
	if output, err := p.delete(target, "--dry-run"); err == nil || strings.Contains(output, "delete azapi_") {
		p.t.Errorf("what a second deletion would delete: %v\n%s", err, output)
	}
}

// delete runs rollout delete for a target, and returns what it prints.
func (p *pipelines) delete(deleted string, flags ...string) (string, error) {
	p.t.Helper()
	command := exec.CommandContext(p.ctx, p.program, append([]string{"delete", deleted, "--state-dir", p.stateDir, "--opentofu", p.openTofu}, flags...)...)
	command.Dir, command.Env = p.checkout, p.env
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("rollout delete %s: %w", deleted, err)
	}
	return string(output), err
}

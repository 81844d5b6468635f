package installation

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/layer"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// The pauses between reads of what the pipelines have done.
const firstPipelinePause, lastPipelinePause = 100 * time.Millisecond, time.Second

// logFile returns the log of a part of the start; only some have one.
func (r *Region) logFile(part string) string {
	if part != "pipelines" && part != "programs" {
		return ""
	}
	return filepath.Join(local.LogDir(r.options.StateDir), part+".log")
}

// command runs a program to its end. Its output is in the log of a part.
func (r *Region) command(ctx context.Context, part string, command *exec.Cmd) error {
	log, err := os.OpenFile(r.logFile(part), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	command.Stdout, command.Stderr = log, log
	if err := spawn.Run(ctx, command); err != nil {
		return fmt.Errorf("%s: %w; its output is in %s", filepath.Base(command.Path), err, r.logFile(part))
	}
	return nil
}

// build builds the programs of nodes, which are static, and those of the rollout. What has not changed is not built again.
func (r *Region) build(ctx context.Context) error {
	for _, built := range []struct {
		environment []string
		programs    []string
	}{
		{[]string{"CGO_ENABLED=0"}, []string{"./dev-infrastructure/kubernetes/cmd/kubernetes-node", "./dev-infrastructure/kubernetes/cmd/pause"}},
		{nil, []string{"./tooling/rollout/cmd/rollout", "./tooling/hcpctl/cmd/hcpctl"}},
	} {
		command := exec.Command("go", append([]string{"build", "-o", r.options.programs() + string(filepath.Separator)}, built.programs...)...)
		command.Dir, command.Env = r.options.SourceDir, append(os.Environ(), built.environment...)
		if err := r.command(ctx, "programs", command); err != nil {
			return err
		}
	}
	return nil
}

// runPipelines deploys the region. While they run, it creates what each service finds in its namespace, and gives Entra ID and Cosmos DB the
// identities that the pipelines create.
func (r *Region) runPipelines(ctx context.Context) error {
	for c, path := range map[*cluster][]string{r.service: {"serviceCluster", "name"}, r.management: {"managementCluster", "name"}} {
		if err := os.Symlink(c.Kubeconfig(), r.options.dir("kubeconfigs", text(c.target, path...)+".kubeconfig")); err != nil {
			return err
		}
	}
	if err := r.signIn(); err != nil {
		return err
	}
	// The end of the rollout, also with an error, ends the others.
	following, stop := context.WithCancel(ctx)
	defer stop()
	group, working := errgroup.WithContext(following)
	given, err := r.service.outside.StampSecrets(r.management.target)
	if err != nil {
		return err
	}
	agent := &Supplier{Target: r.management.target, Authority: r.authority, Secrets: r.management.secrets, Dir: r.options.dir("outside"), Given: given}
	for _, w := range workload.All() {
		c, supplier := r.service, r.supplier
		if w.Management {
			c, supplier = r.management, agent
		}
		if !values.Applies(w, c.target) {
			continue
		}
		group.Go(func() error { return c.supply(working, supplier, string(w.Peer)) })
	}
	group.Go(func() error { return r.followInfrastructure(working) })
	group.Go(func() error {
		command := exec.Command(filepath.Join(r.options.programs(), "rollout"), "run", regionTarget, "--state-dir", r.options.dir("rollout"),
			"--kubeconfig-dir", r.options.dir("kubeconfigs"), "--images", filepath.Join(r.options.images(), "images.json"), "--opentofu", r.options.openTofu())
		command.Dir = r.options.SourceDir
		command.Env = append(r.azure.Env, "PATH="+strings.Join([]string{r.options.dir("cli"), r.options.programs(), os.Getenv("PATH")}, string(os.PathListSeparator)), "HTTPS_PROXY="+r.proxy.URL)
		return r.command(working, "pipelines", command)
	})
	return group.Wait()
}

// signIn writes an Azure CLI that prints the token of an engineer, with which hcpctl calls admin in pipelines.
func (r *Region) signIn() error {
	issued, err := r.entra.EngineerToken("reader")
	if err != nil {
		return err
	}
	token, err := json.Marshal(map[string]any{"accessToken": issued, "expires_on": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		return err
	}
	file := r.options.dir("outside", "engineer-token.json")
	if err := os.WriteFile(file, token, 0o600); err != nil {
		return err
	}
	return os.WriteFile(r.options.dir("cli", "az"), []byte("#!/bin/sh\ncat '"+file+"'\n"), 0o700)
}

// supply creates what the chart of a program expects when its namespace exists.
func (c *cluster) supply(ctx context.Context, supplier *Supplier, name string) error {
	for pauses := backoff.New(firstPipelinePause, lastPipelinePause); ; {
		_, err := c.Client().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return supplier.Supply(ctx, name)
		}
		if waited := pauses.Wait(ctx); waited != nil {
			return fmt.Errorf("waiting for the namespace of %s: %w: %w", name, waited, err)
		}
	}
}

// followInfrastructure waits until the pipelines have created the identities of the region, and starts what knows them.
func (r *Region) followInfrastructure(ctx context.Context) error {
	target, err := layer.ParseTarget(regionTarget)
	if err != nil {
		return err
	}
	for pauses := backoff.New(firstPipelinePause, lastPipelinePause); ; {
		store, err := state.Open(r.options.dir("rollout"), target)
		if err != nil {
			return err
		}
		if record, _ := store.Step("region/infrastructure"); record.Status == state.Succeeded {
			for name, into := range map[string]*map[string]string{"clientIds": &r.service.target.ClientIDs, "objectIds": &r.service.target.ObjectIDs} {
				if err := json.Unmarshal([]byte(record.Outputs[name]), into); err != nil {
					return fmt.Errorf("the output %s of the infrastructure: %w", name, err)
				}
			}
			break
		}
		if err := pauses.Wait(ctx); err != nil {
			return fmt.Errorf("waiting for the infrastructure: %w", err)
		}
	}
	if err := r.entra.AddWorkloads(); err != nil {
		return err
	}
	if err := r.entra.AddManagementCluster(context.WithoutCancel(ctx), r.management.outside); err != nil {
		return err
	}
	return r.service.outside.StartCosmos(context.WithoutCancel(ctx), r.entra)
}

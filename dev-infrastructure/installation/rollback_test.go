package installation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/installation"
	"github.com/hcpmesh/hcpmesh/dev-infrastructure/kubernetes"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/state"
)

// checkoutParts returns the files and folders of a checkout that the program rollout reads: the configuration, the infrastructure, and the pipeline
// and the chart of each service, wherever git finds it.
func checkoutParts(root string) ([]string, error) {
	parts := []string{"go.mod", "config", "dev-infrastructure/topology.yaml", "dev-infrastructure/pipelines", "dev-infrastructure/azure", "dev-infrastructure/charts"}
	list := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z", "*/Chart.yaml", "*/pipeline.yaml", ":!dev-infrastructure/charts", ":!dev-infrastructure/pipelines")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		parts = append(parts, strings.TrimSuffix(name, "/Chart.yaml"))
	}
	return parts, nil
}

// copyCheckout makes the pipelines use a copy of the checkout, which a test can change.
func (p *pipelines) copyCheckout() { p.checkout = copyOfCheckout(p.t, p.root) }

// copyOfCheckout returns a folder with all that the program rollout reads of a checkout.
func copyOfCheckout(t *testing.T, root string) string {
	t.Helper()
	parts := must.Get(checkoutParts(root))(t)
	copied := t.TempDir()
	for _, part := range parts {
		from, to := filepath.Join(root, filepath.FromSlash(part)), filepath.Join(copied, filepath.FromSlash(part))
		info := must.Get(os.Stat(from))(t)
		if info.IsDir() {
			must.Do(t, os.CopyFS(to, os.DirFS(from)))
			continue
		}
		text := must.Get(os.ReadFile(from))(t)
		write(t, to, text)
	}
	return copied
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must.Do(t, os.WriteFile(file, text, 0o644))
}

// change replaces a text in a file of the copied checkout.
func (p *pipelines) change(name, before, after string) {
	p.t.Helper()
	file := filepath.Join(p.checkout, filepath.FromSlash(name))
	text := must.Get(os.ReadFile(file))(p.t)
	if !bytes.Contains(text, []byte(before)) {
		p.t.Fatalf("%s has no %q", name, before)
	}
	write(p.t, file, bytes.Replace(text, []byte(before), []byte(after), 1))
}

// brokenImage pushes an image of the frontend whose program ends at once, and returns a list of images with it.
func (p *pipelines) brokenImage() (file string) {
	p.t.Helper()
	list := must.Get(imagelist.Load(filepath.Join(imagesDir, "images.json")))(p.t)
	image, err := kubernetes.ProgramImage(p.loadProgram) // it does not know the flags of the frontend
	if err != nil {
		p.t.Fatal(err)
	}
	digest := must.Get(image.Digest())(p.t)
	broken := list.Images[string(mesh.Frontend)]
	must.Do(p.t, p.cluster.Push(p.ctx, p.text("frontend", "image", "registry")+"/"+broken.Repository+":broken", image))
	broken.Digest = digest.String()
	list.Images[string(mesh.Frontend)] = broken
	text := must.Get(json.Marshal(list))(p.t)
	file = filepath.Join(p.t.TempDir(), "images.json")
	write(p.t, file, text)
	return file
}

// frontendImages returns the images of the frontend's ready pods. A pod that was rolled back still ends.
func (p *pipelines) frontendImages() map[string]string {
	p.t.Helper()
	images := map[string]string{}
	for _, pod := range p.pods(string(mesh.Frontend)) {
		if installation.PodReady(&pod) {
			images[pod.Name] = pod.Spec.Containers[0].Image
		}
	}
	return images
}

// withoutInfrastructure returns steps without those that apply infrastructure, which depend on the whole configuration.
func withoutInfrastructure(steps []string) []string {
	return slices.DeleteFunc(slices.Clone(steps), func(step string) bool { return strings.HasSuffix(step, "/infrastructure") })
}

// rollBackUpgrade upgrades the frontend to an image whose pods never become ready, while ARM calls it. The rollout must fail and bring the
// frontend back. The corrected upgrade must succeed. No call may fail.
func (p *pipelines) rollBackUpgrade() {
	p.t.Helper()
	service := string(mesh.Frontend)
	p.pushLoad()
	good := slices.Clone(p.flags)
	l := p.frontendLoad()
	l.logEndpoints(service)
	l.start("node-1", "node-2")
	before := p.frontendImages()

	began := time.Now()
	p.flags = append(slices.Clone(good), "--images", p.brokenImage())
	var failed rolledOut
	if err := p.attempt("run", &failed); err == nil || !slices.Equal(failed.Failed, []string{"frontend/deploy"}) || len(withoutInfrastructure(failed.Succeeded)) > 0 {
		p.printLogs()
		p.t.Fatalf("the rollout of a broken image: %+v, %v", failed, err)
	}
	p.log("the rollout of a broken image had failed and was rolled back after %v", time.Since(began).Round(time.Millisecond))
	record := p.record("frontend/deploy")
	if record.Status != state.RolledBack || !strings.Contains(record.Error, "Deployment frontend/frontend: pod ") || !strings.Contains(record.Error, " has ended ") {
		p.t.Errorf("the step is %s: %s", record.Status, record.Error)
	}
	if diff := cmp.Diff(before, p.frontendImages()); diff != "" {
		p.t.Errorf("the images after the rollback (-before +after):\n%s", diff)
	}
	if len(before) != 2 {
		p.t.Errorf("before the rollout, the ready pods are %v", before)
	}
	l.continueCalls("after the rollback of the frontend")

	p.flags = good
	p.change("config/clouds/public/local.yaml", "frontend:\n", "frontend:\n  cosmosConnections: 32\n")
	replaced := p.readyPods(service)
	var corrected rolledOut
	p.run("run", &corrected)
	if !slices.Equal(withoutInfrastructure(corrected.Succeeded), []string{"frontend/deploy"}) {
		p.t.Errorf("the corrected rollout: %+v", corrected)
	}
	for uid, name := range p.readyPods(service) {
		if replaced[uid] != "" {
			p.t.Errorf("the corrected rollout has not replaced %s", name)
		}
	}
	list, err := p.cluster.Client().AppsV1().Deployments(service).List(p.ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || !strings.Contains(list.Items[0].String(), "--cosmos-max-connections=32") {
		p.t.Errorf("the corrected rollout has not changed the frontend: %v", err)
	}
	l.continueCalls("after the corrected upgrade of the frontend")
	l.stop("register")
}

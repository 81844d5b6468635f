package helm

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/internal/spawn"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/configure/pkg/deployment"
	imageupdater "github.com/hcpmesh/hcpmesh/tooling/image-updater/pkg/update"
	images "github.com/hcpmesh/hcpmesh/tooling/images/pkg/command"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/imagelist"
	"github.com/hcpmesh/hcpmesh/tooling/images/pkg/registryclient"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/action"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/definition"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/imagemirror"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/plan"
	"github.com/hcpmesh/hcpmesh/tooling/rollout/pkg/runner"
)

// The registries of the test. The first has the images of a build, the second is that of the environment.
const (
	buildRegistry       = "hcpmbuildsvc.azurecr.io"
	environmentRegistry = "hcpmdevsvc.azurecr.io"
)

// repositories are those of the configuration's images. The image of each is the same small program.
var repositories = []string{"hcpmesh/frontend", "hcpmesh/backend", "hcpmesh/admin", "hcpmesh/gateway-access", "hcpmesh/gateway-egress", "hcpmesh/gateway-grants", "hcpmesh/gateway-tunnel", "hcpmesh/monitor", "hcpmesh/cluster-service", "hcpmesh/maestro-server", "hcpmesh/maestro-agent", "hcpmesh/monitor-inside", "hypershift/hypershift-operator"}

// delivery is a checkout with the repository's step that mirrors images, two running registries, and a repository with a small program.
type delivery struct {
	*checkout
	// addresses are those of the registries by host name.
	addresses map[string]string
	// authorities and credentials are files with access to all registries.
	authorities, credentials string
	sources, built           string
}

const user, password = "pipeline", "0123456789abcdef"

func newDelivery(t *testing.T) *delivery {
	t.Helper()
	d := &delivery{checkout: newCheckout(t), addresses: map[string]string{}, sources: t.TempDir(), built: t.TempDir()}
	root := charttest.Root(t)
	for _, file := range []string{regionLayer, "dev-infrastructure/pipelines/images/pipeline.yaml"} {
		text := must.Get(os.ReadFile(filepath.Join(root, filepath.FromSlash(file))))(t)
		d.write(t, file, string(text))
	}
	d.write(t, definition.TopologyFile, topology+`  dependsOn: [images]
- name: images
  scope: environment
  purpose: The images of the environment.
  pipeline: dev-infrastructure/pipelines/images/pipeline.yaml
`)
	d.write(t, "config/clouds/public/dev.yaml", d.read(t, "config/clouds/public/dev.yaml")+"\nregistry: {source: "+buildRegistry+"}\n")
	d.write(t, "healthy", "")
	program := filepath.Join(t.TempDir(), "registry")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/hcpmesh/hcpmesh/tooling/registry/cmd/registry").CombinedOutput(); err != nil {
		t.Fatalf("building the registry: %v\n%s", err, out)
	}
	certificate, key := d.certificate(t)
	type auth struct {
		Auth string `json:"auth"`
	}
	auths := map[string]auth{}
	for _, host := range []string{buildRegistry, environmentRegistry} {
		d.addresses[host] = d.startRegistry(t, program, certificate, key)
		login := auth{base64.StdEncoding.EncodeToString([]byte(user + ":" + password))}
		auths[host], auths[d.addresses[host]] = login, login
	}
	text := must.Get(json.Marshal(map[string]any{"auths": auths}))(t)
	d.authorities, d.credentials = certificate, secretFile(t, string(text))
	return d
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// certificate writes a certificate for both registries and its key, and returns their paths.
func (d *delivery) certificate(t *testing.T) (certificate, key string) {
	t.Helper()
	private := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registries"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{buildRegistry, environmentRegistry}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed := must.Get(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))(t)
	encoded := must.Get(x509.MarshalPKCS8PrivateKey(private))(t)
	return secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))),
		secretFile(t, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})))
}

// startRegistry starts a registry process that requires credentials to read and to write, and returns its address. It ends with the test.
func (d *delivery) startRegistry(t *testing.T, program, certificate, key string) string {
	t.Helper()
	login, addressFile := secretFile(t, user+":"+password), filepath.Join(t.TempDir(), "address")
	command := exec.Command(program, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--ops-listen", "", "--address-file", addressFile,
		"--tls-cert", certificate, "--tls-key", key, "--read-credentials", login, "--write-credentials", login)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	process := must.Get(spawn.Start(command, syscall.SIGKILL))(t)
	t.Cleanup(func() {
		_ = process.Signal(syscall.SIGTERM)
		if err := process.Err(); err != nil || strings.Contains(output.String(), password) {
			t.Errorf("the registry ended with %v, or logged a password:\n%s", err, output.String())
		}
	})
	var address []byte
	eventually.Soon(t, "the registry has an address", func() error {
		var err error
		if address, err = os.ReadFile(addressFile); err == nil && len(address) == 0 {
			err = errors.New("the file is empty")
		}
		return err
	})

	return strings.TrimSpace(string(address))
}

// dial connects to a registry by its host name.
func (d *delivery) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	found, known := d.addresses[host]
	if !known {
		return nil, fmt.Errorf("there is no registry %s", host)
	}
	return (&net.Dialer{}).DialContext(ctx, network, found)
}

// build commits a program, builds its images with the command of `make images`, and pushes them. It returns the images by repository.
func (d *delivery) build(t *testing.T, text string) map[string]imagelist.Image {
	t.Helper()
	var definitions strings.Builder
	definitions.WriteString("images:\n")
	for _, repository := range repositories {
		fmt.Fprintf(&definitions, "- {name: %s, repository: %s, title: A small program, programs: [{package: ./cmd/small}]}\n", filepath.Base(repository), repository)
	}
	tool := "package main\n\nfunc main() {}\n" // its sources count as sources of every image
	for file, content := range map[string]string{
		"go.mod": "module example.test\n\ngo 1.26.0\n", "tooling/images/images.yaml": definitions.String(),
		"tooling/images/cmd/images/main.go": tool, "cmd/small/main.go": fmt.Sprintf("package main\n\nfunc main() { print(%q) }\n", text),
	} {
		at := filepath.Join(d.sources, file)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)))
	}
	for _, arguments := range [][]string{{"init", "-q"}, {"add", "-A"}, {"commit", "-q", "-m", text}} {
		git := exec.CommandContext(t.Context(), "git", append([]string{"-C", d.sources, "-c", "user.name=t", "-c", "user.email=t@example.test", "-c", "commit.gpgsign=false"}, arguments...)...)
		if out, err := git.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", arguments, err, out)
		}
	}
	for _, arguments := range [][]string{
		{"build", "-into", d.built},
		{"push", "-from", d.built, "-registry", d.addresses[buildRegistry], "-ca-file", d.authorities, "-credentials", d.credentials},
	} {
		if err := images.Run(t.Context(), d.sources, arguments, io.Discard); err != nil {
			t.Fatalf("images %v: %v", arguments, err)
		}
	}
	list := must.Get(imagelist.Load(filepath.Join(d.built, "images.json")))(t)
	built := map[string]imagelist.Image{}
	for _, image := range list.Images {
		built[image.Repository] = image
	}
	return built
}

// update writes the digests of the build into the configuration, after a check that a registry has them, and returns the output.
func (d *delivery) update(t *testing.T, registry string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := imageupdater.Run(t.Context(), []string{"-config-dir", filepath.Join(d.dir, "config"), "-environment", "public/dev", "-images", filepath.Join(d.built, "images.json"),
		"-registry", d.addresses[registry], "-ca-file", d.authorities, "-credentials", d.credentials}, &out, io.Discard)
	return out.String(), err
}

// rollout runs all steps with the action that mirrors images.
func (d *delivery) rollout(t *testing.T) (runner.Result, error) {
	t.Helper()
	r, instances := d.runnerWithMirror(t)
	return r.Run(t.Context(), instances)
}

func (d *delivery) runnerWithMirror(t *testing.T) (*runner.Runner, []*plan.Instance) {
	t.Helper()
	configuration := must.Get(deployment.Open(filepath.Join(d.dir, "config")))(t)
	r, instances := d.runner(t)
	r.Planner.Actions["ImageMirror"] = imagemirror.ImageMirror{Configuration: configuration, Authorities: d.authorities, Credentials: d.credentials, Dial: d.dial}
	return r, instances
}

// verdicts returns the verdict of each step, with its first reason.
func (d *delivery) verdicts(t *testing.T) (map[string]string, *runner.Runner, []plan.Decision) {
	t.Helper()
	r, instances := d.runnerWithMirror(t)
	decisions := must.Get(r.Planner.All(instances))(t)
	verdicts := map[string]string{}
	for _, decision := range decisions {
		verdicts[decision.ID] = strings.Join(append([]string{string(decision.Verdict)}, decision.Reasons...), ": ")
	}
	return verdicts, r, decisions
}

// mustHave checks that the registry of the environment has an image with all of its content.
func (d *delivery) mustHave(t *testing.T, image imagelist.Image) {
	t.Helper()
	options := must.Get((&registryclient.Options{Authorities: d.authorities, Credentials: d.credentials, Dial: d.dial}).Remote())(t)
	reference := must.Get(name.NewDigest(environmentRegistry + "/" + image.Repository + "@" + image.Digest))(t)
	found, err := remote.Image(reference, options...)
	if err == nil {
		err = validate.Image(found)
	}
	if err != nil {
		t.Errorf("%s: %v", reference, err)
	}
	if attached, err := remote.Referrers(reference, options...); err != nil {
		t.Errorf("documents of %s: %v", reference, err)
	} else if index, err := attached.IndexManifest(); err != nil || len(index.Manifests) == 0 {
		t.Errorf("%s has no bill of materials: %v, %v", reference, index, err)
	}
}

// mustDeploy checks the image of the frontend in the cluster.
func (d *delivery) mustDeploy(t *testing.T, image imagelist.Image) {
	t.Helper()
	found := must.Get(d.cluster.Client.AppsV1().Deployments("frontend").Get(t.Context(), "frontend", metav1.GetOptions{}))(t)
	if want := environmentRegistry + "/" + image.Repository + "@" + image.Digest; found.Spec.Template.Spec.Containers[0].Image != want {
		t.Errorf("the frontend runs %s, not %s", found.Spec.Template.Spec.Containers[0].Image, want)
	}
}

// mustNotHaveCredentials checks the configuration, the state and the logs of the rollouts.
func (d *delivery) mustNotHaveCredentials(t *testing.T) {
	t.Helper()
	login := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	for _, folder := range []string{"config", "state", "logs"} {
		err := filepath.WalkDir(filepath.Join(d.dir, folder), func(name string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			text, err := os.ReadFile(name)
			if strings.Contains(string(text), password) || strings.Contains(string(text), login) {
				t.Errorf("%s has credentials", name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestDeliveryOfImages builds images, pushes them to a registry, writes their digests into the configuration, and deploys them with the
// repository's step that mirrors images and its chart of the frontend. Then it delivers a second build.
func TestDeliveryOfImages(t *testing.T) {
	d := newDelivery(t)
	if verdicts, _, _ := d.verdicts(t); !strings.HasPrefix(verdicts["images/services"], "blocked: ") || !strings.Contains(verdicts["images/services"], "frontend.image.digest: is required for a deployment") {
		t.Errorf("without digests, the plan is %v", verdicts)
	}
	var last map[string]imagelist.Image
	for _, text := range []string{"first", "second"} {
		built := d.build(t, text)
		if len(built) != len(repositories) || last != nil && built["hcpmesh/frontend"].Digest == last["hcpmesh/frontend"].Digest {
			t.Fatalf("the %s build has %v", text, built)
		}
		last = built
		if out, err := d.update(t, environmentRegistry); err == nil || !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("%s: digests that the registry does not have were written: %v\n%s", text, err, out)
		}
		if out, err := d.update(t, buildRegistry); err != nil || strings.Count(out, " -> ") != len(repositories) {
			t.Fatalf("%s: %v\n%s", text, err, out)
		}

		verdicts, r, decisions := d.verdicts(t)
		if !strings.HasPrefix(verdicts["images/services"], "run: ") || !strings.HasPrefix(verdicts["services/frontend"], "run: ") {
			t.Errorf("%s: the plan is %v", text, verdicts)
		}
		for _, decision := range decisions {
			if decision.ID != "images/services" {
				continue
			}
			request := must.Get(r.Planner.Request(decision))(t)
			var preview bytes.Buffer
			must.Do(t, r.Planner.Actions["ImageMirror"].(action.Previewer).Preview(t.Context(), request, &preview))
			frontend := "/hcpmesh/frontend@" + built["hcpmesh/frontend"].Digest
			if want := "copy " + buildRegistry + frontend + " to " + environmentRegistry + frontend + "\n"; !strings.Contains(preview.String(), want) {
				t.Errorf("%s: the preview is\n%s", text, preview.String())
			}
		}

		if result, err := d.rollout(t); err != nil {
			t.Fatalf("%s: %+v: %v", text, result, err)
		}
		for _, image := range built {
			d.mustHave(t, image)
		}
		d.mustDeploy(t, built["hcpmesh/frontend"])
		if out, err := d.update(t, environmentRegistry); err != nil || out != "all digests are up to date\n" {
			t.Errorf("%s: the registry of the environment lacks images: %v\n%s", text, err, out)
		}
		if result, err := d.rollout(t); err != nil || len(result.Skipped) != 4 {
			t.Errorf("%s: without a change: %+v: %v", text, result, err)
		}
	}
	d.mustNotHaveCredentials(t)
}

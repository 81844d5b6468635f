package test

import (
	"errors"
	"flag"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	adminaccess "github.com/hcpmesh/hcpmesh/admin/pkg/access"
	adminapp "github.com/hcpmesh/hcpmesh/admin/pkg/app"
	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	backendapp "github.com/hcpmesh/hcpmesh/backend/pkg/app"
	clusterserviceapp "github.com/hcpmesh/hcpmesh/cluster-service/pkg/app"
	clusterserviceconfig "github.com/hcpmesh/hcpmesh/cluster-service/pkg/config"
	frontendapp "github.com/hcpmesh/hcpmesh/frontend/pkg/app"
	gatewayapp "github.com/hcpmesh/hcpmesh/gateway/pkg/app"
	gatewayegress "github.com/hcpmesh/hcpmesh/gateway/pkg/egress"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/grant"
	"github.com/hcpmesh/hcpmesh/gateway/pkg/tunnel/agent"
	hypershiftapp "github.com/hcpmesh/hcpmesh/hypershift/pkg/app"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/postgres/postgrescommand"
	"github.com/hcpmesh/hcpmesh/internal/process"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	maestroagent "github.com/hcpmesh/hcpmesh/maestro/agent"
	maestroapp "github.com/hcpmesh/hcpmesh/maestro/pkg/app"
	monitorapp "github.com/hcpmesh/hcpmesh/monitor/pkg/app"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/inside"
	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/rbac"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/chart"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/charttest"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/values"
	"github.com/hcpmesh/hcpmesh/tooling/charts/pkg/workload"
)

// programs returns the flags of each program with a chart, and of the commands that prepare databases.
func programs() map[string]process.Flags {
	return map[string]process.Flags{
		"frontend": &frontendapp.Options{}, "backend": &backendapp.Options{}, "admin": &adminapp.Options{},
		"gateway-access": &gatewayapp.Options{}, "gateway-egress": &gatewayegress.Options{}, "gateway-grants": &grant.Options{}, "gateway-tunnel": &agent.Flags{},
		"monitor": &monitorapp.Options{}, "monitor-inside": &inside.Flags{},
		"cluster-service": &clusterserviceapp.Options{}, "maestro-server": &maestroapp.Options{}, "maestro-agent": &maestroagent.Flags{}, "hypershift-runtime": &hypershiftapp.Options{},
		postgrescommand.MigrateName: &postgrescommand.MigrateOptions{}, postgrescommand.ProvisionName: &postgrescommand.ProvisionOptions{},
	}
}

// flagSet returns the flags of a program with those that every process has. The commands that prepare databases do not have them.
func flagSet(name string, program process.Flags) *flag.FlagSet {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	program.AddFlags(set)
	if name != postgrescommand.MigrateName && name != postgrescommand.ProvisionName {
		new(process.Options).AddFlags(set)
	}
	return set
}

// renderedChart is a chart that is rendered for a region or a stamp.
type renderedChart struct {
	target   string
	workload workload.Workload
	objects  chart.Objects
}

var (
	renderOnce     sync.Once
	renderedCharts []renderedChart
)

// charts returns every chart for every region and stamp. All tests share them and do not change them, because rendering them takes seconds.
func charts(t *testing.T) []renderedChart {
	t.Helper()
	renderOnce.Do(func() {
		for _, target := range charttest.Targets(t) {
			for _, w := range workload.All() {
				if values.Applies(w, target) {
					renderedCharts = append(renderedCharts, renderedChart{target.Name, w, charttest.Render(t, w, target)})
				}
			}
		}
	})
	return renderedCharts
}

// eachChart visits every chart for every region and stamp.
func eachChart(t *testing.T, visit func(t *testing.T, c renderedChart)) {
	t.Helper()
	for _, c := range charts(t) {
		t.Run(c.target+" "+string(c.workload.Peer), func(t *testing.T) { visit(t, c) })
	}
}

// template returns the pod template of an object that has one, or nil.
func template(t *testing.T, object *unstructured.Unstructured) *corev1.PodTemplateSpec {
	t.Helper()
	content, ok, err := unstructured.NestedMap(object.Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	if !ok || object.GetKind() != "Deployment" && object.GetKind() != "StatefulSet" && object.GetKind() != "Job" {
		return nil
	}
	found := &corev1.PodTemplateSpec{}
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(content, found))
	return found
}

// eachProgram visits the pods of every chart that start one of programs, with the name of the program and its arguments.
func eachProgram(t *testing.T, visit func(t *testing.T, c renderedChart, program string, arguments []string, pod *corev1.PodTemplateSpec)) {
	t.Helper()
	known := programs()
	eachChart(t, func(t *testing.T, c renderedChart) {
		for _, object := range c.objects {
			pod := template(t, object)
			if pod == nil {
				continue
			}
			name, arguments := c.workload.Program(), pod.Spec.Containers[0].Args
			if arguments[0] == postgrescommand.MigrateName || arguments[0] == postgrescommand.ProvisionName {
				name, arguments = arguments[0], arguments[1:]
			}
			if known[name] != nil {
				visit(t, c, name, arguments, pod)
			}
		}
	})
}

// TestProgramsAcceptTheFlagsOfCharts parses and validates the arguments of every container with the code of the program.
func TestProgramsAcceptTheFlagsOfCharts(t *testing.T) {
	accepted := map[string]bool{}
	eachProgram(t, func(t *testing.T, c renderedChart, name string, arguments []string, pod *corev1.PodTemplateSpec) {
		program := programs()[name]
		set := flagSet(name, program)
		if err := errors.Join(set.Parse(arguments), program.Validate()); err != nil || set.NArg() > 0 {
			t.Errorf("%s %s: %v", name, strings.Join(arguments, " "), err)
		}
		accepted[name] = true
		checkFiles(t, pod, c.objects)
		if w := c.workload; name == w.Program() && !w.Management && !w.PrivateLink { // others authenticate to no program
			checkIdentity(t, w, pod, c.objects)
		}
	})
	for name := range programs() {
		if !accepted[name] {
			t.Errorf("no chart starts %s", name)
		}
	}
}

// checkIdentity checks that a program has either a certificate or a sidecar, and that it accepts the identity of the sidecar.
func checkIdentity(t *testing.T, w workload.Workload, pod *corev1.PodTemplateSpec, objects chart.Objects) {
	t.Helper()
	var options mesh.Options
	for _, argument := range pod.Spec.Containers[0].Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(argument, "--"), "=")
		switch name {
		case "identity-dir":
			options.IdentityDir = value
		case "sidecar-identity":
			options.SidecarIdentity = value
		case "sidecar-gateways":
			options.SidecarGateways = value
		}
	}
	sidecar := options.SidecarIdentity != ""
	if sidecar {
		if _, err := options.Load(w.Peer); err != nil {
			t.Error(err)
		}
	}
	if injected := pod.Labels["sidecar.istio.io/inject"] == "true" && pod.Labels["istio.io/rev"] != ""; injected != sidecar {
		t.Errorf("the pod gets a sidecar: %t, the program expects one: %t", injected, sidecar)
	}
	certificate := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "identity" })
	if certificate == sidecar || certificate != (options.IdentityDir != "") {
		t.Errorf("the pod has a certificate: %t, a sidecar: %t", certificate, sidecar)
	}
	for _, object := range objects {
		if object.GetKind() != "Service" {
			continue
		}
		service := &corev1.Service{}
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, service))
		for _, port := range service.Spec.Ports {
			if want := map[bool]string{true: "grpc", false: "http"}[port.Name == "grpc"]; sidecar && (port.AppProtocol == nil || *port.AppProtocol != want) || !sidecar && port.AppProtocol != nil {
				t.Errorf("the port %s has the protocol %v", port.Name, port.AppProtocol)
			}
		}
	}
}

// imageFolder has the files of an image that are neither programs nor those that all images share.
const imageFolder = "/usr/share/"

// checkFiles checks that each file or folder in the arguments of a container is on a volume, or in its image.
func checkFiles(t *testing.T, pod *corev1.PodTemplateSpec, objects chart.Objects) {
	t.Helper()
	container := pod.Spec.Containers[0]
	for _, argument := range container.Args {
		_, value, _ := strings.Cut(argument, "=")
		if !strings.HasPrefix(value, "/") || strings.HasPrefix(value, imageFolder) {
			continue
		}
		i := slices.IndexFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return value == m.MountPath || strings.HasPrefix(value, m.MountPath+"/")
		})
		if i < 0 {
			t.Errorf("%s is on no volume", argument)
			continue
		}
		volume := container.VolumeMounts[i].Name
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume }) && !claimed(t, objects, volume) {
			t.Errorf("%s: the pod has no volume %s", argument, volume)
		}
	}
}

// claimed reports whether a StatefulSet claims a volume.
func claimed(t *testing.T, objects chart.Objects, volume string) bool {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "StatefulSet" {
			continue
		}
		set := &appsv1.StatefulSet{}
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, set))
		if slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == volume }) {
			return true
		}
	}
	return false
}

// TestProgramsAcceptTheFilesOfCharts loads the configuration files with the code of the programs.
func TestProgramsAcceptTheFilesOfCharts(t *testing.T) {
	loaded := 0
	eachChart(t, func(t *testing.T, c renderedChart) {
		for _, object := range c.objects {
			files, ok, err := unstructured.NestedStringMap(object.Object, "data")
			if object.GetKind() != "ConfigMap" || !ok || err != nil {
				continue
			}
			dir := t.TempDir()
			for name, content := range files {
				must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
			}
			for name := range files {
				loaded++
				if err := load(dir, name); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	})
	if loaded == 0 {
		t.Error("no chart has a configuration file")
	}
}

func load(dir, name string) error {
	file := filepath.Join(dir, name)
	switch name {
	case "config.yaml":
		_, err := clusterserviceconfig.Load(file)
		return err
	case "shards.yaml":
		settings, err := clusterserviceconfig.Load(filepath.Join(dir, "config.yaml"))
		if err != nil {
			return err
		}
		_, err = clusterserviceconfig.LoadShards(file, &settings.Placement)
		return err
	case "roles.yaml":
		_, err := adminaccess.Load(file)
		return err
	case "access-policy.yaml":
		_, err := elevation.LoadPolicy(file)
		return err
	}
	return errors.New("no program is known to read this file")
}

// TestExcludedDependenciesExist checks that the program of a chart registers each dependency that its readiness probe excludes.
func TestExcludedDependenciesExist(t *testing.T) {
	excluded := 0
	eachChart(t, func(t *testing.T, c renderedChart) {
		module, _, _ := strings.Cut(c.workload.Folder, "/")
		folder := filepath.Join(module, "pkg", "app")
		if c.workload.Peer == mesh.GatewayTunnel {
			folder = filepath.Join(module, "pkg", "tunnel", "agent")
		}
		for _, object := range c.objects {
			pod := template(t, object)
			if pod == nil || pod.Spec.Containers[0].ReadinessProbe == nil {
				continue
			}
			path := must.Get(url.Parse(pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Path))(t)
			for _, name := range path.Query()["exclude"] {
				excluded++
				if !mentioned(t, filepath.Join(charttest.Root(t), folder), `"`+name+`"`) {
					t.Errorf("%s registers no dependency %q", folder, name)
				}
			}
		}
	})
	if excluded == 0 {
		t.Error("no probe excludes a dependency")
	}
}

func mentioned(t *testing.T, dir, text string) bool {
	t.Helper()
	files := must.Get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
	return slices.ContainsFunc(files, func(file string) bool {
		content := must.Get(os.ReadFile(file))(t)
		return !strings.HasSuffix(file, "_test.go") && strings.Contains(string(content), text)
	})
}

// TestNetworksAgree checks each address of another program in the flags of a program: its own network policy allows the connection, the
// other program's Service has the port, and that program's network policy accepts the client.
func TestNetworksAgree(t *testing.T) {
	targets := map[string]map[string]chart.Objects{}
	for _, c := range charts(t) {
		if targets[c.target] == nil {
			targets[c.target] = map[string]chart.Objects{}
		}
		targets[c.target][string(c.workload.Peer)] = c.objects
	}
	for target, rendered := range targets {
		for client, objects := range rendered {
			for _, address := range addresses(t, objects) {
				if !allows(t, objects, client, address, true) {
					t.Errorf("%s: the network of %s does not allow it to connect to %s:%d", target, client, address.namespace, address.port)
				}
				server, ours := rendered[address.namespace]
				if ours && !(serves(t, server, address.port) && allows(t, server, address.namespace, inCluster{client, address.port}, false)) {
					t.Errorf("%s: %s does not accept connections of %s to port %d", target, address.namespace, client, address.port)
				}
			}
		}
	}
}

// inCluster is an address in another namespace of the cluster.
type inCluster struct {
	namespace string
	port      int32
}

// addresses returns the addresses in the cluster that the flags of a program contain.
func addresses(t *testing.T, objects chart.Objects) []inCluster {
	t.Helper()
	var found []inCluster
	for _, object := range objects {
		pod := template(t, object)
		if pod == nil {
			continue
		}
		for _, argument := range pod.Spec.Containers[0].Args {
			_, value, _ := strings.Cut(argument, "=")
			if parsed, err := url.Parse(value); err == nil && parsed.Host != "" {
				value = parsed.Host
			}
			host, port, err := net.SplitHostPort(value)
			parts := strings.Split(host, ".")
			if err != nil || len(parts) != 3 || parts[2] != "svc" {
				continue
			}
			number := must.Get(strconv.ParseInt(port, 10, 32))(t)
			found = append(found, inCluster{parts[1], int32(number)})
		}
	}
	return found
}

// allows reports whether the network policy of a program allows connections to (egress) or from a namespace.
func allows(t *testing.T, objects chart.Objects, name string, address inCluster, egress bool) bool {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "NetworkPolicy" || object.GetName() != name {
			continue
		}
		policy := &networkingv1.NetworkPolicy{}
		must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, policy))
		if egress {
			return slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return matches(r.To, r.Ports, address) })
		}
		return slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return matches(r.From, r.Ports, address) })
	}
	return false
}

func matches(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, address inCluster) bool {
	return slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		return p.NamespaceSelector != nil && p.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == address.namespace
	}) && slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool { return p.Port.IntVal == address.port })
}

// serves reports whether the Service of a program has a port, and its container a port with the name to which the Service sends.
func serves(t *testing.T, objects chart.Objects, port int32) bool {
	t.Helper()
	named := ""
	for _, object := range objects {
		if object.GetKind() == "Service" {
			service := &corev1.Service{}
			must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, service))
			for _, p := range service.Spec.Ports {
				if p.Port == port {
					named = p.TargetPort.String()
				}
			}
		}
	}
	for _, object := range objects {
		if pod := template(t, object); pod != nil && object.GetKind() != "Job" {
			return slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool { return p.Name == named && p.ContainerPort == port })
		}
	}
	return false
}

// TestAuditorsMayStoreRecords compares the programs with an audit queue with the identities that the infrastructure lets append to the storage
// of audit records. Each one may append only to the logs of its own writers.
func TestAuditorsMayStoreRecords(t *testing.T) {
	text := must.Get(os.ReadFile(filepath.Join(charttest.Root(t), "dev-infrastructure/azure/region/audit.tf")))(t)
	match := regexp.MustCompile(`auditors += toset\(\[([^\]]*)\]\)`).FindSubmatch(text)
	if match == nil {
		t.Fatal("the template has no list of auditors")
	}
	condition := regexp.MustCompile(`own_blobs += \{ for service in local\.auditors : service => "(.*)" \}`).FindSubmatch(text)
	if condition == nil {
		t.Fatal("the template has no condition of the auditors' roles")
	}
	const containers = "Microsoft.Storage/storageAccounts/blobServices/containers"
	var want []string
	for _, w := range workload.All() {
		if !w.Audit {
			continue
		}
		want = append(want, strconv.Quote(string(w.Peer)))
		own := strings.NewReplacer("${local.containers}", containers, "${service}", string(w.Peer)).Replace(string(condition[1]))
		for _, other := range workload.All() {
			writer := must.Get(audit.NewWriterName(string(other.Peer), [8]byte{1, 0xff}))(t)
			for _, blob := range []string{writer + "/00000000000000000000.jsonl", writer + "x/0.jsonl", writer, string(other.Peer)} {
				action := rbac.Action{Name: containers + "/blobs/add/action", Data: true, Blob: blob}
				if permitted := w.Peer == other.Peer && strings.HasPrefix(blob, writer+"/"); action.Satisfies(own) != permitted {
					t.Errorf("%s may append to %s: %t", w.Peer, blob, !permitted)
				}
			}
		}
	}
	slices.Sort(want)
	if got := string(match[1]); got != strings.Join(want, ", ") {
		t.Errorf("the template has the auditors %s, the charts have %s", got, strings.Join(want, ", "))
	}
}

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/test/customer"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/command"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// readyStatus selects the Ready condition of nodes.
const readyStatus = `{.items[*].status.conditions[?(@.type=="Ready")].status}`

// TestDay2Operations performs the day-2 operations of a customer and an SRE on one cluster, through ARM, admin and Cluster Service.
// It checks the effect of each step with kubectl, on the hosted API server or the management cluster.
func TestDay2Operations(t *testing.T) {
	d := newScenario(t, "11111111-0000-0000-0000-000000000008", "day2")
	ctx, c, id := d.ctx, d.c, d.id
	steady, elastic := c.NodePoolID("day2", "steady"), c.NodePoolID("day2", "elastic")
	hosted, host := inHosted(t, ctx, id), hosting(t, ctx, id)
	before := host.get(ctx, "hostedclusters", `{.items[0].status.version.history[0].version}`)
	if !strings.HasPrefix(before, "4.21.") {
		t.Fatalf("the control plane runs %q", before)
	}

	d.step("two node pools", func() {
		d.put(steady, withVersion(c.NodePoolBody(2), before))
		body := withVersion(c.NodePoolBody(0), before)
		delete(body.Properties.(map[string]any), "replicas")
		body.Properties.(map[string]any)["autoScaling"] = map[string]any{"min": 1, "max": 3}
		d.put(elastic, body)
		hosted.await(ctx, "nodes", readyStatus, words(3, equals("True")))
	})
	d.step("scale", func() {
		d.patch(steady, map[string]any{"replicas": 3})
		hosted.await(ctx, "nodes", readyStatus, words(4, equals("True")))
		d.patch(steady, map[string]any{"replicas": 1})
		hosted.await(ctx, "nodes", readyStatus, words(2, equals("True")))
	})
	d.step("autoscale", func() {
		d.patch(elastic, map[string]any{"autoScaling": map[string]any{"min": 2, "max": 4}})
		host.await(ctx, "nodepools", `{.items[*].spec.autoScaling}`, equals(`{"max":4,"min":2}`))
		hosted.await(ctx, "nodes", readyStatus, words(3, equals("True")))
	})
	d.step("labels and taints", func() {
		d.patch(steady, map[string]any{"labels": []any{map[string]any{"key": "example.com/tier", "value": "front"}},
			"taints": []any{map[string]any{"key": "example.com/tier", "value": "front", "effect": "PreferNoSchedule"}}})
		host.await(ctx, "nodepools", `{.items[*].spec.nodeLabels}`, func(text string) bool { return strings.Contains(text, `"example.com/tier":"front"`) })
		// A running node keeps its labels. The upgrade below replaces it.
		if labelled := hosted.get(ctx, "nodes -l example.com/tier=front", `{.items[*].metadata.name}`); labelled != "" {
			t.Errorf("the change reached the running nodes %s", labelled)
		}
	})
	d.step("upgrade of the control plane by a minor version", func() {
		d.upgradeByComponents(host, "4.22")
		host.await(ctx, "hostedclusters", `{.items[0].status.version.history[0].version} {.items[0].status.version.history[0].state}`,
			func(text string) bool {
				return strings.HasPrefix(text, "4.22.") && strings.HasSuffix(text, " Completed")
			})
		if kubelets := hosted.get(ctx, "nodes", `{.items[*].status.nodeInfo.kubeletVersion}`); !words(3, func(v string) bool { return strings.HasPrefix(v, "v1.34.") })(kubelets) {
			t.Errorf("kubelet versions after the upgrade of the control plane: %q", kubelets)
		}
	})
	d.step("upgrade of the node pools", func() {
		after := host.get(ctx, "hostedclusters", `{.items[0].status.version.history[0].version}`)
		for _, pool := range []string{steady, elastic} {
			d.patch(pool, map[string]any{"version": map[string]any{"id": after}})
		}
		host.await(ctx, "nodepools", `{.items[*].status.version}`, words(2, equals(after)))
		hosted.await(ctx, "nodes", `{.items[*].status.nodeInfo.kubeletVersion}`, words(3, func(v string) bool { return strings.HasPrefix(v, "v1.35.") }))
		hosted.await(ctx, "nodes", readyStatus, words(3, equals("True")))
		hosted.await(ctx, "nodes -l example.com/tier=front", `{.items[*].spec.taints[?(@.key=="example.com/tier")].effect}`, equals("PreferNoSchedule"))
	})
	d.step("rotation of the key that encrypts etcd", func() {
		d.patch(id, map[string]any{"etcd": map[string]any{"dataEncryption": map[string]any{"customerManaged": map[string]any{
			"kms": map[string]any{"activeKey": map[string]any{"version": "2"}}}}}})
		host.await(ctx, "hostedclusters", `{.items[0].spec.secretEncryption.kms.azure.activeKey.keyVersion}`, equals("2"))
	})
	d.step("an SRE scales a node pool", func() {
		d.hcpctl("nodepool", "scale", id, "steady", "--replicas", "2", "--as-sre", "--as", "operator", "--reason", "the customer asked for it by phone", "--ticket", "INC-9")
		hosted.await(ctx, "nodes", readyStatus, words(4, equals("True")))
		host.await(ctx, "nodepools", `{.items[*].spec.replicas}`, equals("2"))
	})
	d.step("login with a token of another issuer", func() { d.login() })
	d.end()
}

// TestDay2Access does the same for break-glass access to the hosted API server.
func TestDay2Access(t *testing.T) {
	d := newScenario(t, "11111111-0000-0000-0000-000000000028", "access")
	d.step("break-glass of both classes", func() { d.breakGlass() })
	d.step("the end of an elevation revokes its credentials", func() { d.endElevation() })
	d.end()
}

// scenario is a sequence of steps on one cluster.
type scenario struct {
	t        *testing.T
	ctx      context.Context
	c        *customer.Customer
	name, id string
}

// newScenario creates the cluster of a scenario, which runs in parallel with other tests.
func newScenario(t *testing.T, subscription, name string) *scenario {
	t.Helper()
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 10*time.Minute)
	c := newCustomer(t, ctx, subscription, name)
	c.FastPolling = true // TestClusterLifecycle tests the published pollers
	parallel.enter()
	t.Cleanup(func() { parallel.leave(t, c) })
	d := &scenario{t: t, ctx: ctx, c: c, name: name, id: c.ClusterID(name)}
	d.put(d.id, c.ClusterBody(name))
	return d
}

// end deletes the cluster.
func (d *scenario) end() {
	d.t.Helper()
	hosted := inHosted(d.t, d.ctx, d.id)
	must.Do(d.t, d.c.Delete(d.ctx, d.id))
	if _, err := hosted.run(d.ctx, "get", "nodes"); err == nil {
		d.t.Error("the hosted API server of a deleted cluster responds")
	}
}

// step runs one step. The first failing step ends the scenario, because each step builds on the previous ones.
func (d *scenario) step(name string, do func()) {
	d.t.Helper()
	d.t.Log(name)
	do()
	if d.t.Failed() {
		d.t.Fatalf("failed step: %s", name)
	}
}

func (d *scenario) put(id string, body armresources.GenericResource) {
	d.t.Helper()
	created := must.Get(d.c.Put(d.ctx, id, body))(d.t)
	if state := property(created, "provisioningState"); state != "Succeeded" {
		d.t.Fatalf("%s is %v", id, state)
	}
}

func (d *scenario) patch(id string, properties map[string]any) {
	d.t.Helper()
	must.Get(d.c.Patch(d.ctx, id, armresources.GenericResource{Properties: properties}))(d.t)
}

// breakGlass requests a credential of each class, uses both, and revokes one class at a time. The SRE uses hcpctl and admin.
func (d *scenario) breakGlass() {
	service := clusterService(d.t)
	cluster := uidOf(d.t, d.ctx, service, d.id)
	me := must.Get(adminclient.Get(d.ctx, engineer(d.t, "oncall"), adminv1.ReadMe, nil))(d.t)
	const customerName = "system:customer-break-glass:system-admin"
	sreName := "system:sre-break-glass:" + me.ObjectID
	owner := d.kubectlWith(credentialOf(d.t, d.ctx, service, cluster, clusterservicev1.BreakGlassClass_BREAK_GLASS_CLASS_CUSTOMER, customerName))
	because := []string{"--as", "oncall", "--reason", "the console is unavailable", "--ticket", "INC-8"}
	sre := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "sre.kubeconfig")}
	began := time.Now()
	d.hcpctl(append([]string{"break-glass", "request", d.id, "--level", "admin", "--for", "10m", "--file", sre.kubeconfig}, because...)...)
	d.t.Logf("credential for %s issued after %s", sreName, time.Since(began))
	d.requireUser(owner, customerName)
	d.requireUser(sre, sreName)
	reader := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "reader.kubeconfig")}
	d.hcpctl("break-glass", "request", d.id, "--for", "10m", "--file", reader.kubeconfig, "--as", "operator", "--reason", "a node is not ready", "--ticket", "INC-9")
	d.requireReader(reader)
	d.awaitUses(service, cluster, map[string]string{"e2e": "e2e", "oncall@hcpmesh.local": "INC-8: the console is unavailable"})

	must.Do(d.t, d.c.Act(d.ctx, d.id, "revokeCredentials", nil, nil))
	d.requireRejected(owner)
	d.requireUser(sre, sreName)

	d.revokeOne(service, cluster, sre, reader)

	thief := d.thiefOf(sre)
	// The command returns after the API server has rejected a certificate of the old signer.
	d.hcpctl(append([]string{"break-glass", "revoke", d.id, "--class", "sre"}, because...)...)
	d.awaitRejected(thief, "the engineer's revoked credential")

	// The other engineer still has the elevation, so that kubectl renews the certificate.
	d.requireReader(reader)

	recorded := map[string]bool{}
	entries, _, err := adminclient.List(d.ctx, engineer(d.t, "reader"), adminv1.ReadAudit, nil, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, entry := range entries {
		if o := entry.Operation; o != nil && o.Target.ClusterUID == cluster && o.Actor.Name == "oncall@hcpmesh.local" && o.Actor.Ticket == "INC-8" {
			recorded[o.Action] = true
		}
	}
	if !recorded[adminv1.ActionCredentialRequest] || !recorded[adminv1.ActionCredentialRevoke] {
		d.t.Errorf("the audit records contain %v", recorded)
	}
}

// requireReader checks that a credential reads, and reads no Secret. It repeats requests that the API server does not answer, because the
// server may restart after a revocation, and those whose certificate it rejects: the end of another test's elevation revokes the certificates
// of the class, and kubectl gets the next one.
func (d *scenario) requireReader(holder kubectl) {
	d.t.Helper()
	awaitRead(d.t, d.ctx, "the list of nodes", func() error {
		_, err := holder.run(d.ctx, "get", "nodes")
		if err != nil && strings.Contains(err.Error(), "Forbidden") {
			d.t.Fatalf("a reader cannot list nodes: %v", err)
		}
		return err
	})
	awaitRead(d.t, d.ctx, "the refusal of Secrets", func() error {
		out, err := holder.run(d.ctx, "get", "secrets", "--all-namespaces")
		if err == nil {
			d.t.Fatalf("a reader lists Secrets: %q", out)
		}
		if strings.Contains(err.Error(), "Forbidden") {
			return nil
		}
		return err
	})
}

// revokeOne revokes the credential of the engineer oncall. It gets no further certificate, and the other engineer does.
func (d *scenario) revokeOne(service clusterservicev1.ClusterServiceClient, cluster string, revoked, other kubectl) {
	d.t.Helper()
	list := must.Get(service.ListBreakGlassCredentials(d.ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{ClusterUid: cluster}))(d.t)
	uid := ""
	for _, c := range list.GetCredentials() {
		if c.GetSpec().GetRequester() == "oncall@hcpmesh.local" && c.GetStatus().GetState() == clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED {
			uid = c.GetUid()
		}
	}
	out := d.hcpctl("break-glass", "revoke", d.id, "--credential", uid, "--as", "operator", "--reason", "the laptop was stolen", "--ticket", "INC-10")
	if !strings.Contains(out, "the API server accepts its certificate until") {
		d.t.Errorf("the revocation prints %q", out)
	}
	renew := func(holder kubectl, engineer string) error {
		root := command.New(io.Discard, io.Discard)
		root.SetArgs([]string{"break-glass", "certificate", "--access", holder.kubeconfig + ".access", "--renew", "--as", engineer, "--state-dir", filepath.Dir(region.LogDir())})
		return root.ExecuteContext(d.ctx)
	}
	if err := renew(revoked, "oncall"); err == nil || !strings.Contains(err.Error(), "were revoked") {
		d.t.Errorf("after its revocation, a credential is renewed: %v", err)
	}
	if err := renew(other, "operator"); err != nil {
		d.t.Errorf("the credential of another engineer is not renewed: %v", err)
	}
	d.requireReader(other)
}

// awaitUses waits until Cluster Service reports a use of the credentials of these requesters, with their reasons. The reports
// come from the audit log of the hosted API server.
func (d *scenario) awaitUses(service clusterservicev1.ClusterServiceClient, cluster string, reasons map[string]string) {
	d.t.Helper()
	eventually.Before(d.ctx, d.t, "the use of the credentials is reported", func() error {
		list, err := service.ListBreakGlassCredentials(d.ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{ClusterUid: cluster})
		if err != nil {
			return err
		}
		seen := 0
		for _, c := range list.GetCredentials() {
			use := c.GetStatus().GetUse()
			if want, is := reasons[c.GetSpec().GetRequester()]; is && c.GetSpec().GetReason() == want && use.GetFirstTime() != nil && slices.Contains(use.GetAddresses(), "127.0.0.1") {
				seen++
			}
		}
		if seen != len(reasons) {
			return fmt.Errorf("want uses by %v, got %v", reasons, list.GetCredentials())
		}
		return nil
	})
}

// hcpctl runs a command and returns its output.
func (d *scenario) hcpctl(args ...string) string {
	d.t.Helper()
	return must.Get(d.tryHcpctl(args...))(d.t)
}

// hcpctlRead is hcpctl for a command that changes nothing. It repeats a command that fails.
func (d *scenario) hcpctlRead(args ...string) string {
	d.t.Helper()
	var out string
	awaitRead(d.t, d.ctx, "hcpctl "+strings.Join(args, " "), func() (err error) {
		out, err = d.tryHcpctl(args...)
		return err
	})
	return out
}

// tryHcpctl is hcpctl for a command that may fail.
func (d *scenario) tryHcpctl(args ...string) (string, error) {
	var out, progress bytes.Buffer
	root := command.New(&out, &progress)
	root.SetArgs(append(slices.Clip(args), "--state-dir", filepath.Dir(region.LogDir())))
	if err := root.ExecuteContext(d.ctx); err != nil {
		return "", fmt.Errorf("hcpctl %s: %w\n%s", strings.Join(args, " "), err, progress.String())
	}
	return out.String(), nil
}

// login configures the region's issuer as an external authentication and uses its token at the hosted API server.
func (d *scenario) login() {
	authority, err := os.ReadFile(region.Endpoints().CAFile)
	if err != nil {
		d.t.Fatal(err)
	}
	const audience = "https://management.azure.com"
	body := d.c.ExternalAuthBody()
	properties := body.Properties.(map[string]any)
	properties["issuer"] = map[string]any{"url": region.Endpoints().ARM + "/" + region.Endpoints().TenantID + "/v2.0", "audiences": []string{audience}, "ca": string(authority)}
	properties["claim"] = map[string]any{"mappings": map[string]any{
		"username": map[string]any{"claim": "appid", "prefixPolicy": "Prefix", "prefix": "entra:"},
		"groups":   map[string]any{"claim": "groups", "prefix": "entra-group:"},
	}}
	properties["clients"] = []any{map[string]any{
		"component": map[string]any{"name": "cli", "authClientNamespace": "openshift-console"}, "clientId": audience, "type": "Public",
	}}
	external := d.c.ExternalAuthID(d.name, "entra")
	d.put(external, body)

	token := must.Get(d.c.Credential.GetToken(d.ctx, policy.TokenRequestOptions{Scopes: []string{audience + "/.default"}}))(d.t)
	hosted := inHosted(d.t, d.ctx, d.id)
	config := must.Get(clientcmd.BuildConfigFromFlags("", hosted.kubeconfig))(d.t)
	visitor := d.kubectlWith(&rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAData: config.CAData}, BearerToken: token.Token})
	claims := claimsOf(d.t, token.Token)
	if claims.AppID == "" || len(claims.Groups) != 1 {
		d.t.Fatalf("claims of the token are %+v", claims)
	}
	user, group := "entra:"+claims.AppID, "entra-group:"+claims.Groups[0]
	// The operation succeeds when the control plane has the configuration. The API server then fetches the keys of the issuer.
	var who string
	eventually.Before(d.ctx, d.t, "the token is accepted", func() error {
		who, err = visitor.run(d.ctx, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username} {.status.userInfo.groups}")
		return err
	})
	if want := user + ` ["` + group + `","system:authenticated"]`; who != want {
		d.t.Errorf("the token authenticates %s, want %s", who, want)
	}
	d.testGroupBinding(hosted, visitor, group)
	must.Do(d.t, d.c.Delete(d.ctx, external))
	if _, err := d.c.Resources.GetByID(d.ctx, external, customer.APIVersion, nil); !customer.IsStatus(err, http.StatusNotFound) {
		d.t.Errorf("GET after the deletion returned %v", err)
	}
	d.awaitRejected(visitor, "a token of a deleted issuer")
}

// testGroupBinding binds a role to a group and checks that a member has its permissions only while the binding exists.
func (d *scenario) testGroupBinding(hosted, member kubectl, group string) {
	d.t.Helper()
	read := func() error {
		_, err := member.run(d.ctx, "get", "namespaces", "-o", "name")
		return err
	}
	if err := read(); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		d.t.Errorf("a user without a role binding gets %v", err)
	}
	must := func(arguments ...string) {
		d.t.Helper()
		must.Get(hosted.run(d.ctx, arguments...))(d.t)
	}
	must("create", "clusterrole", "namespace-reader", "--verb=get,list", "--resource=namespaces")
	must("create", "clusterrolebinding", "developers-read-namespaces", "--clusterrole=namespace-reader", "--group="+group)
	eventually.Before(d.ctx, d.t, "a member of the group may read namespaces", read)
	if _, err := member.run(d.ctx, "get", "secrets", "--all-namespaces"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		d.t.Errorf("a resource outside the role returns %v", err)
	}
	must("delete", "clusterrolebinding", "developers-read-namespaces")
	eventually.Before(d.ctx, d.t, "a member of the group is forbidden again", func() error {
		if err := read(); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			return fmt.Errorf("the response is %v", err)
		}
		return nil
	})
}

// userClaims holds the mapped claims of a token of the region's issuer.
type userClaims struct {
	AppID  string   `json:"appid"`
	Groups []string `json:"groups"`
}

// claimsOf decodes a token without verifying its signature.
func claimsOf(t *testing.T, token string) (claims userClaims) {
	t.Helper()
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatal("the token is not a JWT")
	}
	content := must.Get(base64.RawURLEncoding.DecodeString(parts[1]))(t)
	must.Do(t, json.Unmarshal(content, &claims))
	return claims
}

// requireUser checks that a credential authenticates the user with a name. It repeats requests like requireReader.
func (d *scenario) requireUser(holder kubectl, name string) {
	d.t.Helper()
	awaitRead(d.t, d.ctx, "the user of the credential for "+name, func() error {
		got, err := holder.run(d.ctx, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
		if err == nil && got != name || err != nil && strings.Contains(err.Error(), "Forbidden") {
			d.t.Fatalf("the credential for %s authenticates %q, %v", name, got, err)
		}
		return err
	})
}

// requireRejected checks that the API server accepts a credential no more. It repeats requests that the API server does not answer.
func (d *scenario) requireRejected(holder kubectl) {
	d.t.Helper()
	awaitRead(d.t, d.ctx, "the rejection of the credential", func() error {
		got, err := holder.run(d.ctx, "auth", "whoami")
		if err == nil {
			d.t.Fatalf("a revoked credential returns %q", got)
		}
		if strings.Contains(err.Error(), "Unauthorized") {
			return nil
		}
		return err
	})
}

// awaitRejected waits until the hosted API server rejects a credential.
func (d *scenario) awaitRejected(holder kubectl, what string) {
	d.t.Helper()
	eventually.Before(d.ctx, d.t, what+" is rejected", func() error {
		if got, err := holder.run(d.ctx, "auth", "whoami"); err == nil || !strings.Contains(err.Error(), "Unauthorized") {
			return fmt.Errorf("the response is %q, %v", got, err)
		}
		return nil
	})
}

// kubectlWith returns a kubectl that uses a client configuration.
func (d *scenario) kubectlWith(config *rest.Config) kubectl {
	d.t.Helper()
	content := must.Get(clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"hosted": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"holder": {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"hosted": {Cluster: "hosted", AuthInfo: "holder"}},
		CurrentContext: "hosted",
	}))(d.t)
	return withKubeconfig(d.t, content)
}

// withVersion sets the release of a node pool.
func withVersion(body armresources.GenericResource, version string) armresources.GenericResource {
	body.Properties.(map[string]any)["version"] = map[string]any{"id": version, "channelGroup": "stable"}
	return body
}

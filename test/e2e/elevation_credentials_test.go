package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/adminclient"
	"github.com/hcpmesh/hcpmesh/tooling/hcpctl/pkg/credential"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// thiefOf returns a kubectl with a copy of the certificate and the key of an engineer's access. Unlike the engineer's, it does not renew
// the certificate.
func (d *scenario) thiefOf(holder kubectl) kubectl {
	d.t.Helper()
	access := must.Get(credential.ReadAccess(holder.kubeconfig + ".access"))(d.t)
	return d.kubectlWith(&rest.Config{Host: access.Server, TLSClientConfig: rest.TLSClientConfig{
		CAData: []byte(access.Authority), CertData: []byte(access.Certificate), KeyData: []byte(access.Key)}})
}

// watchNamespaces opens a watch that has received an event.
func (d *scenario) watchNamespaces(holder kubectl) watch.Interface {
	d.t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", holder.kubeconfig))(d.t)
	client := must.Get(kubernetes.NewForConfig(config))(d.t)
	// Without a resource version, the watch begins with an event for each namespace.
	w := must.Get(client.CoreV1().Namespaces().Watch(d.ctx, metav1.ListOptions{}))(d.t)
	select {
	case event, open := <-w.ResultChan():
		if !open || event.Type != watch.Added {
			d.t.Fatalf("the watch begins with %+v, open: %t", event, open)
		}
	case <-d.ctx.Done():
		d.t.Fatal(d.ctx.Err())
	}
	return w
}

// awaitWatchEnds waits until the server ends a watch.
func (d *scenario) awaitWatchEnds(w watch.Interface) {
	d.t.Helper()
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
		case <-d.ctx.Done():
			d.t.Fatal("the watch of the ended elevation goes on")
		}
	}
}

// endElevation ends the elevation of one of two engineers who have credentials for the cluster. The API server rejects the certificate
// when the command returns, a watch with it ends, no other one is issued with the elevation, and the other engineer and the customer
// continue to work.
func (d *scenario) endElevation() {
	ended := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "ended.kubeconfig")}
	other := kubectl{t: d.t, kubeconfig: filepath.Join(d.t.TempDir(), "other.kubeconfig")}
	d.hcpctl("break-glass", "request", d.id, "--for", "10m", "--file", ended.kubeconfig, "--as", "operator", "--reason", "the ingress is slow", "--ticket", "INC-20")
	d.hcpctl("break-glass", "request", d.id, "--for", "10m", "--file", other.kubeconfig, "--as", "approver", "--reason", "the nodes are slow", "--ticket", "INC-21")
	d.requireReader(ended)
	d.requireReader(other)
	var thief kubectl
	awaitRead(d.t, d.ctx, "the list of nodes with a copied certificate", func() error {
		// It renews a certificate that the end of another test's elevation revoked.
		if _, err := ended.run(d.ctx, "get", "nodes"); err != nil {
			return err
		}
		thief = d.thiefOf(ended)
		_, err := thief.run(d.ctx, "get", "nodes")
		return err
	})
	accepted := d.watchNamespaces(thief)
	defer accepted.Stop()
	elevations, _, err := adminclient.List(d.ctx, engineer(d.t, "oncall"), adminv1.ReadElevations, adminclient.Query{"open": true}, 100)
	if err != nil {
		d.t.Fatal(err)
	}
	i := slices.IndexFunc(elevations, func(v adminv1.Elevation) bool { return v.Ticket == "INC-20" })
	if i < 0 {
		d.t.Fatalf("no elevation of the ticket: %+v", elevations)
	}
	id := elevations[i].ID
	out := d.hcpctl("access", "end", id, "--as", "oncall")
	if !strings.Contains(out, "accepts no certificate of the elevation") {
		d.t.Errorf("the command prints %q", out)
	}
	d.awaitWatchEnds(accepted)
	// The API server restarts, and clients repeat their requests.
	d.awaitRejected(thief, "the certificate of the ended elevation")
	eventually.Before(d.ctx, d.t, "the customer's client continues", func() error {
		_, err := inHosted(d.t, d.ctx, d.id).run(d.ctx, "get", "nodes")
		return err
	})
	d.requireReader(other)
	// The engineer may get another certificate with another elevation, and none with this one.
	service := clusterService(d.t)
	list := must.Get(service.ListBreakGlassCredentials(d.ctx, &clusterservicev1.ListBreakGlassCredentialsRequest{ClusterUid: uidOf(d.t, d.ctx, service, d.id)}))(d.t)
	revoked := 0
	for _, c := range list.GetCredentials() {
		if c.GetSpec().GetElevation() != id {
			continue
		}
		switch state := c.GetStatus().GetState(); state {
		case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED:
			revoked++
		case clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_CANCELED:
			// It has no certificate: the end of another test's elevation revoked the credentials of the class meanwhile, and hcpctl requested the next one.
		default:
			d.t.Errorf("the credential %s of the ended elevation is %s", c.GetUid(), state)
		}
	}
	if revoked == 0 {
		d.t.Error("Cluster Service has no revoked credential of the elevation")
	}
	if out := d.hcpctl("access", "show", id, "--as", "reader"); !strings.Contains(out, string(adminv1.RevocationRevoked)) {
		d.t.Errorf("the elevation shows %q", out)
	}
	if out := d.hcpctl("access", "list", "--all", "--as", "reader"); !strings.Contains(out, string(adminv1.RevocationRevoked)) {
		d.t.Errorf("the list shows %q", out)
	}
	awaitAudit(d.t, "the sink has the revocation with the engineer who caused it", func(records map[string][]audit.Record) error {
		missing := map[string]string{"admin": "elevations.end", "backend": "elevations.end", "cluster-service": "revocations.succeeded"}
		for service, action := range missing {
			if slices.ContainsFunc(records[service], func(r audit.Record) bool { return r.Action == action && r.Person.Name == "oncall@hcpmesh.local" }) {
				delete(missing, service)
			}
		}
		if len(missing) > 0 {
			return errors.New(fmt.Sprint("records are missing: ", missing))
		}
		return nil
	})
}

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/uuid"
	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
	"github.com/hcpmesh/hcpmesh/internal/testing/nightly"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// TestExternalAuthAwaitsSecret checks that the external authentication of a confidential client waits until the customer has
// created the client's secret in the cluster. It calls Cluster Service directly, because an ARM operation would wait too.
func TestExternalAuthAwaitsSecret(t *testing.T) {
	nightly.Only(t)
	needsRegion(t)
	t.Parallel()
	ctx := withTimeout(t, 5*time.Minute)
	c := newCustomer(t, ctx, "11111111-0000-0000-0000-000000000007", "access")
	parallel.enter()
	defer func() { parallel.leave(t, c) }()
	id := c.ClusterID("guarded")
	must.Get(c.Put(ctx, id, c.ClusterBody("guarded")))(t)
	service := clusterService(t)
	cluster := uidOf(t, ctx, service, id)

	auth := &clusterservicev1.ApplyExternalAuthRequest{Uid: uuid.NewString(), ClusterUid: cluster, Generation: 1, ResourceId: id + "/externalAuths/entra",
		Spec: &clusterservicev1.ExternalAuthSpec{Name: "entra", Issuer: &clusterservicev1.TokenIssuer{Url: "https://login.example.com/t", Audiences: []string{"console-id"}},
			Clients: []*clusterservicev1.OidcClient{{ComponentName: "console", ComponentNamespace: "openshift-console", ClientId: "console-id",
				Type: clusterservicev1.OidcClientType_OIDC_CLIENT_TYPE_CONFIDENTIAL}},
			ClaimMappings: &clusterservicev1.ClaimMappings{Username: &clusterservicev1.UsernameMapping{Claim: "email"}}}}
	must.Get(service.ApplyExternalAuth(ctx, auth))(t)
	inPhase := func(phase clusterservicev1.ExternalAuthPhase) func(*clusterservicev1.WatchResponse) bool {
		return func(r *clusterservicev1.WatchResponse) bool {
			a := r.GetExternalAuth()
			return a.GetUid() == auth.Uid && a.GetStatus().GetPhase() == phase && a.GetStatus().GetObservedGeneration() == 1
		}
	}
	watchUntil(t, ctx, service, inPhase(clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_AWAITING_SECRET))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "entra-console-openshift-console"}, Data: map[string][]byte{"clientSecret": []byte("s")}}
	must.Get(hostedCluster(t, ctx, id).CoreV1().Secrets("openshift-config").Create(ctx, secret, metav1.CreateOptions{}))(t)
	watchUntil(t, ctx, service, inPhase(clusterservicev1.ExternalAuthPhase_EXTERNAL_AUTH_PHASE_READY))

	must.Do(t, c.Delete(ctx, id))
}

// uidOf returns the UID of the current incarnation of a cluster.
func uidOf(t *testing.T, ctx context.Context, service clusterservicev1.ClusterServiceClient, id string) string {
	t.Helper()
	var list *clusterservicev1.ListClustersResponse
	awaitRead(t, ctx, "the cluster in Cluster Service", func() (err error) {
		list, err = service.ListClusters(ctx, &clusterservicev1.ListClustersRequest{ResourceId: id})
		return err
	})
	if len(list.GetClusters()) != 1 {
		t.Fatalf("Cluster Service lists %v", list.GetClusters())
	}
	return list.GetClusters()[0].GetUid()
}

// clusterService returns a client of Cluster Service with the identity of the backend.
func clusterService(t *testing.T) clusterservicev1.ClusterServiceClient {
	t.Helper()
	identity := must.Get(mesh.LoadIdentity(region.Endpoints().Identities[string(mesh.Backend)]))(t)
	connection := must.Get(grpc.NewClient(region.Endpoints().ClusterService, grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService)))))(t)
	t.Cleanup(func() { _ = connection.Close() })
	return clusterservicev1.NewClusterServiceClient(connection)
}

// watchUntil watches Cluster Service and returns the first event that satisfies wanted.
func watchUntil(t *testing.T, ctx context.Context, service clusterservicev1.ClusterServiceClient, wanted func(*clusterservicev1.WatchResponse) bool) *clusterservicev1.WatchResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	stream := must.Get(service.Watch(ctx, &clusterservicev1.WatchRequest{}))(t)
	for {
		response, err := stream.Recv()
		if err != nil {
			t.Fatalf("watching Cluster Service: %v", err)
		}
		if wanted(response) {
			return response
		}
	}
}

// credentialOf requests a break-glass credential and returns a client configuration with it.
func credentialOf(t *testing.T, ctx context.Context, service clusterservicev1.ClusterServiceClient, cluster string, class clusterservicev1.BreakGlassClass, name string) *rest.Config {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	csr := must.Get(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{"system:masters"}}}, key))(t)
	der := must.Get(x509.MarshalECPrivateKey(key))(t)
	uid := uuid.NewString()
	began := time.Now()
	must.Get(service.ApplyBreakGlassCredential(ctx, &clusterservicev1.ApplyBreakGlassCredentialRequest{Uid: uid, ClusterUid: cluster,
		Spec: &clusterservicev1.BreakGlassCredentialSpec{Class: class, Requester: "e2e", Reason: "e2e",
			CertificateSigningRequest: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}))}}))(t)
	issued := watchUntil(t, ctx, service, func(r *clusterservicev1.WatchResponse) bool {
		return r.GetBreakGlassCredential().GetUid() == uid &&
			r.GetBreakGlassCredential().GetStatus().GetState() == clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED
	}).GetBreakGlassCredential().GetStatus()
	t.Logf("credential for %s issued after %s", name, time.Since(began))
	return &rest.Config{Host: issued.GetApiUrl(), TLSClientConfig: rest.TLSClientConfig{CAData: []byte(issued.GetServingCertificateAuthority()),
		CertData: []byte(issued.GetCertificate()), KeyData: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}}
}

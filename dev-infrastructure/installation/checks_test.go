package installation_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/eventually"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// shard is the management cluster of the region.
const shard = "mgmt-usw3-1"

// shardKeys returns the files of the shard's keys: the agent opens Secrets with the private one, which Cluster Service seals with the other.
func (r *region) shardKeys() (private, public string) { return r.outside.ShardKeys() }

// registerConsumer registers a consumer through one pod, as hcpctl does, and again through the other, which has the same database. The consumer
// of the configuration is registered before. A workload that no rule allows is refused.
func (r *region) registerConsumer(pods []corev1.Pod) {
	r.t.Helper()
	post := func(client mesh.Peer, pod corev1.Pod, name string) int {
		identity := must.Get(mesh.LoadIdentity(r.identity(client)))(r.t)
		transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: identity.ClientTLS(mesh.MaestroServer),
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return r.cluster.Dial(ctx, address) }}
		request := must.Get(http.NewRequestWithContext(r.ctx, http.MethodPost, "https://"+pod.Status.PodIP+":8000/api/maestro/v1/consumers", strings.NewReader(`{"name":"`+name+`"}`)))(r.t)
		request.Header.Set("Content-Type", "application/json")
		response := must.Get((&http.Client{Transport: transport}).Do(request))(r.t)
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode
	}
	if status := post(mesh.Hcpctl, pods[0], shard); status != http.StatusConflict {
		r.t.Errorf("registering the consumer of the configuration again: %d, want 409", status)
	}
	if status := post(mesh.Hcpctl, pods[0], consumer); status != http.StatusCreated {
		r.t.Errorf("registering a consumer: %d, want 201", status)
	}
	if status := post(mesh.Hcpctl, pods[len(pods)-1], consumer); status != http.StatusConflict {
		r.t.Errorf("registering it again through another pod: %d, want 409", status)
	}
	if status := post(mesh.Admin, pods[0], consumer); status != http.StatusForbidden {
		r.t.Errorf("registering a consumer as admin: %d, want 403", status)
	}
}

// renewIdentity replaces the certificate of the Maestro server, and expects that its Secret follows.
func (r *region) renewIdentity() {
	r.t.Helper()
	identity := must.Get(r.supplier.Renew(mesh.MaestroServer))(r.t)
	renewed := must.Get(os.ReadFile(filepath.Join(identity, mesh.CertificateFile)))(r.t)
	eventually.Before(r.ctx, r.t, "the new certificate in the Secret", func() error {
		secret, err := r.cluster.Client().CoreV1().Secrets("maestro-server").Get(r.ctx, "maestro-server-identity", metav1.GetOptions{})
		if err == nil && !bytes.Equal(secret.Data["tls.crt"], renewed) {
			err = fmt.Errorf("the Secret has another certificate")
		}
		return err
	})
}

// listShards expects the shard of the configuration in the database, through each pod. A workload that no rule allows is refused.
func (r *region) listShards(pods []corev1.Pod) {
	r.t.Helper()
	list := func(client mesh.Peer, pod corev1.Pod) ([]*csv1.ProvisionShard, error) {
		identity := must.Get(mesh.LoadIdentity(r.identity(client)))(r.t)
		connection := must.Get(grpc.NewClient("passthrough:///"+pod.Status.PodIP+":8443",
			grpc.WithTransportCredentials(credentials.NewTLS(identity.ClientTLS(mesh.ClusterService))), grpc.WithContextDialer(r.cluster.Dial)))(r.t)
		defer func() { _ = connection.Close() }()
		response, err := csv1.NewClusterServiceClient(connection).ListProvisionShards(r.ctx, &csv1.ListProvisionShardsRequest{})
		return response.GetProvisionShards(), err
	}
	for _, pod := range pods {
		if shards, err := list(mesh.Admin, pod); err != nil || len(shards) != 1 || shards[0].GetName() != shard {
			r.t.Errorf("the shards through %s: %v, %v", pod.Name, shards, err)
		}
	}
	if _, err := list(mesh.Frontend, pods[0]); status.Code(err) != codes.PermissionDenied {
		r.t.Errorf("the shards for the frontend: %v", err)
	}
}

// armAPIVersion is the api-version of requests to the frontend, and subscriptionAPIVersion that of ARM's own resources.
const armAPIVersion, subscriptionAPIVersion = "2026-09-01-preview", "2.0"

// subscription is the subscription that callFrontend registers.
const subscription = "2f7c4d6e-8d53-4d0a-9c41-5f0d9a7b1c22"

// armToken returns a token of ARM for the frontend.
func (r *region) armToken() string {
	r.t.Helper()
	return r.token(r.armClientID(), r.armSecretFile(), r.text("frontend", "authentication", "audience"))
}

// engineerToken returns a token for admin of the engineer with a role.
func (r *region) engineerToken(role string) string {
	r.t.Helper()
	return r.token(r.engineerClientID(), r.engineerSecretFile(role), r.text("admin", "authentication", "audience"))
}

// token returns a token of a client for an audience.
func (r *region) token(clientID, secretFile, audience string) string {
	r.t.Helper()
	secret := must.Get(os.ReadFile(secretFile))(r.t)
	return r.tokenOf(r.text("tenantId"), clientID, string(secret), audience)
}

// tokenOf returns a token of a client of a tenant for an audience.
func (r *region) tokenOf(tenant, clientID, secret, audience string) string {
	r.t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "client_id": {clientID}, "client_secret": {secret}, "scope": {audience + "/.default"}}
	request := must.Get(http.NewRequestWithContext(r.ctx, http.MethodPost, r.text("endpoints", "authority")+"/"+tenant+"/oauth2/v2.0/token", strings.NewReader(form.Encode())))(r.t)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response := must.Get(r.outside.HTTPClient(r.entra.Address).Do(request))(r.t)
	defer func() { _ = response.Body.Close() }()
	var issued struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&issued); err != nil || issued.Token == "" {
		r.t.Fatalf("a token for %s: %s, %v", audience, response.Status, err)
	}
	return issued.Token
}

// callFrontend registers a subscription through one pod, as ARM does, and reads it through the other, which has the same store. The versions
// that it offers are those of Cluster Service, which verifies their signatures. A call without ARM's token and a workload that no rule allows are refused.
func (r *region) callFrontend(pods []corev1.Pod) {
	r.t.Helper()
	call := func(token string, pod corev1.Pod, method, path, body string) (int, string) {
		status, text, err := r.callAs(mesh.ARMFrontDoor, token, pod, method, path, body)
		if err != nil {
			r.t.Fatal(err)
		}
		return status, text
	}
	token, last := r.armToken(), pods[len(pods)-1]
	const path = "/subscriptions/" + subscription
	state := fmt.Sprintf(`{"state":"Registered","registrationDate":"Mon, 05 Jan 2026 10:00:00 UTC","properties":{"tenantId":%q}}`, r.text("tenantId"))
	if status, text := call(token, pods[0], http.MethodPut, path+"?api-version="+subscriptionAPIVersion, state); status != http.StatusOK {
		r.t.Errorf("registering a subscription: %d %s", status, text)
	}
	if status, text := call(token, last, http.MethodGet, path+"?api-version="+subscriptionAPIVersion, ""); status != http.StatusOK || !strings.Contains(text, "05 Jan 2026") {
		r.t.Errorf("reading it through another pod: %d %s", status, text)
	}
	const operations = "/providers/Microsoft.RedHatOpenShift/operations?api-version=" + armAPIVersion
	for _, pod := range pods {
		if status, text := call(token, pod, http.MethodGet, operations, ""); status != http.StatusOK || !strings.Contains(text, "hcpOpenShiftClusters/write") {
			r.t.Errorf("the operations through %s: %d %s", pod.Name, status, text)
		}
	}
	const clusters = path + "/providers/Microsoft.RedHatOpenShift/hcpOpenShiftClusters?api-version=" + armAPIVersion
	if status, text := call(token, last, http.MethodGet, clusters, ""); status != http.StatusOK {
		r.t.Errorf("the clusters: %d %s", status, text)
	}
	versions := path + "/providers/Microsoft.RedHatOpenShift/locations/" + r.text("region") + "/hcpOpenShiftVersions?api-version=" + armAPIVersion
	eventually.Before(r.ctx, r.t, "versions in Cluster Service's update graph", func() error {
		status, text := call(token, last, http.MethodGet, versions, "")
		offered := slices.ContainsFunc(r.catalogue().Releases(), func(known *release.Release) bool {
			return strings.Contains(text, `"name":"`+known.Version.String()+`"`)
		})
		if status != http.StatusOK || !offered {
			return fmt.Errorf("%d %s", status, text)
		}
		return nil
	})
	if status, text := call("", pods[0], http.MethodGet, clusters, ""); status != http.StatusUnauthorized {
		r.t.Errorf("the clusters without a token: %d %s, want 401", status, text)
	}
	// The frontend has one client, so it refuses others when they connect.
	var refused *net.OpError
	if status, text, err := r.callAs(mesh.Admin, token, pods[0], http.MethodGet, clusters, ""); !errors.As(err, &refused) || refused.Op != "remote error" {
		r.t.Errorf("the clusters as admin: %d %s, %v, want an alert of TLS", status, text, err)
	}
}

// callAs calls the frontend with the identity of a workload. An empty token means that the request has none.
func (r *region) callAs(client mesh.Peer, token string, pod corev1.Pod, method, path, body string) (status int, text string, err error) {
	r.t.Helper()
	identity, err := mesh.LoadIdentity(r.identity(client))
	if err != nil {
		return 0, "", err
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return r.send(identity.ClientTLS(mesh.Frontend), method, "https://"+pod.Status.PodIP+":8443"+path, header, body)
}

// send sends a request into the network of the cluster.
func (r *region) send(config *tls.Config, method, address string, header http.Header, body string) (status int, text string, err error) {
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return r.cluster.Dial(ctx, address) }}
	request, err := http.NewRequestWithContext(r.ctx, method, address, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	request.Header = header
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// callAdmin lists the shards of Cluster Service through each pod as an engineer. A role that is too low and a missing token are refused.
func (r *region) callAdmin(pods []corev1.Pod) {
	r.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.authority.CertificatePEM())
	call := func(token string, pod corev1.Pod, method, path, body string) (int, string) {
		r.t.Helper()
		header := http.Header{"Content-Type": {"application/json"}}
		if token != "" {
			header.Set("Authorization", "Bearer "+token)
		}
		status, text, err := r.send(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12, ServerName: "admin.admin.svc"}, method, "https://"+pod.Status.PodIP+":8444"+path, header, body)
		if err != nil {
			r.t.Fatal(err)
		}
		return status, text
	}
	reader := r.engineerToken("reader")
	for _, pod := range pods {
		if status, text := call(reader, pod, http.MethodGet, "/admin/v1/shards", ""); status != http.StatusOK || !strings.Contains(text, shard) {
			r.t.Errorf("the shards through %s: %d %s", pod.Name, status, text)
		}
		if status, text := call("", pod, http.MethodGet, adminv1.IntentKeysPath, ""); status != http.StatusOK || !strings.Contains(text, "ES256") {
			r.t.Errorf("the keys of intents through %s: %d %s", pod.Name, status, text)
		}
	}
	if status, text := call("", pods[0], http.MethodGet, "/admin/v1/shards", ""); status != http.StatusUnauthorized {
		r.t.Errorf("the shards without a token: %d %s, want 401", status, text)
	}
	const elevation = `{"class":"operate","reason":"installed on nodes","ticket":"INC-1","duration":"5m"}`
	if status, text := call(reader, pods[0], http.MethodPost, "/admin/v1/elevations", elevation); status != http.StatusForbidden {
		r.t.Errorf("an elevation of a reader: %d %s, want 403", status, text)
	}
	if status, text := call(r.engineerToken("operator"), pods[0], http.MethodPost, "/admin/v1/elevations", elevation); status != http.StatusCreated {
		r.t.Errorf("an elevation of an operator: %d %s, want 201", status, text)
	}
}

// groups is the number of groups of subscriptions that the replicas of the backend share.
const groups = 16

// countGroups expects that the pods of the backend own all groups of subscriptions together, and each pod some.
func (r *region) countGroups(pods []corev1.Pod) {
	r.t.Helper()
	eventually.Before(r.ctx, r.t, "the owners of the groups", func() error {
		sum := 0
		for _, pod := range pods {
			owned, err := r.metric(pod, "backend_groups_owned")
			if err != nil {
				return err
			}
			if owned == 0 {
				return fmt.Errorf("%s owns no group", pod.Name)
			}
			sum += owned
		}
		if sum != groups {
			return fmt.Errorf("%d groups are owned, want %d", sum, groups)
		}
		return nil
	})
}

// metric returns the value of a metric without labels.
func (r *region) metric(pod corev1.Pod, name string) (int, error) {
	status, text, err := r.send(nil, http.MethodGet, "http://"+pod.Status.PodIP+":9090/metrics", http.Header{}, "")
	if err != nil || status != http.StatusOK {
		return 0, fmt.Errorf("the metrics of %s: %d, %w", pod.Name, status, err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", pod.Name, name)
}

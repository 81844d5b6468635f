package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterservicev1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/testing/grpctest"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// fleet is a Cluster Service that stores UIDs and generations with the real service's guarantees. It only signs
// credentials.
type fleet struct {
	clusterservicev1.UnimplementedClusterServiceServer

	mu          sync.Mutex
	generations map[string]int64
	deleted     map[string]bool
	// effects counts the calls that changed something, by UID.
	effects     map[string]int
	silent      bool
	credentials map[string]*clusterservicev1.BreakGlassCredential
	signer      *x509.Certificate
	key         *ecdsa.PrivateKey
	// versionRequests has the etags of the requests for versions.
	versionRequests     []string
	versionsUnavailable bool
	// versionRemoved is a minor version that is not in the list; empty for none.
	versionRemoved string
}

// newFleet returns a fleet with a signer for credentials.
func newFleet(t testing.TB) *fleet {
	t.Helper()
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, NotAfter: time.Now().Add(48 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	der := must.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	signer := must.Get(x509.ParseCertificate(der))(t)
	return &fleet{
		generations: map[string]int64{}, deleted: map[string]bool{}, effects: map[string]int{},
		credentials: map[string]*clusterservicev1.BreakGlassCredential{}, signer: signer, key: key,
	}
}

func (f *fleet) serve(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	return grpctest.Dial(t, grpctest.Serve(t, func(s grpc.ServiceRegistrar) { clusterservicev1.RegisterClusterServiceServer(s, f) }), options...)
}

func (f *fleet) apply(uid string, generation int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deleted[uid] {
		return status.Error(codes.FailedPrecondition, "the uid was deleted")
	}
	if generation > f.generations[uid] {
		f.generations[uid] = generation
		f.effects[uid]++
	}
	return nil
}

func (f *fleet) remove(uid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.deleted[uid] {
		f.deleted[uid] = true
		f.effects[uid]++
	}
}

// generation returns the stored generation of a UID; 0 if it is unknown.
func (f *fleet) generation(uid string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.generations[uid]
}

// ListOpenShiftVersions returns the offers of the built-in catalogue.
func (f *fleet) ListOpenShiftVersions(_ context.Context, r *clusterservicev1.ListOpenShiftVersionsRequest) (*clusterservicev1.ListOpenShiftVersionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.versionRequests = append(f.versionRequests, r.GetEtag())
	if f.versionsUnavailable {
		return nil, status.Error(codes.Unavailable, "the database is not reachable at 127.0.0.1:5432")
	}
	const etag = "1"
	if r.GetEtag() == etag {
		return &clusterservicev1.ListOpenShiftVersionsResponse{Etag: etag, NotModified: true}, nil
	}
	catalog, err := release.Default()
	if err != nil {
		return nil, err
	}
	response := &clusterservicev1.ListOpenShiftVersionsResponse{Etag: etag}
	for _, offer := range catalog.Offers() {
		if offer.Release.Version.MinorID() == f.versionRemoved {
			continue
		}
		response.Versions = append(response.Versions, &clusterservicev1.OpenShiftVersion{Name: offer.Name(), Version: offer.Release.Version.String(),
			ChannelGroup: offer.ChannelGroup, Enabled: offer.Enabled, EndOfLifeTime: timestamppb.New(offer.EndOfLife)})
	}
	return response, nil
}

func (f *fleet) ApplyCluster(_ context.Context, r *clusterservicev1.ApplyClusterRequest) (*clusterservicev1.Cluster, error) {
	return &clusterservicev1.Cluster{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteCluster(_ context.Context, r *clusterservicev1.DeleteClusterRequest) (*clusterservicev1.Cluster, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.Cluster{Uid: r.GetUid()}, nil
}

func (f *fleet) ApplyNodePool(_ context.Context, r *clusterservicev1.ApplyNodePoolRequest) (*clusterservicev1.NodePool, error) {
	if f.generation(r.GetClusterUid()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster is unknown")
	}
	return &clusterservicev1.NodePool{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteNodePool(_ context.Context, r *clusterservicev1.DeleteNodePoolRequest) (*clusterservicev1.NodePool, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.NodePool{Uid: r.GetUid()}, nil
}

func (f *fleet) ApplyExternalAuth(_ context.Context, r *clusterservicev1.ApplyExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	if f.generation(r.GetClusterUid()) == 0 {
		return nil, status.Error(codes.FailedPrecondition, "the cluster is unknown")
	}
	return &clusterservicev1.ExternalAuth{Uid: r.GetUid(), Generation: r.GetGeneration()}, f.apply(r.GetUid(), r.GetGeneration())
}

func (f *fleet) DeleteExternalAuth(_ context.Context, r *clusterservicev1.DeleteExternalAuthRequest) (*clusterservicev1.ExternalAuth, error) {
	f.remove(r.GetUid())
	return &clusterservicev1.ExternalAuth{Uid: r.GetUid()}, nil
}

func (f *fleet) ApplyBreakGlassCredential(_ context.Context, r *clusterservicev1.ApplyBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	block, _ := pem.Decode([]byte(r.GetSpec().GetCertificateSigningRequest()))
	if block == nil || r.GetSpec().GetRequester() == "" || r.GetClusterUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "the request is not whole")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	expires := time.Now().Add(24 * time.Hour).Truncate(time.Second)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: request.Subject, NotAfter: expires}, f.signer, request.PublicKey, f.key)
	if err != nil {
		return nil, err
	}
	inPEM := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.credentials[r.GetUid()] = &clusterservicev1.BreakGlassCredential{Uid: r.GetUid(), ClusterUid: r.GetClusterUid(), Spec: r.GetSpec(), Status: &clusterservicev1.BreakGlassCredentialStatus{
		State:       clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_ISSUED,
		Certificate: inPEM(der), ServingCertificateAuthority: inPEM(f.signer.Raw), ApiUrl: "https://api.example:443", ExpirationTime: timestamppb.New(expires),
	}}
	return f.credentials[r.GetUid()], nil
}

func (f *fleet) GetBreakGlassCredential(_ context.Context, r *clusterservicev1.GetBreakGlassCredentialRequest) (*clusterservicev1.BreakGlassCredential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.silent {
		return nil, status.Error(codes.Unavailable, "silent")
	}
	found, ok := f.credentials[r.GetUid()]
	if !ok {
		return nil, status.Error(codes.NotFound, "no such credential")
	}
	return proto.CloneOf(found), nil
}

// silence makes reads of credentials block.
func (f *fleet) silence(silent bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = silent
}

func (f *fleet) RevokeBreakGlassCredentials(_ context.Context, r *clusterservicev1.RevokeBreakGlassCredentialsRequest) (*clusterservicev1.BreakGlassRevocation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, found := range f.credentials {
		if found.GetClusterUid() == r.GetClusterUid() {
			found.Status.State = clusterservicev1.BreakGlassCredentialState_BREAK_GLASS_CREDENTIAL_STATE_REVOKED
		}
	}
	return &clusterservicev1.BreakGlassRevocation{Uid: r.GetUid()}, nil
}

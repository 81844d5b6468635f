package app_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
	"github.com/hcpmesh/hcpmesh/cluster-service/pkg/fleet"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// TestRefusedReleases: no cluster, node pool, upgrade or recovery gets a release that is refused. The error names its digest and the
// trust root. A release whose signature could not be read is refused with an error that callers retry.
func TestRefusedReleases(t *testing.T) {
	t.Parallel()
	r := newRegion(t)
	all := r.releases
	digest := func(version string) string {
		known, ok := all.Exact(version)
		if !ok {
			t.Fatalf("there is no release %s", version)
		}
		return known.Digest
	}
	refused := map[string]error{}
	for _, version := range []string{"4.21.1", "4.21.4", "4.21.6"} {
		refused[digest(version)] = &signature.Error{Digest: digest(version), TrustRoot: "ROOT", Reason: errors.New("there is no signature")}
	}
	for _, version := range []string{"4.22.0", "4.22.2"} {
		refused[digest(version)] = &signature.Error{Digest: digest(version), TrustRoot: "ROOT", Reason: errors.New("the store is away"), Unavailable: true}
	}
	r.releases = all.Without(refused)
	r.play()
	service := r.start(nil)
	ctx := t.Context()
	require := func(what string, err error, code codes.Code, version string) {
		t.Helper()
		if status.Code(err) != code || !strings.Contains(err.Error(), digest(version)) || !strings.Contains(err.Error(), "ROOT") {
			t.Errorf("%s: got %v, want %s with the digest and the trust root", what, err, code)
		}
	}

	request := applyRequest("unsigned", 1)
	request.Spec.Version = &csv1.Version{Id: "4.21", ChannelGroup: "stable"}
	_, err := service.ApplyCluster(ctx, request)
	require("a cluster", err, codes.InvalidArgument, "4.21.4")
	request.Spec.Version.Id = "4.22"
	_, err = service.ApplyCluster(ctx, request)
	require("a cluster while the store is away", err, codes.Unavailable, "4.22.2")
	if _, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: request.Uid}); status.Code(err) != codes.NotFound {
		t.Errorf("a refused request left a cluster: %v", err)
	}
	recovered := applyRequest("lost", 1)
	recovered.Recovery = &csv1.ClusterRecovery{ProvisionShard: "mgmt-1", ReleaseVersion: "4.21.4", ReleaseImage: "r@" + digest("4.21.4")}
	_, err = service.ApplyCluster(ctx, recovered)
	require("a recovery", err, codes.FailedPrecondition, "4.21.4")
	if _, err := service.GetCluster(ctx, &csv1.GetClusterRequest{Uid: recovered.Uid}); status.Code(err) != codes.NotFound {
		t.Errorf("a refused recovery left a cluster: %v", err)
	}

	cluster := service.installed(t, "c", "4.20.16")
	_, err = service.StartUpgrade(ctx, startRequest(cluster, "4.21.4", followAll))
	require("an upgrade", err, codes.FailedPrecondition, "4.21.4")
	if refusal(err) != fleet.RuleReleaseRefused {
		t.Errorf("the rule is %s", refusal(err))
	}
	pool := poolRequest(cluster, "p", 1)
	pool.Spec.Version = &csv1.Version{Id: "4.21.4"}
	_, err = service.ApplyNodePool(ctx, pool)
	require("a node pool", err, codes.InvalidArgument, "4.21.4")

	// With no accepted release at all, the list of versions is unavailable and not empty.
	for _, known := range all.Releases() {
		refused[known.Digest] = &signature.Error{Digest: known.Digest, TrustRoot: "ROOT", Reason: errors.New("the store is away"), Unavailable: true}
	}
	empty := newRegion(t)
	empty.releases = all.Without(refused)
	if _, err := empty.start(nil).ListOpenShiftVersions(ctx, &csv1.ListOpenShiftVersionsRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("the versions of a region without accepted releases: %v", err)
	}
}

// signReleases signs the releases of the built-in catalogue with a new key and returns the flags with which Cluster Service verifies
// them.
func signReleases(t *testing.T, dir string) []string {
	t.Helper()
	key := must.Get(signature.NewKey(signature.KeyOptions{Name: "publisher"}))(t)
	public := must.Get(key.PublicKey())(t)
	root, signatures := filepath.Join(dir, "trust-root.asc"), filepath.Join(dir, "signatures")
	must.Do(t, os.WriteFile(root, public, 0o600))
	must.Do(t, os.Mkdir(signatures, 0o700))
	catalog := must.Get(release.Load(""))(t)
	for _, known := range catalog.Releases() {
		must.Do(t, key.SignInto(signatures, known.Digest, signature.NewReference(known.Image, known.Version.String())))
	}
	return []string{"--release-trust-root-file=" + root, "--release-signatures=file://" + signatures}
}

package postgresserver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
	"github.com/hcpmesh/hcpmesh/internal/testing/must"
)

// testReplacedFilesAreReloaded replaces the authority of a server and of its clients step by step. Sessions stay open, and a client of
// an authority that was removed gets no new one.
func testReplacedFilesAreReloaded(t *testing.T, s *secured) {
	s.migrate("clusterservice", "clusterservice_owner", "clusterservice", mesh.ClusterServiceMigration)
	server := filepath.Join(s.dir, "local", string(mesh.PostgreSQL))
	read := func(path ...string) []byte {
		t.Helper()
		return must.Get(os.ReadFile(filepath.Join(path...)))(t)
	}
	local, foreign := read(s.dir, "local", "ca", authority.CertificateFile), read(s.dir, "foreign", "ca", authority.CertificateFile)
	// reload issues the server's certificate with the authority of a trust domain, and makes the server trust authorities.
	reload := func(issuer string, trusted ...[]byte) {
		t.Helper()
		signer := must.Get(mesh.OpenAuthority(filepath.Join(s.dir, issuer, "ca"), "local"))(t)
		must.Do(t, signer.Issue(server, mesh.PostgreSQL, "127.0.0.1"))
		must.Do(t, authority.WriteFile(filepath.Join(server, mesh.CAFile), slices.Concat(trusted...), 0o644))
		must.Do(t, s.Reload(t.Context()))
	}
	defer reload("local", local)
	connects := func(trust string) error {
		pool := s.open("clusterservice", "clusterservice", trust, mesh.ClusterService)
		return pool.Ping(t.Context())
	}
	open := must.Get(s.open("clusterservice", "clusterservice", "local", mesh.ClusterService).Acquire(t.Context()))(t)
	defer open.Release()

	reload("local", local, foreign)
	if err := connects("local"); err != nil {
		t.Errorf("a client of the first authority, while both are trusted: %v", err)
	}
	if connects("foreign") == nil {
		t.Error("a client of the second authority trusts the server of the first")
	}
	reload("foreign", local, foreign)
	if err := connects("foreign"); err != nil {
		t.Errorf("a client of the second authority, which issued the server's certificate: %v", err)
	}
	reload("foreign", foreign)
	if connects("local") == nil {
		t.Error("a client of the authority that was removed is accepted")
	}
	if err := open.Ping(t.Context()); err != nil {
		t.Errorf("the open session was closed: %v", err)
	}
	// A certificate that does not belong to its key is refused, and the previous one stays in use.
	other := read(s.dir, "foreign", string(mesh.Frontend), mesh.CertificateFile)
	must.Do(t, os.WriteFile(filepath.Join(server, mesh.CertificateFile), other, 0o644))
	if s.Reload(t.Context()) == nil {
		t.Error("files that do not belong together are accepted")
	}
	if err := connects("foreign"); err != nil {
		t.Errorf("after refused files: %v", err)
	}
}

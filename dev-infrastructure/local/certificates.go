package local

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/hcpmesh/hcpmesh/dev-infrastructure/local/authorities"
	"github.com/hcpmesh/hcpmesh/internal/authority"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/mesh"
)

const (
	// DefaultCertificateLifetime is the lifetime of the processes' certificates, as Istio's is.
	DefaultCertificateLifetime = 24 * time.Hour
	// minCertificateLifetime leaves a renewal the time to be distributed.
	minCertificateLifetime = 5 * time.Second
	// clockCheck is the longest wait between two checks of the clock. The timers of a machine that sleeps stop, but certificates end.
	clockCheck = time.Minute
	// The pauses between attempts of a renewal that fails.
	firstRenewalRetry, lastRenewalRetry = time.Second, time.Minute
)

// CertificateStatus is the state of the certificates with which the processes of a region identify themselves.
type CertificateStatus struct {
	// End is the end of the certificates, and Renewal when they are renewed.
	End     time.Time `json:"end"`
	Renewal time.Time `json:"renewal"`
	// Rotations are the steps of replacements of authorities that were interrupted or run, by the name of the authority.
	Rotations map[string]authorities.Step `json:"rotations,omitempty"`
	// Error is why the last renewal failed.
	Error string `json:"error,omitempty"`
}

// authorityDir is the folder of the authority of the region's processes.
func (r *Region) authorityDir() string { return r.state.path("ca") }

func (r *Region) openAuthority() (*authorities.Store[*mesh.Authority], error) {
	return authorities.Open(r.authorityDir(), func(dir string) (*mesh.Authority, error) { return mesh.OpenAuthority(dir, r.config.TrustDomain) })
}

// issueAll issues the certificates of all workloads before the processes start. A replacement of the authority that was interrupted is
// completed at once, because no process uses a certificate.
func (r *Region) issueAll() error {
	store, err := r.openAuthority()
	if err != nil {
		return fmt.Errorf("opening the region's authority: %w", err)
	}
	for store.Step() != authorities.None {
		if err := store.Advance(); err != nil {
			return fmt.Errorf("replacing the region's authority: %w", err)
		}
	}
	if err := r.distributeTrust(store); err != nil {
		return err
	}
	return r.issueWorkloads(store)
}

// distributeTrust writes the trusted authorities into the folders of all identities.
func (r *Region) distributeTrust(store *authorities.Store[*mesh.Authority]) error {
	for _, identity := range r.identities() {
		dir := r.identityDir(identity.name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := authority.WriteFile(filepath.Join(dir, mesh.CAFile), store.Bundle(), 0o644); err != nil {
			return fmt.Errorf("writing the trusted authorities of %s: %w", identity.name, err)
		}
	}
	return nil
}

// issueWorkloads issues the certificates of all identities, and the tokens of the workloads in Azure.
func (r *Region) issueWorkloads(store *authorities.Store[*mesh.Authority]) error {
	issued := time.Now()
	for _, identity := range r.identities() {
		if err := store.Signer().IssueFor(r.config.certificateLifetime, r.identityDir(identity.name), identity.peer, identity.hosts...); err != nil {
			return fmt.Errorf("issuing the certificate of %s: %w", identity.name, err)
		}
	}
	if err := r.issueWorkloadTokens(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.certificates = CertificateStatus{End: issued.Add(r.config.certificateLifetime), Renewal: issued.Add(r.config.certificateLifetime * 2 / 3)}
	return nil
}

// keepCertificates renews the certificates after two thirds of their lifetime, until ctx ends. It retries a failed renewal.
func (r *Region) keepCertificates(ctx context.Context) {
	retry := backoff.New(firstRenewalRetry, lastRenewalRetry)
	for {
		wait := min(time.Until(r.certificateStatus().Renewal), clockCheck)
		if backoff.Sleep(ctx, max(wait, 0)) != nil {
			return
		}
		if time.Now().Before(r.certificateStatus().Renewal) {
			continue
		}
		err := r.RenewCertificates(ctx)
		r.mu.Lock()
		r.certificates.Error = ""
		if err != nil {
			r.certificates.Error = err.Error()
		}
		r.mu.Unlock()
		if err == nil {
			retry.Reset()
			continue
		}
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

func (r *Region) certificateStatus() CertificateStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.certificates
	status.Rotations = maps.Clone(r.rotations)
	return status
}

// RenewCertificates issues new certificates for all processes, which use them in their next handshakes. The region does so by itself after two
// thirds of the lifetime of the certificates.
func (r *Region) RenewCertificates(ctx context.Context) error {
	r.files.Lock()
	defer r.files.Unlock()
	store, err := r.openAuthority()
	if err != nil {
		return err
	}
	if err := r.issueWorkloads(store); err != nil {
		return err
	}
	return r.reloadPostgres(ctx)
}

// rotateServices replaces the authority of the region's processes.
func (r *Region) rotateServices(ctx context.Context, note func(authorities.Step)) error {
	r.files.Lock()
	defer r.files.Unlock()
	store, err := r.openAuthority()
	if err != nil {
		return err
	}
	return replaceAuthority(ctx, store, r.noteStep(ServicesAuthority, note), func() error { return r.distribute(ctx, store) })
}

// distribute gives all processes what a step of a replacement needs. When it returns, each handshake uses it.
func (r *Region) distribute(ctx context.Context, store *authorities.Store[*mesh.Authority]) error {
	if err := r.distributeTrust(store); err != nil {
		return err
	}
	if err := r.issueWorkloads(store); err != nil {
		return err
	}
	return r.reloadPostgres(ctx)
}

// reloadPostgres makes PostgreSQL use the current files. The caller holds r.files, so that no server reads them while it starts. A server
// that does not run reads them when it starts.
func (r *Region) reloadPostgres(ctx context.Context) error {
	server := r.database.Load()
	if server == nil {
		return nil
	}
	if err := server.Reload(ctx); err != nil {
		select {
		case <-server.Exited():
			return nil
		default:
		}
		return err
	}
	return nil
}

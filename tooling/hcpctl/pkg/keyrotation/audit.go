package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

// Audit is the kind of AuditRotation.
const Audit = "audit"

// clockSkew is added to the end of the use of a former key, for writers with a fast clock.
const clockSkew = 5 * time.Minute

// AuditRotation replaces the key with which a service signs its audit checkpoints. The former public key stays in the file of public keys,
// with the end of its use, so that `hcpctl audit verify` accepts what it signed before and nothing that it signs later.
//
// The files are the state of the rotation: the next private key is in Key.next until all verifiers have its public key. Then two public keys are
// in use until all processes sign with the next key.
type AuditRotation struct {
	Options
	// Service is the service that signs. Key is the file of its private key, and Public that of its public keys.
	Service, Key, Public string
	// Replicas are the URLs of the metrics of all processes with the key, and Verifiers those of all replicas of admin, which verifies the
	// chains of all services.
	Replicas, Verifiers []string
}

// Run rotates the key, or continues a rotation that was interrupted.
func (r *AuditRotation) Run(ctx context.Context) error {
	if len(r.Replicas) == 0 {
		return errors.New("--replica: the metrics of all processes that use the key are required")
	}
	if len(r.Verifiers) == 0 {
		return errors.New("--replica: the metrics of all replicas of admin are required: they verify what the key signs")
	}
	unlock, err := keyfile.Lock(r.Key)
	if err != nil {
		return err
	}
	defer unlock()
	current, err := audit.LoadKey(r.Key)
	if err != nil {
		return err
	}
	inUse, err := audit.InUse(r.Public)
	if err != nil {
		return err
	}
	if !slices.Contains(inUse, current.ID()) {
		return fmt.Errorf("%s does not have the public key of %s: verifications would fail", r.Public, r.Key)
	}
	next := r.Key + ".next"
	_, err = os.Stat(next)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	begun := err == nil
	if !begun && len(inUse) == 1 {
		if err := r.begin(ctx, current.ID()); err != nil {
			return err
		}
		begun = true
	}
	if begun {
		if err := r.replace(ctx, next); err != nil {
			return err
		}
	}
	// Otherwise an earlier run has replaced the private key.
	return r.finish(ctx)
}

// begin checks that all processes use the key and that all verifiers have its public key, and creates the next one.
func (r *AuditRotation) begin(ctx context.Context, id string) error {
	for _, url := range r.Replicas {
		if used, err := r.used(ctx, url); err != nil {
			return err
		} else if used != id {
			return fmt.Errorf("the process %s does not use %s: it signs with the key %s", url, r.Key, used)
		}
	}
	for _, url := range r.Verifiers {
		if left, err := r.unknown(ctx, url, id); err != nil {
			return err
		} else if left != "" {
			return errors.New(left)
		}
	}
	created, err := audit.GenerateKey()
	if err != nil {
		return err
	}
	return r.done(created.Create(r.Key + ".next"))
}

// replace publishes the public key of the next key, waits until all verifiers have it, and makes the next key the current one.
func (r *AuditRotation) replace(ctx context.Context, next string) error {
	key, err := audit.LoadKey(next)
	if err != nil {
		return err
	}
	r.Note("Publishing: key " + key.ID())
	if err := r.done(key.Publish(r.Public)); err != nil {
		return err
	}
	if err := r.publish(ctx); err != nil {
		return err
	}
	err = r.await(ctx, "Verifying", key.ID(), r.Verifiers, func(url string) (string, error) { return r.unknown(ctx, url, key.ID()) })
	if err != nil {
		return err
	}
	return r.done(os.Rename(next, r.Key))
}

// finish waits until all processes sign with the current key, and ends the use of the others.
func (r *AuditRotation) finish(ctx context.Context) error {
	current, err := audit.LoadKey(r.Key)
	if err != nil {
		return err
	}
	if err := r.publish(ctx); err != nil {
		return err
	}
	err = r.await(ctx, "Signing", current.ID(), r.Replicas, func(url string) (string, error) {
		if used, err := r.used(ctx, url); err != nil || used == current.ID() {
			return "", err
		}
		return fmt.Sprintf("the process %s must sign with the new key", url), nil
	})
	if err != nil {
		return err
	}
	until := r.Now().Add(clockSkew)
	r.Note("Retiring: checkpoints of the former key are valid until " + until.UTC().Format(time.RFC3339))
	if err := r.done(audit.Retire(r.Public, current.ID(), until)); err != nil {
		return err
	}
	return r.publish(ctx)
}

// await waits for processes. left returns what a process must do, or an error if it cannot be read; empty if it is not waited for.
func (r *AuditRotation) await(ctx context.Context, step, id string, processes []string, left func(url string) (string, error)) error {
	return r.poll(ctx, r.Key, "", func() (Progress, error) {
		p := Progress{Total: len(processes), Done: true}
		for _, url := range processes {
			must, err := left(url)
			if err != nil {
				must = err.Error()
			}
			if must != "" {
				p.Left++
				p.Done, p.Waiting = false, must
			}
		}
		return p, nil
	}, func(p Progress) string { return fmt.Sprintf("%s: key %s: %d of %d left", step, id, p.Left, p.Total) })
}

// unknown returns what a replica of admin must do to verify what a key signs; empty if it has the public key.
func (r *AuditRotation) unknown(ctx context.Context, url, id string) (string, error) {
	found, err := r.scrape(ctx, url)
	if err != nil {
		return "", err
	}
	if _, known := found.value("admin_audit_public_key", labels{"service": r.Service, keyfile.KeyLabel: id}); known {
		return "", nil
	}
	return fmt.Sprintf("%s must read the public key %s of %s from its --audit-keys-dir, or is of an earlier release", url, id, r.Service), nil
}

// used returns the ID of the key with which a process signs.
func (r *AuditRotation) used(ctx context.Context, url string) (string, error) {
	found, err := r.scrape(ctx, url)
	if err != nil {
		return "", err
	}
	series := found["audit_signing_key"].GetMetric()
	if len(series) != 1 {
		return "", fmt.Errorf("%s exports no audit_signing_key: it writes no audit records, or is of an earlier release", url)
	}
	return label(series[0], keyfile.KeyLabel), nil
}

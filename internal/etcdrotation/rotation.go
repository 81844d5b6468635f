// Package etcdrotation replaces the key with which a Kubernetes API server encrypts values in etcd, while the API server runs.
//
// A Rotation adds the next key for decryption, makes it the key for encryption, has the API server write all values again, and removes the
// former key. It begins a step when the API server reports that it has loaded the configuration of the step before, and removes the former
// key when etcd has no value of it. The keys are the state of the rotation: after a crash at any time, the next call of Run continues.
package etcdrotation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/etcdusers"
	"github.com/hcpmesh/hcpmesh/internal/kubeapi"
)

const (
	// pause is the pause between two requests for the loaded configuration.
	pause = time.Second
	// requestTimeout is the default of the flag --request-timeout of API servers.
	requestTimeout = time.Minute
)

// Rotation replaces the key of one API server.
type Rotation struct {
	Store Store
	// Server returns the API server. Its address may change when it restarts.
	Server func(ctx context.Context) (*Server, error)
	// Etcd reads the keys below Prefix.
	Etcd   *etcdusers.Client
	Prefix string
	// RequestTimeout is the time after which the API server ends a request; zero is the default of its flag --request-timeout.
	RequestTimeout time.Duration
	// Note is called with a line of text when the progress changed.
	Note func(text string)

	noted string
}

// Run rotates the key, or continues a rotation that was interrupted. It must not run twice at the same time for an API server; if it does,
// one of both fails, and nothing is lost.
func (r *Rotation) Run(ctx context.Context) error {
	for begun := false; ; begun = true {
		state, err := r.Store.Read(ctx)
		if err != nil {
			return err
		}
		step, next := "Adding", state.Keys
		switch {
		case state.Keys.HasNext():
			step, next = "Promoting", state.Keys.Promote()
			_, err = r.awaitLoaded(ctx, step, state)
		case state.Keys.HasFormer():
			step, next = "Removing", state.Keys.RemoveFormer()
			err = r.rewrite(ctx, state)
		case begun:
			_, err = r.awaitLoaded(ctx, "Removing", state)
			return err
		default:
			loaded, err := r.loaded(ctx, state)
			if err != nil {
				return err
			}
			if !loaded {
				// An earlier call has removed the former key, and was interrupted then.
				continue
			}
			next = state.Keys.AddNext()
		}
		if err != nil {
			return err
		}
		r.note(fmt.Sprintf("%s: key %d", step, max(next.Write.Number, number(next.Read))))
		if err := r.Store.Write(ctx, state, next); err != nil {
			return err
		}
	}
}

func number(key *kubeapi.EncryptionKey) int {
	if key == nil {
		return 0
	}
	return key.Number
}

func (r *Rotation) loaded(ctx context.Context, state State) (bool, error) {
	server, err := r.Server(ctx)
	if err != nil {
		return false, err
	}
	loaded, err := server.loaded(ctx)
	return err == nil && loaded.hash == state.Hash, err
}

// awaitLoaded waits until the API server has the configuration of state. It waits for one that cannot be asked.
func (r *Rotation) awaitLoaded(ctx context.Context, step string, state State) (configuration, error) {
	for {
		found, err := configuration{}, error(nil)
		server, err := r.Server(ctx)
		if err == nil {
			found, err = server.loaded(ctx)
		}
		if err == nil && found.hash == state.Hash {
			return found, nil
		}
		waiting := "the API server must load the configuration, which takes up to a minute"
		if err != nil {
			waiting = err.Error()
		}
		if err := r.wait(ctx, step, waiting); err != nil {
			return configuration{}, err
		}
	}
}

// rewrite returns nil when no value in etcd needs the former key, and none will.
func (r *Rotation) rewrite(ctx context.Context, state State) error {
	const step = "Rewriting"
	former := state.Keys.Read.Prefix()
	for {
		loaded, err := r.awaitLoaded(ctx, step, state)
		if err != nil {
			return err
		}
		since := time.Now()
		total, err := r.rewriteAll(ctx, state)
		if err == nil {
			// A create that began before the API server loaded the configuration stores a value of the former key as long as its request
			// lasts. An update that began before cannot replace what was written since.
			timeout := cmp.Or(r.RequestTimeout, requestTimeout)
			for left := timeout - time.Since(since); left > 0; left = timeout - time.Since(since) {
				if err := r.wait(ctx, step, fmt.Sprintf("%d objects are written again; requests that began before end within a minute", total)); err != nil {
					return err
				}
			}
			var again configuration
			var left int
			if left, again, err = r.verify(ctx, former); err == nil && left == 0 && again == loaded {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("%d values of the former key in etcd", left)
				if again != loaded {
					err = errors.New("the API server restarted meanwhile; all values are written again")
				}
			}
		}
		if err := r.wait(ctx, step, err.Error()); err != nil {
			return err
		}
	}
}

// verify counts the values of the former key, and returns the configuration that the API server had afterwards.
func (r *Rotation) verify(ctx context.Context, former string) (left int, loaded configuration, err error) {
	if left, err = r.Etcd.CountValues(ctx, r.Prefix, former); err != nil {
		return 0, configuration{}, err
	}
	server, err := r.Server(ctx)
	if err != nil {
		return 0, configuration{}, err
	}
	loaded, err = server.loaded(ctx)
	return left, loaded, err
}

// rewriteAll has the API server write all objects of the encrypted resources again, and returns their number.
func (r *Rotation) rewriteAll(ctx context.Context, state State) (int, error) {
	server, err := r.Server(ctx)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, resource := range state.Resources {
		err := server.rewrite(ctx, resource, func(n int) {
			total += n
			r.note(fmt.Sprintf("Rewriting: key %d: %d objects of %s are written again", state.Keys.Write.Number, total, resource))
		})
		if err != nil {
			return total, fmt.Errorf("writing %s again: %w", resource, err)
		}
	}
	return total, nil
}

// wait waits before the next attempt of a step.
func (r *Rotation) wait(ctx context.Context, step, waiting string) error {
	r.note(step + ": " + waiting)
	if err := backoff.Sleep(ctx, pause); err != nil {
		return fmt.Errorf("the rotation was interrupted; run the command again to continue: %w", err)
	}
	return nil
}

// note passes on the progress unless it is the same as before.
func (r *Rotation) note(text string) {
	if text != r.noted {
		r.noted = text
		r.Note(text)
	}
}

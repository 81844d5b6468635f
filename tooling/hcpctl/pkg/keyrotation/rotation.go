package keyrotation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

const (
	scrapeTimeout = 10 * time.Second
	// maxMetrics limits the metrics of one replica, in bytes.
	maxMetrics = 64 << 20
	// pause is the pause between two reads of the metrics.
	pause = time.Second
)

// ErrNotYet is returned with NoWait when a step has to wait.
var ErrNotYet = errors.New("run the command again to continue")

// Options are the fields of rotations of all kinds.
type Options struct {
	// Publish stores the changed files where the processes read them; nil if they read the files of the rotation. It must have no effect when
	// it is repeated.
	Publish func(ctx context.Context) error
	// NoWait makes Run return an error with ErrNotYet instead of waiting.
	NoWait bool
	HTTP   *http.Client
	// Note is called with a line of text when the progress changed.
	Note func(text string)
	Now  func() time.Time

	// reached is called after each durable change; tests interrupt the rotation there.
	reached func() error
	noted   string
}

// Rotation replaces the key of one keyset.
type Rotation struct {
	Options
	Kind Kind
	// Keyset is the file of the keyset, and PublicKeyset that of the public keyset if Kind.Public is set.
	Keyset, PublicKeyset string
	// Shard is the provision shard of the keyset if Kind.PerShard is set.
	Shard string
	// Replicas are the URLs of the metrics of all replicas, by service. Those of Kind.Verifiers may be missing: then no replica verifies.
	Replicas map[string][]string
}

// Run rotates the key, or continues a rotation that was interrupted.
func (r *Rotation) Run(ctx context.Context) error {
	if err := r.validate(); err != nil {
		return err
	}
	unlock, err := keyfile.Lock(r.Keyset)
	if err != nil {
		return err
	}
	defer unlock()
	found, err := readRecord(r.Keyset)
	if err != nil {
		return err
	}
	if found == nil {
		if found, err = r.begin(ctx); err != nil {
			return err
		}
	} else if found.Kind != r.Kind.Name {
		return fmt.Errorf("%s: a rotation of the kind %s is in progress", r.Keyset, found.Kind)
	}
	for {
		next, err := r.step(ctx, found)
		if err != nil {
			return err
		}
		if next == "" {
			return r.done(os.Remove(recordFile(r.Keyset)))
		}
		found.Step = next
		if err := r.done(found.write(r.Keyset)); err != nil {
			return err
		}
	}
}

func (r *Rotation) validate() error {
	for _, service := range append([]string{r.Kind.Service}, r.Kind.Others...) {
		if len(r.Replicas[service]) == 0 {
			return fmt.Errorf("--replica: the metrics of all replicas of %s are required", service)
		}
	}
	if r.Kind.Public && r.PublicKeyset == "" {
		return fmt.Errorf("--public-keyset is required for the kind %s", r.Kind.Name)
	}
	if r.Kind.PerShard && r.Shard == "" {
		return fmt.Errorf("--shard is required for the kind %s", r.Kind.Name)
	}
	return nil
}

// begin checks that a rotation is safe, and records it.
func (r *Rotation) begin(ctx context.Context) (*record, error) {
	ring, err := r.file()
	if err != nil {
		return nil, err
	}
	if len(ring.IDs) != 1 {
		return nil, fmt.Errorf("%s has %d enabled keys: a rotation by hand is in progress. End it with `hcpctl keys promote` and `hcpctl keys remove`", r.Keyset, len(ring.IDs))
	}
	for _, url := range r.Replicas[r.Kind.Service] {
		used, err := r.ring(ctx, url, r.Kind.Flag)
		if err != nil {
			return nil, err
		}
		if used.Primary != ring.Primary || !slices.Equal(used.IDs, ring.IDs) {
			return nil, fmt.Errorf("the replica %s does not use %s: it has the keys %v with the primary key %d, and the file has %v", url, r.Keyset, used.IDs, used.Primary, ring.IDs)
		}
	}
	for _, url := range r.verifiers().replicas {
		used, err := r.ring(ctx, url, r.Kind.VerifierFlag)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(used.IDs, ring.Primary) {
			return nil, fmt.Errorf("the replica %s does not have the public key of %s: it has the keys %v, and the primary key is %d", url, r.Keyset, used.IDs, ring.Primary)
		}
	}
	begun := &record{Kind: r.Kind.Name, Step: Adding, Former: ring.Primary}
	return begun, r.done(begun.write(r.Keyset))
}

// file returns the keys in the file of the keyset.
func (r *Rotation) file() (keyfile.Ring, error) {
	handle, err := keyfile.Read(r.Keyset)
	if err != nil {
		return keyfile.Ring{}, err
	}
	return keyfile.RingOf(handle), nil
}

// step performs a step that may have been performed in part before, and returns the next one, or "" after the last.
func (r *Rotation) step(ctx context.Context, now *record) (next Step, err error) {
	ring, err := r.file()
	if err != nil {
		return "", err
	}
	others := slices.DeleteFunc(slices.Clone(ring.IDs), func(id uint32) bool { return id == now.Former })
	if len(others) > 1 || now.Next != 0 && !slices.Equal(others, []uint32{now.Next}) || now.Step != Removing && len(others) == len(ring.IDs) {
		return "", fmt.Errorf("%s was changed during the rotation: it has the keys %v, but %d is replaced by %s. Restore the keyset, or end the rotation by hand and delete %s",
			r.Keyset, ring.IDs, now.Former, name(now.Next), recordFile(r.Keyset))
	}
	switch now.Step {
	case Adding:
		if len(others) == 0 {
			added, err := keyfile.Add(r.Keyset)
			if err := r.done(err); err != nil {
				return "", err
			}
			others = []uint32{added}
		}
		now.Next = others[0]
		if err := r.publish(ctx); err != nil {
			return "", err
		}
		hasNext := func(used keyfile.Ring) bool { return slices.Contains(used.IDs, now.Next) }
		if err := r.await(ctx, now, r.users(), hasNext, "read the new key"); err != nil {
			return "", err
		}
		return Promoting, r.await(ctx, now, r.verifiers(), hasNext, "read the public keyset with the new key")
	case Promoting:
		if ring.Primary != now.Next {
			if err := r.done(keyfile.Promote(r.Keyset, now.Next)); err != nil {
				return "", err
			}
		}
		if err := r.publish(ctx); err != nil {
			return "", err
		}
		err := r.awaitPromoted(ctx, now)
		now.Since = r.Now()
		return Waiting, err
	case Waiting:
		return Removing, r.awaitUnused(ctx, now)
	default:
		if slices.Contains(ring.IDs, now.Former) {
			// A replica can have started with an earlier file meanwhile.
			if err := r.awaitPromoted(ctx, now); err != nil {
				return "", err
			}
			if err := r.done(keyfile.Remove(r.Keyset, now.Former)); err != nil {
				return "", err
			}
		}
		if err := r.publish(ctx); err != nil {
			return "", err
		}
		forgotten := func(used keyfile.Ring) bool { return !slices.Contains(used.IDs, now.Former) }
		if err := r.await(ctx, now, r.users(), forgotten, "forget the former key"); err != nil {
			return "", err
		}
		return "", r.await(ctx, now, r.verifiers(), forgotten, "forget the former key")
	}
}

// publish makes the files available to the replicas.
func (r *Rotation) publish(ctx context.Context) error {
	if r.Kind.Public {
		if err := r.done(keyfile.WritePublic(r.Keyset, r.PublicKeyset)); err != nil {
			return err
		}
	}
	return r.Options.publish(ctx)
}

// publish calls Publish.
func (o *Options) publish(ctx context.Context) error {
	if o.Publish == nil {
		return nil
	}
	if err := o.Publish(ctx); err != nil {
		return fmt.Errorf("--publish: %w", err)
	}
	return o.done(nil)
}

// awaitPromoted waits until all replicas use the new key.
func (r *Rotation) awaitPromoted(ctx context.Context, now *record) error {
	return r.await(ctx, now, r.users(), func(used keyfile.Ring) bool { return used.Primary == now.Next }, "use the new key")
}

// readers are the replicas that read a file with keys, whose metrics name its flag.
type readers struct {
	replicas []string
	flag     string
}

// users returns the replicas that use the keyset.
func (r *Rotation) users() readers { return readers{r.Replicas[r.Kind.Service], r.Kind.Flag} }

// verifiers returns the replicas that verify with the public keyset.
func (r *Rotation) verifiers() readers {
	var replicas []string
	for _, service := range r.Kind.Verifiers {
		replicas = append(replicas, r.Replicas[service]...)
	}
	return readers{replicas, r.Kind.VerifierFlag}
}

// await waits until a condition holds for the keys of all replicas.
func (r *Rotation) await(ctx context.Context, now *record, of readers, holds func(keyfile.Ring) bool, what string) error {
	if len(of.replicas) == 0 {
		return nil
	}
	return r.poll(ctx, now, func() (Progress, error) {
		p := Progress{Total: len(of.replicas), Done: true}
		for _, url := range of.replicas {
			used, err := r.ring(ctx, url, of.flag)
			if err != nil {
				return p, err
			}
			if !holds(used) {
				p.Left++
				p.Done, p.Waiting = false, fmt.Sprintf("the replica %s must %s", url, what)
			}
		}
		return p, nil
	})
}

// awaitUnused waits until nothing needs the former key.
func (r *Rotation) awaitUnused(ctx context.Context, now *record) error {
	return r.poll(ctx, now, func() (Progress, error) {
		if r.Kind.progress != nil {
			return r.Kind.progress(ctx, r, name(now.Former), name(now.Next))
		}
		end := now.Since.Add(r.Kind.Needed)
		return Progress{Done: !r.Now().Before(end), Waiting: "values of the former key are in use until " + end.UTC().Format(time.RFC3339)}, nil
	})
}

// poll waits until read reports that the step is done.
func (r *Rotation) poll(ctx context.Context, now *record, read func() (Progress, error)) error {
	return r.Options.poll(ctx, r.Keyset, fmt.Sprintf("step %s: ", now.Step), read, func(p Progress) string {
		text := fmt.Sprintf("%s: key %d, former key %d", now.Step, now.Next, now.Former)
		if p.Total > 0 {
			text += fmt.Sprintf(": %d of %d left", p.Left, p.Total)
		}
		if !p.Done {
			text += ": " + p.Waiting
		}
		return text
	})
}

// poll waits until read reports that a step is done. A process that cannot be read is waited for. It passes the text of the progress to Note
// unless it is the same as before. file and step name the rotation and the step in errors.
func (o *Options) poll(ctx context.Context, file, step string, read func() (Progress, error), text func(Progress) string) error {
	for {
		p, err := read()
		if err != nil {
			p.Done, p.Waiting = false, err.Error()
		}
		if text := text(p); text != o.noted {
			o.noted = text
			o.Note(text)
		}
		switch {
		case ctx.Err() != nil:
		case p.Done:
			return nil
		case o.NoWait:
			return fmt.Errorf("%s%s: %w", step, p.Waiting, ErrNotYet)
		}
		if err := backoff.Sleep(ctx, pause); err != nil {
			return fmt.Errorf("the rotation of %s was interrupted; run the command again to continue: %w", file, err)
		}
	}
}

// done returns err, or the error with which a test interrupts the rotation.
func (o *Options) done(err error) error {
	if err != nil || o.reached == nil {
		return err
	}
	return o.reached()
}

// name returns the ID of a key as labels of metrics have it.
func name(id uint32) string {
	if id == 0 {
		return "a new key"
	}
	return strconv.FormatUint(uint64(id), 10)
}

package updategraph

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
)

const (
	// concurrentChecks is the maximum number of digests that are verified at once.
	concurrentChecks = 8
	// maxUnavailable is the number of failed requests after which a pass asks the store for no other digest.
	maxUnavailable = concurrentChecks
	// recheckRefused is the time after which a release without a valid signature is verified again, because a signature may be
	// published after the release. recheckAccepted is that of a catalogue in which all releases are accepted.
	recheckRefused  = 10 * time.Minute
	recheckAccepted = time.Hour
)

// Signatures verifies that releases are signed. A *signature.Verifier implements it.
type Signatures interface {
	// VerifyVersion returns an error if the publisher has not signed that the digest is the version.
	VerifyVersion(ctx context.Context, digest, version string) error
	// Add adds a stored message, and Messages returns the messages to store.
	Add(digest string, message []byte) error
	Messages() map[string][]byte
}

// errUnverified is the reason of the releases of a catalogue before its first verification.
var errUnverified = &signature.Error{Reason: errors.New("the signatures of the releases are not verified yet"), Unavailable: true}

// unverified returns a catalogue in which each release waits for its verification.
func unverified(c *release.Catalog) *release.Catalog {
	refused := map[string]error{}
	for _, r := range c.Releases() {
		refused[r.Digest] = errUnverified
	}
	return c.Without(refused)
}

// loadSignatures adds the stored messages, so that verified releases do not need the store of signatures after a restart.
func (s *Source) loadSignatures(ctx context.Context) {
	messages, err := s.o.Store.ReleaseSignatures(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.o.Log.Warn("reading the stored signatures of releases failed", logkey.Error, err)
		}
		return
	}
	for digest, message := range messages {
		if err := s.o.Signatures.Add(digest, message); err != nil {
			s.o.Log.Warn("a stored signature of a release is not valid", logkey.Key, digest, logkey.Error, err)
		}
	}
	s.saved = messages
}

// admit verifies the releases of the newest catalogue and replaces the current one. It returns the time until the next verification
// and whether the store of signatures did not respond for a release.
func (s *Source) admit(ctx context.Context) (next time.Duration, unavailable bool) {
	refused := s.verify(ctx, s.candidate.Releases())
	if ctx.Err() != nil {
		return 0, false
	}
	next = recheckAccepted
	invalid, undecided := 0, 0
	for _, reason := range refused {
		if isUnavailable(reason) {
			undecided++
		} else {
			invalid++
			next = recheckRefused
		}
	}
	s.invalid.Store(int64(invalid))
	s.undecided.Store(int64(undecided))
	s.logRefusals(refused)
	s.saveSignatures(ctx)
	catalog := s.candidate.Without(refused)
	if s.o.Catalog != nil {
		catalog = catalog.WithEndOfLife(s.o.Catalog)
	}
	s.current.Store(catalog)
	s.o.Changed()
	return next, undecided > 0
}

// verify returns why releases are not accepted, by digest.
func (s *Source) verify(ctx context.Context, releases []*release.Release) map[string]error {
	var mu sync.Mutex
	var group sync.WaitGroup
	var away error
	failures := 0
	refused := map[string]error{}
	limit := make(chan struct{}, concurrentChecks)
	for _, r := range releases {
		limit <- struct{}{}
		group.Go(func() {
			defer func() { <-limit }()
			mu.Lock()
			ctx, cancel := context.WithCancelCause(ctx)
			if failures >= maxUnavailable {
				// A verified digest needs no request; a request fails with the cause.
				cancel(away)
			}
			mu.Unlock()
			defer cancel(nil)
			err := s.o.Signatures.VerifyVersion(ctx, r.Digest, r.Version.String())
			if err == nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			refused[r.Digest] = err
			if isUnavailable(err) {
				failures++
				away = err
			}
		})
	}
	group.Wait()
	return refused
}

func isUnavailable(err error) bool {
	var refusal *signature.Error
	return errors.As(err, &refusal) && refusal.Unavailable
}

// logRefusals logs each refused release when it is refused for the first time or for another reason, and summarizes those that could
// not be verified.
func (s *Source) logRefusals(refused map[string]error) {
	logged := map[string]string{}
	undecided := 0
	var example error
	for _, r := range s.candidate.Releases() {
		reason := refused[r.Digest]
		switch {
		case reason == nil:
			continue
		case isUnavailable(reason):
			undecided, example = undecided+1, reason
			continue
		}
		logged[r.Digest] = reason.Error()
		if s.logged[r.Digest] != logged[r.Digest] {
			s.o.Log.Error("a release is refused because it has no valid signature", logkey.Version, r.Version.String(), logkey.Error, reason)
		}
	}
	s.logged = logged
	if undecided > 0 {
		s.o.Log.Warn("signatures of releases could not be read; these releases are refused until then", logkey.Count, undecided, logkey.Error, example)
	}
}

// saveSignatures stores the messages of the verified releases when they have changed.
func (s *Source) saveSignatures(ctx context.Context) {
	messages, wanted := s.o.Signatures.Messages(), map[string][]byte{}
	for _, r := range s.candidate.Releases() {
		if message, ok := messages[r.Digest]; ok {
			wanted[r.Digest] = message
		}
	}
	if maps.EqualFunc(s.saved, wanted, bytes.Equal) {
		return
	}
	if err := s.o.Store.SaveReleaseSignatures(ctx, wanted); err != nil {
		if ctx.Err() == nil {
			s.o.Log.Warn("storing the signatures of releases failed", logkey.Error, err)
		}
		return
	}
	s.saved = wanted
}

package acceptance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"

	"github.com/hcpmesh/hcpmesh/internal/testing/schemamutation"
)

// updatesOfResource is the most updates of a stored resource before another one takes its place.
const updatesOfResource = 20

// update states how a candidate updates a stored resource.
type update struct {
	// patch sends a PATCH with the changes instead of a PUT of the whole body.
	patch bool
	// created are the mutations of the resource, if it has to be created before. Such a resource is only patched.
	created []schemamutation.Mutation
}

// newUpdate returns an update whose resource is created with some of the accepted mutations, or with none. Stored clusters exist at the same time, so
// that each has a prefix of its own.
func newUpdate(random *rand.Rand, accepted []schemamutation.Mutation) *update {
	u := &update{patch: random.IntN(2) == 0}
	if random.IntN(2) == 0 {
		u.created = slices.DeleteFunc(combination(random, accepted, 1+random.IntN(3)), func(c schemamutation.Mutation) bool {
			return concern(c.Path, "properties.dns.baseDomainPrefix")
		})
	}
	return u
}

// update updates the stored resource of a candidate's full body. The API server then has the update, so that the next one changes it.
func (w *worker) update(s subject, base map[string]any, c candidate) (outcome, error) {
	of := w.stored[c.base]
	if of == nil || of.updates == updatesOfResource {
		var err error
		if of, err = w.store(s, base, c); err != nil {
			return refused, err
		}
	}
	method, body := http.MethodPut, apply(base, c.changes)
	if c.update.patch || of.mutated {
		method, body = http.MethodPatch, difference(base, body)
	}
	result, err := w.request(s, of, method, body, stored)
	if result == applied {
		of.updates++
		if err == nil {
			err = s.settle(w, of)
		}
	}
	if err != nil {
		// The stored objects differ from the frontend's state.
		delete(w.stored, c.base)
		err = errors.Join(err, s.discard(w, of))
	}
	return result, err
}

// store replaces the stored resource of a candidate's full body.
func (w *worker) store(s subject, base map[string]any, c candidate) (*resource, error) {
	if of := w.stored[c.base]; of != nil {
		delete(w.stored, c.base)
		if err := s.discard(w, of); err != nil {
			return nil, err
		}
	}
	for _, created := range [][]schemamutation.Mutation{c.update.created, nil} {
		of, err := s.prepare(w)
		if err != nil {
			return nil, err
		}
		result, err := w.create(s, of, apply(base, created), stored)
		if err != nil {
			return nil, err
		}
		if result == refused {
			continue // a combination of accepted mutations
		}
		of.mutated = len(created) > 0
		w.stored[c.base] = of
		return of, s.settle(w, of)
	}
	return nil, fmt.Errorf("the full body of %s is refused", s.name)
}

// discardStored removes the stored resources.
func (w *worker) discardStored(s subject) {
	for _, of := range w.stored {
		if err := s.discard(w, of); err != nil {
			w.t.Error(err)
		}
	}
}

// difference returns the merge patch that changes an object to another one. A patch replaces an array as a whole.
func difference(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name := range from {
		if _, ok := to[name]; !ok {
			patch[name] = nil
		}
	}
	for name, value := range to {
		before, was := from[name].(map[string]any)
		after, is := value.(map[string]any)
		switch {
		case was && is:
			if inner := difference(before, after); len(inner) > 0 {
				patch[name] = inner
			}
		case !reflect.DeepEqual(from[name], value):
			patch[name] = value
		}
	}
	return patch
}

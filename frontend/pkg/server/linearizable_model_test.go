package server_test

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// action is what a client of TestLinearizable asked for, and what it was told.
type action struct {
	// slot is a place for one resource, name the one that is meant. A cluster has a slot of its own; the external auths of a
	// cluster, of which it can have one, share one.
	slot    string
	name    string
	verb    string
	value   string
	ifMatch string
}

type outcome struct {
	// status 0 is one that is not known: the answer said that the store could not be reached, or the frontend was killed.
	status int
	value  string
	state  string
	etag   string
	// lost is a 409 because of races, taken one because the slot is another's, and not because of the resource's state.
	lost, taken bool
}

// register is one slot as the API promises it: who has it, its value (a tag, or a claim), whether it moves, and its ETag,
// empty while the model cannot know it.
type register struct {
	exists, moving, deleting bool
	name, value, etag        string
}

// overtaken is the ETag of a write whose answer was lost and that others have written over before it was found again: one
// that no condition holds for any more.
const overtaken = `"overtaken"`

// step gives the states that a register may be in after an action with an outcome; none is a broken promise.
func (r register) step(a action, o outcome) []register {
	if o.lost {
		return []register{r}
	}
	if r.exists && r.name != a.name && a.verb != finishVerb {
		return r.beside(a, o)
	}
	written := register{exists: true, moving: true, name: a.name, value: a.value, etag: o.etag}
	if o.etag == overtaken {
		written.etag = ""
	}
	settled := r.exists && !r.moving && !r.deleting
	matching := a.ifMatch == "" || r.etag == "" || r.etag == a.ifMatch
	if o.status == 0 {
		return append(r.applied(a, written), r)
	}
	allowed := false
	next := r
	switch a.verb {
	case http.MethodGet:
		if o.status == http.StatusNotFound {
			allowed = !r.exists
			break
		}
		shown := string(hub.Succeeded)
		if r.deleting {
			shown = string(hub.Deleting)
		}
		moving := o.state == string(hub.Accepted) || o.state == string(hub.Updating)
		allowed = r.exists && o.value == r.value && (r.etag == "" || r.etag == o.etag) && (r.moving && moving || !r.moving && o.state == shown)
		next.etag = o.etag
	case http.MethodPut, http.MethodPatch:
		switch o.status {
		case http.StatusCreated:
			allowed, next = !r.exists && a.verb == http.MethodPut, written
		case http.StatusOK, http.StatusAccepted:
			allowed, next = settled && matching, written
		case http.StatusNotFound:
			allowed = !r.exists
		case http.StatusConflict:
			allowed = r.exists && !settled && matching && !o.taken
		case http.StatusPreconditionFailed:
			allowed = r.exists && a.ifMatch != "" && r.etag != a.ifMatch
		}
	case http.MethodDelete:
		switch o.status {
		case http.StatusAccepted:
			allowed, next = r.exists && !r.deleting, register{exists: true, deleting: true, name: r.name, value: r.value}
		case http.StatusNoContent:
			allowed = !r.exists
		case http.StatusConflict:
			allowed = r.deleting
		}
	case finishVerb:
		switch o.state {
		case "":
			allowed = true
		case string(hub.Deleting):
			allowed, next = r.deleting, register{}
		default:
			allowed, next = r.moving, register{exists: true, name: r.name, value: r.value}
		}
	}
	if !allowed {
		return nil
	}
	return []register{next}
}

// beside is step for a slot that another resource has: the one that is meant does not exist and cannot be made, and
// nothing changes.
func (r register) beside(a action, o outcome) []register {
	var allowed bool
	switch a.verb {
	case http.MethodGet, http.MethodPatch:
		allowed = o.status == http.StatusNotFound
	case http.MethodPut:
		allowed = o.status == http.StatusConflict && o.taken
	case http.MethodDelete:
		allowed = o.status == http.StatusNoContent
	}
	if allowed || o.status == 0 {
		return []register{r}
	}
	return nil
}

// applied is what an action whose outcome is not known did if it did anything.
func (r register) applied(a action, written register) []register {
	written.etag = ""
	settled := r.exists && !r.moving && !r.deleting
	matching := a.ifMatch == "" || r.etag == "" || r.etag == a.ifMatch
	switch {
	case a.verb == http.MethodPut && (!r.exists || settled), a.verb == http.MethodPatch && settled && matching:
		return []register{written}
	case a.verb == http.MethodDelete && r.exists && !r.deleting:
		return []register{{exists: true, deleting: true, name: r.name, value: r.value}}
	case a.verb == finishVerb && r.deleting:
		return []register{{}}
	case a.verb == finishVerb && r.moving:
		return []register{{exists: true, name: r.name, value: r.value}}
	}
	return nil
}

// finishVerb is what the backend does.
const finishVerb = "finish"

func model() porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			bySlot := map[string][]porcupine.Operation{}
			for _, operation := range history {
				slot := operation.Input.(action).slot
				bySlot[slot] = append(bySlot[slot], operation)
			}
			var parts [][]porcupine.Operation
			for _, part := range bySlot {
				parts = append(parts, part)
			}
			return parts
		},
		Init: func() []any { return []any{register{}} },
		Step: func(state, input, output any) []any {
			var next []any
			for _, r := range state.(register).step(input.(action), output.(outcome)) {
				next = append(next, r)
			}
			return next
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return nondeterministic.ToModel()
}

// outcomeOf returns the outcome that a response to a request for the resource with the given ID reports.
func outcomeOf(id string, status int, header http.Header, body string) outcome {
	o := outcome{status: status, etag: header.Get("ETag")}
	if status >= http.StatusInternalServerError || status == http.StatusTooManyRequests {
		return outcome{}
	}
	var shown struct {
		Tags       map[string]string `json:"tags"`
		Properties struct {
			ProvisioningState string `json:"provisioningState"`
			Claim             struct {
				Mappings struct {
					Username struct {
						Claim string `json:"claim"`
					} `json:"username"`
				} `json:"mappings"`
			} `json:"claim"`
		} `json:"properties"`
		Error struct {
			Message string `json:"message"`
			Target  string `json:"target"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(body), &shown) == nil {
		o.value, o.state = shown.Tags["value"]+shown.Properties.Claim.Mappings.Username.Claim, shown.Properties.ProvisioningState
		o.lost = shown.Error.Message == "The resource is being changed by other requests."
		// Another resource holds the slot if the error is about that one.
		o.taken = status == http.StatusConflict && strings.HasPrefix(shown.Error.Target, "/") && !strings.EqualFold(shown.Error.Target, id)
	}
	return o
}

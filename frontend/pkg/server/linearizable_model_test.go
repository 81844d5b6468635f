package server_test

import (
	"encoding/json"
	"net/http"

	"github.com/anishathalye/porcupine"

	"github.com/hcpmesh/hcpmesh/api/hub"
)

// action is a request of a client of TestLinearizable; outcome, below, is the response.
type action struct {
	// slot is a place for one resource; name is the requested resource. A cluster has its own slot. The external
	// authentications of a cluster share one, because a cluster can have only one.
	slot    string
	name    string
	verb    string
	value   string
	ifMatch string
}

type outcome struct {
	// A status of 0 means that the outcome is unknown: the store was unreachable or the frontend was killed.
	status int
	value  string
	state  string
	etag   string
	// lost is set for a 409 because of lost races, taken for a 400 because another resource holds the slot.
	lost, taken bool
}

// register is the specified state of one slot: the resource that holds it, its value (a tag or a claim), whether an
// operation is in progress, and its ETag, which is empty while the model cannot know it.
type register struct {
	exists, moving, deleting bool
	name, value, etag        string
}

// overtaken is the ETag of a write whose response was lost and that later writes replaced. No condition matches it.
const overtaken = `"overtaken"`

// step returns the states that a register may have after an action with an outcome. An empty result means that the
// outcome violates the specification.
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

// beside is step for a slot that another resource holds: the requested resource does not exist and cannot be created.
func (r register) beside(a action, o outcome) []register {
	var allowed bool
	switch a.verb {
	case http.MethodGet, http.MethodPatch:
		allowed = o.status == http.StatusNotFound
	case http.MethodPut:
		allowed = o.status == http.StatusBadRequest && o.taken
	case http.MethodDelete:
		allowed = o.status == http.StatusNoContent
	}
	if allowed || o.status == 0 {
		return []register{r}
	}
	return nil
}

// applied returns the possible states after an action with an unknown outcome.
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

// finishVerb is the action of the backend.
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

// outcomeOf returns the outcome that a response reports.
func outcomeOf(status int, header http.Header, body string) outcome {
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
		o.taken = status == http.StatusBadRequest && shown.Error.Target == "name"
	}
	return o
}

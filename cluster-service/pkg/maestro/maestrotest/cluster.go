package maestrotest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	workv1 "open-cluster-management.io/api/work/v1"

	"k8s.io/client-go/util/jsonpath"

	maestroapi "github.com/hcpmesh/hcpmesh/api/maestro"
)

// Object is a Kubernetes object.
type Object = map[string]any

// Reconciler simulates the controllers of a management cluster. It receives a copy of each applied object whose values the
// agent reports, and sets its status. calls is the number of earlier calls for the bundle. If it returns true, it is called
// again.
type Reconciler func(object Object, calls int) (again bool)

// RunAgents applies bundles and reports their status as agents do, until ctx ends. It confirms a deletion when no other bundle
// depends on the deleted one: the deletion of the namespaces waits for all other bundles of the cluster.
func (s *Server) RunAgents(ctx context.Context, reconcile Reconciler) {
	calls := map[string]int{}
	s.mu.Lock()
	s.agents = true
	s.mu.Unlock()
	for {
		if s.runAgent(calls, reconcile) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.arrived:
		}
	}
}

// Settled returns an error while the agents have to process bundles, or while the source does not have the last status of each bundle.
// hashes has the hash of the status that the source has of each of its bundles, by ID.
func (s *Server) Settled(hashes map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.agents && len(s.changed) > 0 {
		return fmt.Errorf("agents have to process %d bundles", len(s.changed))
	}
	for id, r := range s.resources {
		if hash, known := hashes[id]; !known || hash != r.hash {
			return fmt.Errorf("the source does not have the last status of bundle %s", r.Name)
		}
	}
	return nil
}

// runAgent processes the next changed bundle. It returns false if there is none. It removes the bundle from the changed ones and processes it
// under one lock, for Settled.
func (s *Server) runAgent(calls map[string]int, reconcile Reconciler) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) == 0 {
		return false
	}
	id := s.changed[0]
	s.changed = s.changed[1:]
	s.processBundle(id, calls, reconcile)
	return true
}

// processBundle processes a changed bundle. The caller holds the lock.
func (s *Server) processBundle(id string, calls map[string]int, reconcile Reconciler) {
	r := s.resources[id]
	switch {
	case r == nil, s.silent[r.Consumer]:
		return
	case r.Deleting:
		if s.hasDependents(r) || s.held[r.Name] != nil {
			return
		}
		delete(s.resources, id)
		s.tombstones[id] = r.Version
		s.history = append(s.history, "gone "+r.Name)
		s.broadcastGone(r)
		// Deletions that waited for this bundle may be complete now.
		for other, waiting := range s.resources {
			if waiting.Deleting {
				s.changed = append(s.changed, other)
			}
		}
		return
	}
	if again := s.report(r, calls[id], reconcile); again {
		s.changed = append(s.changed, id)
		select {
		case s.arrived <- struct{}{}:
		default:
		}
	}
	calls[id]++
}

// hasDependents reports whether other bundles have objects in the namespaces of a bundle.
func (s *Server) hasDependents(r *Resource) bool {
	base, isNamespaces := strings.CutSuffix(r.Name, "-00-namespaces")
	if !isNamespaces {
		return false
	}
	for _, other := range s.resources {
		if other != r && strings.HasPrefix(other.Name, base) {
			return true
		}
	}
	return false
}

func (s *Server) report(r *Resource, calls int, reconcile Reconciler) (again bool) {
	condition := map[string]any{"type": "Applied", "status": "True", "reason": "AppliedManifestWorkComplete", "observedGeneration": r.Version}
	var manifests []any
	for i, text := range r.Manifests {
		object := Object{}
		if err := json.Unmarshal(text, &object); err != nil {
			panic(err)
		}
		var config workv1.ManifestConfigOption
		if i < len(r.Configs) {
			config = r.Configs[i]
		}
		id := config.ResourceIdentifier
		incarnation, missing := fmt.Sprint(r.incarnation), r.missing
		onlyRead := config.UpdateStrategy != nil && config.UpdateStrategy.Type == workv1.UpdateStrategyTypeReadOnly
		if onlyRead {
			incarnation, missing = fmt.Sprintf("%s.%d", incarnation, r.read.incarnation), missing || r.read.missing
		}
		if metadata, ok := object["metadata"].(Object); ok {
			metadata["uid"] = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Appendf(nil, "%s %s %s %s", r.ID, object["kind"], metadata["name"], incarnation)).String()
			if onlyRead && r.read.deleting {
				metadata["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
			}
		}
		available := "True"
		if missing {
			available = "False"
		}
		conditions := []any{map[string]any{"type": "Available", "status": available}}
		refused := s.refusal(object, r.Version)
		if refused != nil {
			conditions, condition = append(conditions, refused...), notApplied("AppliedManifestWorkFailed", r.Version)
		} else {
			conditions = append(conditions, map[string]any{"type": "Applied", "status": "True", "reason": "AppliedManifestComplete", "observedGeneration": r.Version})
		}
		manifest := map[string]any{"conditions": conditions, "resourceMeta": map[string]any{"ordinal": i, "group": id.Group, "resource": id.Resource,
			"kind": object["kind"], "name": id.Name, "namespace": id.Namespace}}
		if missing || refused != nil {
			// Agents keep the last values of an object that does not exist, and the API server keeps the last accepted object.
			manifest["statusFeedback"] = map[string]any{"values": r.values[id]}
		} else if rules := config.FeedbackRules; len(rules) > 0 {
			again = reconcile(object, calls) || again
			var values []workv1.FeedbackValue
			for _, path := range rules[0].JsonPaths {
				if value := evaluate(object, path); value != nil {
					values = append(values, *value)
				}
			}
			manifest["statusFeedback"] = map[string]any{"values": values}
			if r.values == nil {
				r.values = map[workv1.ResourceIdentifier][]workv1.FeedbackValue{}
			}
			r.values[id] = values
		}
		manifests = append(manifests, manifest)
	}
	r.status, _ = json.Marshal(map[string]any{"conditions": []any{condition}, "resourceStatus": manifests})
	sum := sha256.Sum256(r.status)
	r.hash = hex.EncodeToString(sum[:])
	r.sequence++
	s.broadcast(r)
	return again
}

// notApplied returns the condition Applied of what is not applied.
func notApplied(reason string, version int64) Object {
	return Object{"type": "Applied", "status": "False", "reason": reason, "observedGeneration": version}
}

// refusal returns the conditions of an object that the rules of its kind refuse, as hcpmesh's agent reports them; nil if they accept it.
func (s *Server) refusal(object Object, version int64) []any {
	if s.refuse == nil {
		return nil
	}
	field, message := s.refuse(object)
	if message == "" {
		return nil
	}
	return []any{notApplied("AppliedManifestFailed", version), Object{"type": maestroapi.ConditionRefused, "status": "True", "reason": maestroapi.RefusedInvalid,
		"message": maestroapi.RefusalMessage([]string{field}, message), "observedGeneration": version}}
}

// evaluate reads a JSON path as the work agent does. It returns raw JSON for values that are not text, numbers or booleans.
func evaluate(object Object, path workv1.JsonPath) *workv1.FeedbackValue {
	p := jsonpath.New(path.Name).AllowMissingKeys(true)
	if err := p.Parse("{" + path.Path + "}"); err != nil {
		panic(fmt.Sprintf("%s: %v", path.Path, err))
	}
	results, err := p.FindResults(object)
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return nil
	}
	value := &workv1.FeedbackValue{Name: path.Name}
	switch v := results[0][0].Interface().(type) {
	case string:
		value.Value = workv1.FieldValue{Type: workv1.String, String: &v}
	case float64:
		n := int64(v)
		value.Value = workv1.FieldValue{Type: workv1.Integer, Integer: &n}
	case bool:
		value.Value = workv1.FieldValue{Type: workv1.Boolean, Boolean: &v}
	default:
		raw, _ := json.Marshal(v)
		text := string(raw)
		value.Value = workv1.FieldValue{Type: workv1.JsonRaw, JsonRaw: &text}
	}
	return value
}
